//! Commands of clients to a queue that requires sessions: usually as holders, sometimes without a
//! session.

use bytes::Bytes;
use peeklock_core::command::{SessionCommand, SessionFilter};
use peeklock_core::condition::Condition;

use super::*;

/// Few, so that many clients want the same.
const SESSIONS: u64 = 5;
const HELD_MAX: usize = 6;

/// A session that a client waits for, or holds to its knowledge.
pub(super) struct Hold {
    receiver: ReceiverId,
    delivery_limit: u64,
    byte_limit: u64,
    is_granted: bool,
    /// The entity has closed the link and left the session to its holder.
    is_closed: bool,
    /// A state that was set without an answer: the next one waits for it.
    setting: Option<Ticket>,
}

/// The id of a session.
pub fn name(session: u64) -> String {
    format!("session {session}")
}

pub(super) fn draw(random: &mut Random) -> u64 {
    // Some sessions are busier than others.
    random.below(SESSIONS).min(random.below(SESSIONS))
}

impl Clients {
    /// Draws a command for an entity that requires sessions.
    pub(super) fn ask_by_session(
        &mut self,
        entity: usize,
        description: &QueueDescription,
        now: Timestamp,
        random: &mut Random,
    ) -> DrawnCommand {
        let main = SubQueue::Main;
        let mut sent = Vec::new();
        let (sub_queue, command) = match random.below(100) {
            0..=18 => {
                let (message, note) = self.message(description, now, random);
                sent.push(note);
                (main, Command::Send { message })
            }
            19..=24 => {
                let mut messages = Vec::new();
                for _ in 0..random.between(1, 5) {
                    let (message, note) = self.message(description, now, random);
                    sent.push(note);
                    messages.push(message);
                }
                (main, Command::SendBatch { messages })
            }
            25..=33 => (main, self.accept(entity, random)),
            34..=59 => (main, self.in_session(entity, random)),
            60..=80 => self.settle(entity, random),
            81..=83 => self.give_up(entity, random),
            84 => (main, self.peek_session(random)),
            85 => {
                let count_max = u32::try_from(random.between(1, 3)).unwrap_or(1);
                (main, Command::DeleteBatchUnlocked { count_max, enqueued_before: None })
            }
            86..=90 => (SubQueue::DeadLetter, self.receive(entity, random)),
            91..=92 => {
                let call = random.pick(&self.memories[entity].calls).copied();
                (main, Command::CancelReceive { call: call.unwrap_or(Ticket(1)) })
            }
            93 => (main, self.update(description, random)),
            94 => {
                // Commands that are invalid in such a queue, or in one without sessions.
                match random.below(3) {
                    0 => (main, self.receive(entity, random)),
                    1 => (SubQueue::DeadLetter, self.accept(entity, random)),
                    _ => {
                        let (of, token) = self.lock(entity, random);
                        (of, Command::RenewLock { token })
                    }
                }
            }
            _ => (main, Command::Describe),
        };
        DrawnCommand { sub_queue, command, sent }
    }

    fn accept(&mut self, entity: usize, random: &mut Random) -> Command {
        let receiver = self.fresh_receiver();
        let mode = mode(random);
        let hold = Hold {
            receiver,
            delivery_limit: 0,
            byte_limit: 0,
            is_granted: false,
            is_closed: false,
            setting: None,
        };
        let holds = &mut self.memories[entity].holds;
        if holds.len() == HELD_MAX {
            // The client no longer renews or closes it.
            holds.remove(0);
        }
        holds.push(hold);
        let session = random.one_in(2).then(|| name(draw(random)).into());
        let wait = if random.one_in(2) { 0 } else { random.between(1, 60_000) };
        let wait = TimeSpan::from_ms(i64::try_from(wait).unwrap_or(0));
        Command::AcceptSession { session, receiver, mode, wait }
    }

    /// A command for holders, usually sent by one.
    fn in_session(&mut self, entity: usize, random: &mut Random) -> Command {
        let next_state = self.next_marker;
        let memory = &mut self.memories[entity];
        let granted: Vec<usize> = (0..memory.holds.len())
            .filter(|place| memory.holds[*place].is_granted || random.one_in(20))
            .collect();
        let Some(place) = random.pick(&granted).copied() else {
            return self.accept(entity, random);
        };
        let deferred: Vec<SequenceNumber> = memory
            .deferred
            .iter()
            .filter(|(of, _)| *of == SubQueue::Main)
            .map(|one| one.1)
            .collect();
        let hold = &mut memory.holds[place];
        let receiver = hold.receiver;
        let in_session = |command| Command::InSession { receiver, command };
        if hold.is_closed && random.one_in(2) {
            (hold.is_closed, hold.delivery_limit, hold.byte_limit) = (false, 0, 0);
            return in_session(SessionCommand::Attach);
        }
        match random.below(20) {
            0..=5 => {
                let wait = if random.one_in(2) { 0 } else { random.between(1, 30_000) };
                in_session(SessionCommand::Receive {
                    count_max: u32::try_from(random.between(1, 4)).unwrap_or(1),
                    bytes_max: if random.one_in(4) { 150 } else { 1 << 20 },
                    wait: TimeSpan::from_ms(i64::try_from(wait).unwrap_or(0)),
                })
            }
            6..=10 => {
                hold.delivery_limit += random.below(4);
                hold.byte_limit += random.below(3_000);
                Command::SetCredit {
                    receiver,
                    delivery_limit: hold.delivery_limit,
                    byte_limit: hold.byte_limit,
                    drain: if random.one_in(3) { Drain::Yes } else { Drain::No },
                }
            }
            11..=13 => in_session(SessionCommand::Renew),
            14 | 15 if hold.setting.is_none() => {
                hold.setting = Some(Ticket(0));
                let state = match random.below(4) {
                    0 => None,
                    1 => Some(Bytes::from(vec![b'x'; random.index(4_000)])),
                    _ => Some(Bytes::from(format!("state after message {next_state}"))),
                };
                in_session(SessionCommand::SetState { state })
            }
            14..=16 => in_session(SessionCommand::GetState),
            17 => in_session(SessionCommand::DeleteBatch { count_max: 1, enqueued_before: None }),
            _ => {
                let sequence = random.pick(&deferred).copied();
                let sequences = vec![sequence.unwrap_or(SequenceNumber(random.between(1, 20)))];
                in_session(SessionCommand::ReceiveDeferred { sequences })
            }
        }
    }

    /// A holder closes its session, or disconnects.
    fn give_up(&mut self, entity: usize, random: &mut Random) -> (SubQueue, Command) {
        let holds = &mut self.memories[entity].holds;
        if holds.is_empty() {
            return (SubQueue::Main, Command::Describe);
        }
        let receiver = holds.remove(random.index(holds.len())).receiver;
        (SubQueue::Main, Command::Detach { receiver, end: link_end(random) })
    }

    fn peek_session(&self, random: &mut Random) -> Command {
        if random.one_in(3) {
            return Command::ListSessions {
                which: SessionFilter::All,
                after: None,
                skip: 0,
                top: 100,
            };
        }
        let from = SequenceNumber(random.below(30));
        Command::PeekSession { session: name(draw(random)).into(), from, count_max: 20 }
    }

    /// Records the command that sets a state.
    pub fn note_session_command(&mut self, entity: usize, ticket: Ticket, receiver: ReceiverId) {
        for hold in &mut self.memories[entity].holds {
            if hold.receiver == receiver && hold.setting == Some(Ticket(0)) {
                hold.setting = Some(ticket);
            }
        }
    }

    /// Records outputs of the broker about sessions.
    pub(super) fn note_session_output(&mut self, entity: usize, released: &Released) {
        let holds = &mut self.memories[entity].holds;
        match released {
            Released::Answer { result: Ok(Outcome::SessionAccepted { receiver, .. }), .. } => {
                for hold in holds.iter_mut().filter(|hold| hold.receiver == *receiver) {
                    hold.is_granted = true;
                }
            }
            Released::Answer { correlation, .. } => {
                for hold in holds {
                    hold.setting = hold.setting.filter(|ticket| ticket.0 != *correlation);
                }
            }
            Released::Detached { receiver, reason } | Released::Closed { receiver, reason } => {
                if reason.condition() == Condition::SessionLockLost {
                    holds.retain(|hold| hold.receiver != *receiver);
                }
                for hold in holds.iter_mut().filter(|hold| hold.receiver == *receiver) {
                    hold.is_closed = true;
                }
            }
            Released::Delivery { .. } => {}
        }
    }
}
