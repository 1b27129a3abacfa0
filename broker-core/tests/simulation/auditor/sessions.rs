//! Checks for sessions: one holder at a time, order, and a state that equals the one that was set.

use peeklock_core::command::SessionCommand;

use super::*;
use crate::clients::name;

impl Auditor {
    /// Records a command of a holder or of a receiver that wants to be one.
    pub(super) fn ask_in_session(
        &mut self,
        entity: usize,
        ticket: u64,
        receiver: ReceiverId,
        command: &SessionCommand,
    ) {
        let book = &mut self.books[entity];
        let bound = book.sessions.bound.get(&receiver).cloned();
        match command {
            SessionCommand::SetState { state } => {
                match bound {
                    Some((session, _)) => {
                        let states = book.sessions.states.entry(session).or_default();
                        states.perhaps.insert(ticket, state.clone());
                    }
                    // Sent after an accept without an answer: its session is unknown.
                    None => drop(book.sessions.unbound.insert(ticket, (receiver, state.clone()))),
                }
            }
            SessionCommand::Attach => {
                if let Some((_, mode)) = bound {
                    let link = LinkBook { mode, delivery_limit: 0, delivered: 0 };
                    book.links.insert(receiver, link);
                }
            }
            SessionCommand::Receive { .. }
            | SessionCommand::ReceiveDeferred { .. }
            | SessionCommand::Renew
            | SessionCommand::GetState
            | SessionCommand::DeleteBatch { .. } => {}
        }
    }

    /// The entity locked a session for a receiver (SES-06, SES-11, SES-18).
    pub(super) fn session_accepted(
        &mut self,
        pending: &Pending,
        session: &str,
        until: Timestamp,
        now: Timestamp,
    ) {
        let Command::AcceptSession { session: wanted, receiver, mode, .. } = &pending.command
        else {
            panic!("{:?} is answered with a session", pending.command)
        };
        assert!(wanted.as_deref().is_none_or(|wanted| wanted == session), "another session");
        let book = &mut self.books[pending.entity];
        let sessions = &mut book.sessions;
        if let Some((holder, held_until)) = sessions.holds.get(session) {
            assert!(
                *held_until <= now,
                "{session} is given to {receiver:?} and held by {holder:?} until {held_until} \
                 (SES-11)"
            );
        }
        let is_ending = book.ending.values().any(|one| one == receiver);
        if !is_ending {
            sessions.holds.insert(session.to_owned(), (*receiver, until));
        }
        sessions.bound.insert(*receiver, (session.to_owned(), *mode));
        let states = sessions.states.entry(session.to_owned()).or_default();
        for (ticket, (_, state)) in sessions.unbound.extract_if(.., |_, (of, _)| of == receiver) {
            states.perhaps.insert(ticket, state);
        }
        let delivery_limit = sessions.limits.remove(receiver).unwrap_or(0);
        book.links.insert(*receiver, LinkBook { mode: *mode, delivery_limit, delivered: 0 });
    }

    /// Records a completed command of a holder.
    pub(super) fn done_in_session(
        &mut self,
        ticket: u64,
        pending: &Pending,
        outcome: &Outcome,
        store: &FaultStore,
        now: Timestamp,
    ) {
        let Command::InSession { receiver, command } = &pending.command else { return };
        let book = &mut self.books[pending.entity];
        let Some((session, mode)) = book.sessions.bound.get(receiver).cloned() else {
            panic!("{receiver:?} never held a session, and is obeyed: {command:?} (SES-15)")
        };
        match (command, outcome) {
            (SessionCommand::Receive { count_max, .. }, Outcome::Received(messages)) => {
                assert!(messages.len() <= *count_max as usize, "more than asked for (RCV-13)");
                let is_ascending = messages.is_sorted_by_key(|one| one.facts.sequence);
                assert!(is_ascending, "a receive is out of order (SES-19)");
                self.received_in(pending, *receiver, mode, messages, false, store, now);
            }
            (SessionCommand::ReceiveDeferred { sequences }, Outcome::Received(messages)) => {
                assert_eq!(messages.len(), sequences.len(), "all or none (DEF-03)");
                self.received_in(pending, *receiver, mode, messages, true, store, now);
            }
            (SessionCommand::Renew, Outcome::Renewed(until)) => {
                if let Some((holder, held_until)) = book.sessions.holds.get_mut(&session)
                    && holder == receiver
                {
                    *held_until = *until;
                    for message in book.messages.values_mut() {
                        if let Some(lock) = &mut message.lock
                            && lock.holder == Some(*receiver)
                        {
                            // The session extends all of its locks (SES-14).
                            lock.until = *until;
                        }
                    }
                }
            }
            (SessionCommand::GetState, Outcome::SessionState(state)) => {
                let state = state.as_ref().map(|state| state.loaded().expect("in memory").clone());
                let states = book.sessions.states.entry(session.clone()).or_default();
                assert!(
                    states.may_be(state.as_ref()),
                    "the state of {session} is {state:?}, which nobody set last: {states:?} (SES-25)"
                );
            }
            (SessionCommand::SetState { state }, Outcome::Done) => {
                let states = book.sessions.states.entry(session).or_default();
                states.known = state.clone();
                states.perhaps = states.perhaps.split_off(&(ticket + 1));
            }
            (SessionCommand::DeleteBatch { count_max, .. }, Outcome::Deleted(count)) => {
                assert!(*count <= u64::from(*count_max), "more deleted than asked for");
                book.loss_max += count;
                book.loss_min += count;
            }
            (SessionCommand::Attach, Outcome::Done) => {}
            (command, outcome) => panic!("{command:?} is answered with {outcome:?}"),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "as many facts as a receive has")]
    fn received_in(
        &mut self,
        pending: &Pending,
        receiver: ReceiverId,
        mode: ReceiveMode,
        messages: &[ReceivedMessage],
        by_number: bool,
        store: &FaultStore,
        now: Timestamp,
    ) {
        let delivery = Delivery {
            entity: pending.entity,
            sub_queue: pending.sub_queue,
            mode,
            holder: Some(receiver),
            by_number,
        };
        for message in messages {
            self.delivered(&delivery, message, store, now);
        }
    }

    /// Records a refused command of a holder.
    pub(super) fn refused_in_session(&mut self, ticket: u64, pending: &Pending) {
        let Command::InSession { receiver, command } = &pending.command else { return };
        let book = &mut self.books[pending.entity];
        match command {
            SessionCommand::SetState { .. } => {
                for states in book.sessions.states.values_mut() {
                    states.perhaps.remove(&ticket);
                }
                book.sessions.unbound.remove(&ticket);
            }
            SessionCommand::Attach => drop(book.links.remove(receiver)),
            _ => {}
        }
    }

    /// The entity failed before it answered a holder.
    pub(super) fn unknown_in_session(
        &mut self,
        entity: usize,
        receiver: ReceiverId,
        command: &SessionCommand,
    ) {
        let book = &mut self.books[entity];
        let mode = book.sessions.bound.get(&receiver).map(|(_, mode)| *mode);
        match command {
            SessionCommand::Receive { count_max, .. } if mode != Some(ReceiveMode::PeekLock) => {
                book.loss_max += u64::from(*count_max);
            }
            SessionCommand::DeleteBatch { count_max, .. } => {
                book.loss_max += u64::from(*count_max);
            }
            SessionCommand::ReceiveDeferred { sequences }
                if mode != Some(ReceiveMode::PeekLock) =>
            {
                for sequence in sequences {
                    if let Some(message) = book.message_at(sequence.0) {
                        message.perhaps_gone = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// The entity has failed: all links to sessions are gone, also without a notification.
    pub fn lose_sessions(&mut self, entity: usize) {
        let bound: Vec<ReceiverId> = self.books[entity].sessions.bound.keys().copied().collect();
        for receiver in bound {
            self.end_link(entity, receiver);
        }
    }

    /// Whether messages that a command removes may be invisible until it is answered.
    pub(super) fn is_unseen(&self, entity: usize, command: &Command) -> bool {
        match command {
            Command::Receive { mode: ReceiveMode::ReceiveAndDelete, .. }
            | Command::ReceiveDeferred { mode: ReceiveMode::ReceiveAndDelete, .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::InSession { command: SessionCommand::DeleteBatch { .. }, .. } => true,
            Command::InSession {
                receiver,
                command: SessionCommand::Receive { .. } | SessionCommand::ReceiveDeferred { .. },
            } => {
                let bound = self.books[entity].sessions.bound.get(receiver);
                bound.is_some_and(|(_, mode)| *mode == ReceiveMode::ReceiveAndDelete)
            }
            _ => false,
        }
    }
}

/// A message of a session is delivered only to its holder (SES-16, SES-17).
pub(super) fn check_holder(book: &Book, delivery: &Delivery, marker: u64) {
    let sent = book.messages.get(&marker).and_then(|known| known.sent.session).map(name);
    let bound = delivery.holder.and_then(|holder| book.sessions.bound.get(&holder));
    assert_eq!(
        sent.as_ref(),
        bound.map(|(session, _)| session),
        "message {marker} goes to {:?} (SES-16, SES-17)",
        delivery.holder
    );
}
