//! The judge: sees commands and answers of clients and the contents of the store, but nothing of
//! the broker.

mod answers;
mod delivery;
mod sessions;

use std::collections::BTreeMap;

use peeklock_core::command::{
    Command, LinkEnd, Outcome, ReceiveMode, ReceivedMessage, SessionCommand, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueDescription, SessionRetryOrder};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, LockToken, ReceiverId};
use peeklock_core::machine::queue::QueueConfig;
use peeklock_core::path::SubQueue;
use peeklock_core::request::Released;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{Operation, PartOutcome};
use peeklock_store_testing::FaultStore;

use crate::book::{Acceptance, Book, Held, LinkBook, Message, Sending, is_dead};
use crate::clients::{Sent, name};
use crate::image::{Image, marker};
use crate::inspection::Occasion;

use self::answers::{accepted, peeked, perhaps_settled, settled, settling};

/// A command without its answer.
struct Pending {
    entity: usize,
    sub_queue: SubQueue,
    command: Command,
    markers: Vec<u64>,
    asked_at: Timestamp,
    /// When it reached the entity; a wait counts from then.
    reached_at: Timestamp,
    order: u64,
    failures: u64,
    /// Messages that it removes may be invisible until it is answered.
    is_unseen: bool,
}

pub struct Auditor {
    pub books: Vec<Book>,
    pending: BTreeMap<u64, Pending>,
    /// The entity that a link belongs to.
    receivers: BTreeMap<ReceiverId, usize>,
    order: u64,
    /// Whether the store was ever full.
    pub was_full: bool,
    pub release_on_detach: bool,
    pub release_on_connection_loss: bool,
}

/// Details of a delivery to a client.
struct Delivery {
    entity: usize,
    sub_queue: SubQueue,
    mode: ReceiveMode,
    holder: Option<ReceiverId>,
    by_number: bool,
}

impl Auditor {
    pub const fn new(config: &QueueConfig) -> Self {
        Self {
            books: Vec::new(),
            pending: BTreeMap::new(),
            receivers: BTreeMap::new(),
            order: 0,
            was_full: false,
            release_on_detach: config.release_on_detach,
            release_on_connection_loss: config.release_on_connection_loss,
        }
    }

    /// Entity and sub-queue of an unanswered command.
    pub fn target_of(&self, ticket: u64) -> Option<(usize, SubQueue)> {
        self.pending.get(&ticket).map(|pending| (pending.entity, pending.sub_queue))
    }

    pub fn entity_of(&self, receiver: ReceiverId) -> Option<usize> {
        self.receivers.get(&receiver).copied()
    }

    /// Unanswered commands, except receives that may wait longer.
    pub fn overdue(&self, now: Timestamp) -> Vec<u64> {
        let overdue = |pending: &Pending| match &pending.command {
            Command::Receive { wait, .. }
            | Command::AcceptSession { wait, .. }
            | Command::InSession { command: SessionCommand::Receive { wait, .. }, .. } => {
                pending.reached_at.plus(*wait) <= now
            }
            _ => true,
        };
        self.pending.iter().filter(|(_, one)| overdue(one)).map(|(ticket, _)| *ticket).collect()
    }

    /// Records a command.
    pub fn ask(
        &mut self,
        entity: usize,
        ticket: u64,
        sub_queue: SubQueue,
        command: &Command,
        sent: &[Sent],
        now: Timestamp,
    ) {
        self.order += 1;
        let is_unseen = self.is_unseen(entity, command);
        if let Command::InSession { receiver, command } = command {
            self.ask_in_session(entity, ticket, *receiver, command);
        }
        let book = &mut self.books[entity];
        book.hidden_calls += u32::from(is_unseen);
        for one in sent {
            book.messages.insert(one.marker, Message::new(one.clone(), ticket, now));
        }
        match command {
            Command::Settle { token, settlement } => settling(book, *token, settlement),
            Command::Commit { parts } => {
                for part in parts {
                    if let Operation::Settle { token, settlement } = &part.operation {
                        settling(book, *token, settlement);
                    }
                }
            }
            Command::Detach { receiver, end } => {
                let releases = match end {
                    // A session is released in any case (SES-31).
                    LinkEnd::Orderly => self.release_on_detach || book.description.requires_session,
                    LinkEnd::Lost => {
                        self.release_on_connection_loss || book.description.requires_session
                    }
                    LinkEnd::Broken | LinkEnd::ByBroker => true,
                };
                book.sessions.unlock(*receiver);
                if releases {
                    book.end_locks_of(*receiver);
                    book.ending.insert(ticket, *receiver);
                }
            }
            Command::AcceptSession { receiver, .. } => {
                self.receivers.insert(*receiver, entity);
            }
            // It may be in force before it is acknowledged.
            Command::Update { description, .. } => {
                book.max_delivery_count =
                    book.max_delivery_count.max(description.max_delivery_count);
                book.max_delivery_count_min =
                    book.max_delivery_count_min.min(description.max_delivery_count);
                book.updates.insert(ticket, (**description).clone());
            }
            Command::Attach { receiver, mode } => {
                let link = LinkBook { mode: *mode, delivery_limit: 0, delivered: 0 };
                book.links.insert(*receiver, link);
                self.receivers.insert(*receiver, entity);
            }
            Command::SetCredit { receiver, delivery_limit, .. } => {
                if let Some(link) = book.links.get_mut(receiver) {
                    link.delivery_limit = link.delivery_limit.max(*delivery_limit);
                } else {
                    // It may reach the entity after the accept that opens the link.
                    let limit = book.sessions.limits.entry(*receiver).or_default();
                    *limit = (*limit).max(*delivery_limit);
                }
            }
            _ => {}
        }
        let pending = Pending {
            entity,
            sub_queue,
            command: command.clone(),
            markers: sent.iter().map(|one| one.marker).collect(),
            asked_at: now,
            reached_at: now,
            order: self.order,
            failures: book.failures,
            is_unseen,
        };
        assert!(self.pending.insert(ticket, pending).is_none(), "ticket {ticket} is used twice");
    }

    /// Records that a command reached its entity.
    pub fn reached(&mut self, ticket: u64, now: Timestamp) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.reached_at = now;
        }
    }

    /// Records an output of the broker.
    pub fn judge(&mut self, released: &Released, store: &FaultStore, now: Timestamp) {
        self.order += 1;
        match released {
            Released::Answer { correlation, result } => {
                let Some(pending) = self.pending.remove(correlation) else {
                    panic!("ticket {correlation} is answered twice: {result:?}");
                };
                match result {
                    Ok(outcome) => {
                        self.acknowledged(*correlation, &pending, outcome, store, now);
                    }
                    Err(reason) if reason.condition() == Condition::InternalError => {
                        let failures = self.books[pending.entity].failures;
                        assert!(
                            failures > pending.failures,
                            "InternalError without a failure: {reason}"
                        );
                        self.unknown(&pending);
                    }
                    Err(reason) => {
                        self.books[pending.entity].updates.remove(correlation);
                        self.refused_in_session(*correlation, &pending);
                        self.refused(&pending, reason, now);
                    }
                }
                self.books[pending.entity].ending.remove(correlation);
                if pending.is_unseen {
                    self.books[pending.entity].hidden_calls -= 1;
                }
            }
            Released::Delivery { receiver, message } => {
                let entity = self.receivers[receiver];
                let Some(link) = self.books[entity].links.get_mut(receiver) else {
                    // A link that the entity closed still gets messages that were removed for it
                    // before.
                    assert!(message.facts.lock.is_none(), "a lock for a link that is closed");
                    let order = self.order;
                    if let Some(known) = self.books[entity].message_at(message.facts.sequence.0) {
                        known.gone_at.get_or_insert(order);
                    }
                    return;
                };
                link.delivered += 1;
                assert!(
                    link.delivered <= link.delivery_limit,
                    "a link was sent more than its credit (RCV-17)"
                );
                let delivery = Delivery {
                    entity,
                    sub_queue: message.facts.sub_queue,
                    mode: link.mode,
                    holder: Some(*receiver),
                    by_number: false,
                };
                self.delivered(&delivery, message, store, now);
            }
            Released::Detached { receiver, reason } | Released::Closed { receiver, reason } => {
                let entity = self.receivers[receiver];
                self.end_link(entity, *receiver);
                if reason.condition() == Condition::SessionLockLost {
                    self.books[entity].sessions.unlock(*receiver);
                    self.books[entity].end_locks_of(*receiver);
                }
            }
        }
    }

    fn end_link(&mut self, entity: usize, receiver: ReceiverId) {
        let book = &mut self.books[entity];
        let Some(link) = book.links.remove(&receiver) else { return };
        if link.mode == ReceiveMode::ReceiveAndDelete {
            // Messages on their way to it are lost (RCV-14).
            book.loss_max += link.delivery_limit - link.delivered;
        }
    }

    fn acknowledged(
        &mut self,
        ticket: u64,
        pending: &Pending,
        outcome: &Outcome,
        store: &FaultStore,
        now: Timestamp,
    ) {
        let order = self.order;
        if matches!(pending.command, Command::InSession { .. }) {
            self.done_in_session(ticket, pending, outcome, store, now);
            return;
        }
        let book = &mut self.books[pending.entity];
        match (&pending.command, outcome) {
            (Command::Send { .. }, Outcome::Accepted(sequence)) => {
                let numbers = [sequence.0];
                accepted(book, pending, &numbers, order, now);
            }
            (Command::SendBatch { .. }, Outcome::AcceptedBatch(sequences)) => {
                let numbers: Vec<u64> = sequences.iter().map(|sequence| sequence.0).collect();
                accepted(book, pending, &numbers, order, now);
            }
            (Command::Commit { parts }, Outcome::Committed(outcomes)) => {
                assert_eq!(parts.len(), outcomes.len(), "one answer for each part");
                let mut numbers = Vec::new();
                for (part, outcome) in parts.iter().zip(outcomes) {
                    match (&part.operation, outcome) {
                        (Operation::Send { .. }, PartOutcome::Accepted(sequence)) => {
                            numbers.push(sequence.0);
                        }
                        (Operation::Settle { token, settlement }, PartOutcome::Done) => {
                            settled(book, *token, settlement, pending.asked_at, order);
                        }
                        (operation, outcome) => {
                            panic!("{operation:?} is answered with {outcome:?}");
                        }
                    }
                }
                accepted(book, pending, &numbers, order, now);
            }
            (Command::CancelScheduled { sequences }, Outcome::Done) => {
                for sequence in sequences {
                    if let Some(message) = book.message_at(sequence.0) {
                        assert!(
                            message.gone_at.is_none(),
                            "{sequence} is cancelled twice (SCH-04)"
                        );
                        message.gone_at = Some(order);
                    }
                }
            }
            (Command::DeleteDeferred { sequence }, Outcome::Done) => {
                if let Some(message) = book.message_at(sequence.0) {
                    assert!(message.gone_at.is_none(), "{sequence} is deleted twice (DEL-09)");
                    message.gone_at = Some(order);
                }
            }
            (Command::Receive { mode, holder, count_max, .. }, Outcome::Received(messages)) => {
                assert!(messages.len() <= *count_max as usize, "more than asked for (RCV-13)");
                assert!(
                    messages.is_sorted_by_key(|message| message.facts.sequence),
                    "a receive is out of order"
                );
                let delivery = Delivery {
                    entity: pending.entity,
                    sub_queue: pending.sub_queue,
                    mode: *mode,
                    holder: *holder,
                    by_number: false,
                };
                for message in messages {
                    self.delivered(&delivery, message, store, now);
                }
            }
            (Command::ReceiveDeferred { mode, sequences, holder }, Outcome::Received(messages)) => {
                assert_eq!(messages.len(), sequences.len(), "all or none (DEF-03)");
                let delivery = Delivery {
                    entity: pending.entity,
                    sub_queue: pending.sub_queue,
                    mode: *mode,
                    holder: *holder,
                    by_number: true,
                };
                for message in messages {
                    self.delivered(&delivery, message, store, now);
                }
            }
            (Command::Settle { token, settlement }, Outcome::Done) => {
                settled(book, *token, settlement, pending.asked_at, order);
            }
            (Command::RenewLock { token }, Outcome::Renewed(until)) => {
                assert!(*until > now, "a lock is renewed into the past (SET-18)");
                if let Some((marker, _)) = book.tokens.get(token)
                    && let Some(message) = book.messages.get_mut(marker)
                    && let Some(lock) = &mut message.lock
                    && lock.token == *token
                {
                    lock.until = *until;
                }
            }
            (
                Command::AcceptSession { .. },
                Outcome::SessionAccepted { session, locked_until, .. },
            ) => {
                self.session_accepted(pending, session, *locked_until, now);
            }
            (Command::PeekSession { session, from, .. }, Outcome::Peeked(messages)) => {
                for message in messages {
                    assert!(message.facts.sequence >= *from, "a peek begins too early (PEK-04)");
                    let marker = peeked(book, pending, message);
                    let sent = book.messages.get(&marker).and_then(|known| known.sent.session);
                    assert_eq!(sent.map(name).as_deref(), Some(&**session), "PEK-07");
                }
            }
            (Command::ListSessions { .. }, Outcome::Sessions(names)) => {
                assert!(names.is_sorted(), "sessions are listed out of order (SES-29)");
            }
            (Command::Peek { from, .. }, Outcome::Peeked(messages)) => {
                for message in messages {
                    assert!(message.facts.sequence >= *from, "a peek begins too early (PEK-04)");
                    peeked(book, pending, message);
                }
            }
            (
                Command::DeleteBatch { count_max, .. }
                | Command::DeleteBatchUnlocked { count_max, .. },
                Outcome::Deleted(count),
            ) => {
                assert!(*count <= u64::from(*count_max), "more deleted than asked for");
                book.loss_max += count;
                book.loss_min += count;
            }
            (Command::Update { description, .. }, Outcome::Done) => {
                book.updated(ticket, (**description).clone());
            }
            (Command::Detach { receiver, .. }, Outcome::Done) => {
                self.end_link(pending.entity, *receiver);
            }
            (Command::Describe, Outcome::Described(_))
            | (
                Command::Attach { .. } | Command::CancelReceive { .. } | Command::Check { .. },
                Outcome::Done,
            )
            | (Command::SetCredit { .. }, Outcome::Granted { .. }) => {}
            (command, outcome) => panic!("{command:?} is answered with {outcome:?}"),
        }
    }

    fn refused(&mut self, pending: &Pending, reason: &Rejection, now: Timestamp) {
        let book = &mut self.books[pending.entity];
        if let Command::Attach { receiver, .. } = &pending.command {
            book.links.remove(receiver);
        }
        if pending.markers.is_empty() {
            let stores = matches!(
                pending.command,
                Command::InSession { command: SessionCommand::SetState { .. }, .. }
            );
            let is_busy = reason.condition() == Condition::ServerBusy;
            assert!(stores || !is_busy, "only what stores something meets ServerBusy");
            return;
        }
        for marker in &pending.markers {
            if let Some(message) = book.messages.get_mut(marker) {
                message.sending = Sending::Refused;
            }
        }
        if reason.condition() == Condition::ServerBusy {
            if reason.detail().contains("progress") {
                let waited = now.since(pending.asked_at);
                assert!(waited >= TimeSpan::from_seconds(5), "busy after {waited} (DESIGN D11)");
            } else if !reason.detail().contains("too many sends wait") {
                assert!(self.was_full, "refused as full by a store with room (QUO-05)");
            }
        }
    }

    /// The entity failed before it answered: the command may have happened or not.
    fn unknown(&mut self, pending: &Pending) {
        let book = &mut self.books[pending.entity];
        for marker in &pending.markers {
            if let Some(message) = book.messages.get_mut(marker) {
                message.sending = Sending::Unknown;
            }
        }
        book.unknown_numbers += pending.markers.len() as u64;
        match &pending.command {
            Command::CancelScheduled { sequences }
            | Command::ReceiveDeferred { sequences, mode: ReceiveMode::ReceiveAndDelete, .. } => {
                for sequence in sequences {
                    if let Some(message) = book.message_at(sequence.0) {
                        message.perhaps_gone = true;
                    }
                }
            }
            Command::DeleteDeferred { sequence } => {
                if let Some(message) = book.message_at(sequence.0) {
                    message.perhaps_gone = true;
                }
            }
            Command::Settle { token, settlement } => {
                perhaps_settled(book, *token, settlement, None)
            }
            Command::Commit { parts } => {
                let with = pending.markers.first().copied();
                for part in parts {
                    if let Operation::Settle { token, settlement } = &part.operation {
                        perhaps_settled(book, *token, settlement, with);
                    }
                }
            }
            Command::Receive { mode: ReceiveMode::ReceiveAndDelete, count_max, .. }
            | Command::DeleteBatch { count_max, .. } => book.loss_max += u64::from(*count_max),
            Command::DeleteBatchUnlocked { count_max, .. } => {
                book.loss_max += u64::from(*count_max);
            }
            Command::InSession { receiver, command } => {
                self.unknown_in_session(pending.entity, *receiver, command);
            }
            // A link may be served until the failure reaches its entity, and is then closed.
            Command::Attach { receiver, mode: ReceiveMode::ReceiveAndDelete }
            | Command::Detach { receiver, .. } => {
                let receiver = *receiver;
                self.end_link(pending.entity, receiver);
            }
            _ => {}
        }
    }

    /// Compares the knowledge of an entity with its stored records.
    pub fn inspect(&mut self, entity: usize, image: &Image, occasion: Occasion, now: Timestamp) {
        let book = &mut self.books[entity];
        let stored = image.description.clone().expect("an open entity has a description");
        book.read_back(stored, |ticket| self.pending.contains_key(&ticket));
        book.sessions.inspect(&image.states, |ticket| self.pending.contains_key(&ticket));
        book.inspect(image, occasion, now);
    }

    /// The entity failed: locks end, and unanswered commands have an unknown outcome.
    pub fn failed(&mut self, entity: usize) {
        self.books[entity].failures += 1;
        // Session locks do not outlive the tree (SES-18).
        self.books[entity].sessions.holds.clear();
    }

    /// The process crashed: no pending command will be answered.
    pub fn died(&mut self) {
        for entity in 0..self.books.len() {
            self.books[entity].failures += 1;
            self.books[entity].sessions.holds.clear();
            let links: Vec<ReceiverId> = self.books[entity].links.keys().copied().collect();
            for receiver in links {
                self.end_link(entity, receiver);
            }
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.unknown(&pending);
        }
        for book in &mut self.books {
            book.hidden_calls = 0;
            book.ending.clear();
        }
    }

    /// The entity was deleted because it was idle; a new one takes its place.
    pub fn replaced(
        &mut self,
        entity: usize,
        id: EntityId,
        description: QueueDescription,
        now: Timestamp,
    ) {
        let failures = self.books[entity].failures + 1;
        let hidden_calls = self.books[entity].hidden_calls;
        let waiting = std::mem::take(&mut self.books[entity].messages);
        let mut book = Book::new(id, description, now);
        book.failures = failures;
        book.hidden_calls = hidden_calls;
        // Commands in transit to the path reach the new entity.
        book.links = std::mem::take(&mut self.books[entity].links);
        book.updates = std::mem::take(&mut self.books[entity].updates);
        book.updates.retain(|ticket, _| self.pending.contains_key(ticket));
        book.ending = std::mem::take(&mut self.books[entity].ending);
        book.max_delivery_count =
            book.max_delivery_count.max(self.books[entity].max_delivery_count);
        book.max_delivery_count_min =
            book.max_delivery_count_min.min(self.books[entity].max_delivery_count_min);
        book.messages =
            waiting.into_iter().filter(|(_, message)| message.sending == Sending::Asked).collect();
        self.books[entity] = book;
    }
}
