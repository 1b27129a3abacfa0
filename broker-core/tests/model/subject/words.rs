//! Conversion between the types of the test and of the machine, in both directions.

use peeklock_core::command::{
    Command, Described, InboundMessage, MachineOutcome, MessageFacts, OperatorCommand, Settlement,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::inspect::{Excerpt, HeadFacts, Inquiry};
use peeklock_core::limits::OVERLAY_BYTES;
use peeklock_core::machine::Machine;
use peeklock_core::machine::queue::Queue;
use peeklock_core::message::{Content, Defect, Overlay, PropertyLimits, Value};
use peeklock_core::store::{Key, Store};
use peeklock_core::transaction::{self, PartOutcome};

use super::{DUPLICATE_KEY, Output, Read, Subject};
use crate::operation::{
    Decision, Draft, Flaw, Inspected, LockName, Operation, Part, Properties, Reply, Report, Seen,
    SeenLock, Turn,
};

impl Subject {
    /// Outputs since the last call, in the types of the oracle.
    pub fn take_outputs(&mut self) -> Turn {
        self.read_contents();
        let mut turn = Turn::default();
        for output in std::mem::take(&mut self.outputs) {
            match output {
                Output::Answer(ticket, result) => {
                    let reply = self.reply(result);
                    let earlier = turn.replies.insert(ticket, reply);
                    assert!(earlier.is_none(), "ticket {ticket} is answered twice");
                }
                Output::Delivery(receiver, facts) => {
                    let seen = self.seen(&facts);
                    turn.deliveries.entry(receiver).or_default().push(seen);
                }
                Output::Detached(receiver, reason) => {
                    turn.detached.entry(receiver).or_default().push(reason.condition());
                }
                Output::IdleElapsed => turn.idle_elapsed = true,
            }
        }
        self.contents.clear();
        turn
    }

    pub(super) fn reply(&mut self, result: Result<MachineOutcome, Rejection>) -> Reply {
        match result {
            Err(rejection) => Reply::Refused(vec![rejection.condition()]),
            Ok(MachineOutcome::Done) => Reply::Done,
            Ok(MachineOutcome::Accepted(sequence)) => Reply::Accepted(sequence.0),
            Ok(MachineOutcome::AcceptedBatch(sequences)) => {
                Reply::AcceptedBatch(sequences.iter().map(|sequence| sequence.0).collect())
            }
            Ok(MachineOutcome::NumbersReserved { returned, .. }) => {
                Reply::AcceptedBatch(returned.iter().map(|sequence| sequence.0).collect())
            }
            Ok(MachineOutcome::Received(all)) => {
                Reply::Received(all.iter().map(|facts| self.seen(facts)).collect())
            }
            Ok(MachineOutcome::Peeked(all)) => {
                Reply::Peeked(all.iter().map(|facts| self.seen(facts)).collect())
            }
            Ok(MachineOutcome::Renewed(until)) => Reply::Renewed(until),
            Ok(MachineOutcome::Granted { unused }) => Reply::Granted(unused),
            Ok(MachineOutcome::Deleted(count)) => Reply::Deleted(count),
            Ok(MachineOutcome::LocksBroken(count)) => Reply::LocksBroken(count),
            Ok(MachineOutcome::Acted(messages)) => Reply::Acted(
                messages.iter().map(|message| (message.sequence.0, message.result)).collect(),
            ),
            Ok(MachineOutcome::Described(described)) => {
                Reply::Described(Box::new(report(*described)))
            }
            Ok(MachineOutcome::Inspected(excerpt)) => match *excerpt {
                Excerpt::Heads { heads, next, .. } => {
                    Reply::Inspected(heads.iter().map(inspected).collect(), next.is_some())
                }
                other => panic!("a list of messages was answered with {other:?}"),
            },
            Ok(MachineOutcome::Committed(parts)) => Reply::Committed(
                parts
                    .into_iter()
                    .map(|part| match part {
                        PartOutcome::Done => Reply::Done,
                        PartOutcome::Accepted(sequence) => Reply::Accepted(sequence.0),
                        PartOutcome::AcceptedBatch(sequences) => {
                            Reply::AcceptedBatch(sequences.iter().map(|one| one.0).collect())
                        }
                        PartOutcome::Renewed(until) => Reply::Renewed(until),
                        PartOutcome::Pending(_) => panic!("nothing is sent to another entity"),
                    })
                    .collect(),
            ),
            Ok(
                other @ (MachineOutcome::SessionAccepted { .. }
                | MachineOutcome::SessionState(_)
                | MachineOutcome::Sessions(_)
                | MachineOutcome::TopicDescribed(_)
                | MachineOutcome::SubscriptionDescribed(_)
                | MachineOutcome::Rules(_)
                | MachineOutcome::Explained(_)
                | MachineOutcome::Admitted(_)
                | MachineOutcome::TakenOver(_)),
            ) => panic!("a queue without sessions answers {other:?}"),
        }
    }

    pub(super) fn seen(&mut self, facts: &MessageFacts) -> Seen {
        let read = self.contents.get(&(facts.sequence.0, facts.overlay_count));
        let Some(read) = read else {
            panic!("the content of a message that is shown was never stored: {facts:?}");
        };
        let mut seen = self.shown(facts, read);
        seen.lock = facts.lock.map(|lock| {
            assert_eq!(lock.token.sequence(), facts.sequence, "a token names its message");
            assert!(!self.locks_seen.contains(&lock.token), "a lock token is used again (SET-15)");
            self.locks_seen.push(lock.token);
            SeenLock { name: LockName(self.locks_seen.len() as u64), until: lock.until }
        });
        seen
    }

    /// Facts and content of a message in the types of the oracle, without its lock.
    pub(super) fn shown(&self, facts: &MessageFacts, read: &Read) -> Seen {
        let pretended = self.pretended.get(&read.marker).copied().unwrap_or(0);
        let records = u32::from(facts.overlay_count) * OVERLAY_BYTES;
        let stored = read.bytes + records + pretended;
        assert_eq!(facts.size, stored, "the size is not what is stored (MSG-25, SET-41)");
        Seen {
            marker: read.marker,
            sequence: facts.sequence.0,
            enqueued_sequence: facts.enqueued_sequence.0,
            enqueued_at: facts.enqueued_at,
            expires_at: facts.expires_at.filter(|at| !at.is_never()),
            time_to_live: facts.time_to_live.filter(|span| !span.is_unlimited()),
            delivery_count: facts.delivery_count,
            shown_count: facts.shown_delivery_count(),
            state: facts.state,
            delayed_until: facts.delayed_until,
            sub_queue: facts.sub_queue,
            lock: None,
            size: facts.size,
            set: read.set.clone(),
        }
    }

    /// Gives a lock the name that the oracle uses.
    pub fn name_lock(&mut self, seen: LockName, oracle: LockName) {
        let index = usize::try_from(seen.0 - 1).unwrap_or(usize::MAX);
        self.tokens.insert(oracle, self.locks_seen[index]);
    }

    /// Reads the contents of all reported messages that the store has by now.
    pub(super) fn read_contents(&mut self) {
        let mut wanted = Vec::new();
        for output in &self.outputs {
            match output {
                Output::Delivery(_, facts) => wanted.push(*facts),
                Output::Answer(
                    _,
                    Ok(MachineOutcome::Received(all) | MachineOutcome::Peeked(all)),
                ) => {
                    wanted.extend(all);
                }
                Output::Answer(..) | Output::Detached(..) | Output::IdleElapsed => {}
            }
        }
        for facts in wanted {
            let key = (facts.sequence.0, facts.overlay_count);
            if !self.contents.contains_key(&key)
                && let Some(read) = self.read(&self.machine, &facts)
            {
                self.contents.insert(key, read);
            }
        }
    }

    pub(super) fn read(&self, machine: &Queue, facts: &MessageFacts) -> Option<Read> {
        let load = |key: Key| {
            let mut found = Vec::new();
            self.store.pin(&[key], &mut found);
            found.pop()??.loaded().cloned()
        };
        let content = load(machine.content_key(facts.sequence))?;
        let mut bytes = u32::try_from(content.len()).expect("contents are small");
        let mut message = Content::parse(content).expect("content is kept as it was").decode();
        let message = message.as_mut().expect("content has legal properties");
        let marker = std::str::from_utf8(message.body.as_bytes()).ok()?.parse().ok()?;
        assert_eq!(
            self.sent.get(&marker),
            Some(&*message),
            "a message is not what was sent (MSG-01)"
        );
        for index in 0..facts.overlay_count {
            let overlay = load(machine.overlay_key(facts.sequence, index))?;
            bytes += u32::try_from(overlay.len()).expect("overlays are small");
            message.apply_overlay(&Overlay::from_bytes(overlay));
        }
        let set = message
            .application_properties
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) => (key.clone(), text.clone()),
                other => panic!("{key} has become {other:?}"),
            })
            .collect();
        Some(Read { marker, set, bytes })
    }

    pub(super) fn command(&mut self, operation: &Operation) -> Command {
        match operation {
            Operation::Send(draft) => Command::Send { message: self.inbound(draft) },
            Operation::SendBatch(drafts) => Command::SendBatch {
                messages: drafts.iter().map(|draft| self.inbound(draft)).collect(),
            },
            Operation::CancelScheduled(sequences) => {
                Command::CancelScheduled { sequences: numbers(sequences) }
            }
            Operation::Receive { mode, count_max, bytes_max, wait, holder } => Command::Receive {
                mode: *mode,
                count_max: *count_max,
                bytes_max: *bytes_max,
                wait: *wait,
                holder: holder.map(ReceiverId),
            },
            Operation::CancelReceive { call } => Command::CancelReceive { call: Ticket(*call) },
            Operation::ReceiveDeferred { mode, sequences, holder } => Command::ReceiveDeferred {
                mode: *mode,
                sequences: numbers(sequences),
                holder: holder.map(ReceiverId),
            },
            Operation::Attach { receiver, mode } => {
                Command::Attach { receiver: ReceiverId(*receiver), mode: *mode }
            }
            Operation::Grant { receiver, delivery_limit, byte_limit, drain } => {
                Command::SetCredit {
                    receiver: ReceiverId(*receiver),
                    delivery_limit: *delivery_limit,
                    byte_limit: *byte_limit,
                    drain: *drain,
                }
            }
            Operation::Detach { receiver, end } => {
                Command::Detach { receiver: ReceiverId(*receiver), end: *end }
            }
            Operation::Settle { lock, settlement } => Command::Settle {
                token: self.token(*lock),
                settlement: self.settlement(settlement),
            },
            Operation::RenewLock { lock } => Command::RenewLock { token: self.token(*lock) },
            Operation::Peek { from, count_max } => {
                Command::Peek { from: SequenceNumber(*from), count_max: *count_max }
            }
            Operation::DeleteBatch { count_max, enqueued_before } => {
                Command::DeleteBatch { count_max: *count_max, enqueued_before: *enqueued_before }
            }
            Operation::DeleteDeferred { sequence } => {
                Command::DeleteDeferred { sequence: SequenceNumber(*sequence) }
            }
            Operation::BreakLocks { sequences, counts } => {
                let (sequences, counts) = (numbers(sequences), *counts);
                Command::OfOperator(OperatorCommand::BreakLocks { sequences, counts })
            }
            Operation::Act(act) => Command::OfOperator(OperatorCommand::Act(act.clone())),
            Operation::ForgetJob(job) => Command::OfOperator(OperatorCommand::ForgetJob(*job)),
            Operation::Update { description, read_at } => {
                Command::Update { description: description.clone(), read_at: *read_at }
            }
            Operation::Describe => Command::Describe,
            Operation::Inspect(query) => Command::Inspect(Inquiry::Heads((**query).clone())),
            Operation::Check(part) => Command::Check { operation: self.part(part).operation },
            Operation::Commit(parts) => {
                Command::Commit { parts: parts.iter().map(|part| self.part(part)).collect() }
            }
        }
    }

    /// A part of a transaction; the test uses no other operations in one.
    fn part(&mut self, part: &Part) -> transaction::Part {
        let operation = transaction::Operation::of(self.command(&part.operation));
        transaction::Part {
            member: None,
            sub_queue: part.sub_queue,
            operation: operation.expect("an operation that can be part of a transaction"),
            numbers: Vec::new(),
        }
    }

    pub(super) fn inbound(&mut self, draft: &Draft) -> InboundMessage {
        let message = draft.message();
        let content = message.encode();
        self.sent.insert(draft.marker, message);
        let mut envelope = content.envelope(&PropertyLimits::default(), &DUPLICATE_KEY);
        let pretended = draft.pretended_bytes + draft.pretended_header_bytes;
        self.pretended.insert(draft.marker, pretended);
        envelope.size += pretended;
        envelope.header_size += draft.pretended_header_bytes;
        envelope.defect = match draft.flaw {
            None => None,
            Some(Flaw::Size) => {
                Some(Defect::Size(Rejection::message_size_exceeded("message header", 2, 1)))
            }
            Some(Flaw::Property(condition)) => {
                Some(Defect::Property(Rejection::new(condition, "made for the test")))
            }
        };
        InboundMessage { content, envelope }
    }

    /// The token of a lock, or an unknown one if the oracle has no such lock.
    pub(super) fn token(&self, lock: LockName) -> LockToken {
        self.tokens
            .get(&lock)
            .copied()
            .unwrap_or_else(|| LockToken::new(SequenceNumber(lock.0 % 8), lock.0))
    }

    pub(super) fn settlement(&self, decision: &Decision) -> Settlement {
        let overlay =
            |properties: &Option<Properties>| properties.as_ref().map(Properties::overlay);
        match decision {
            Decision::Complete => Settlement::Complete,
            Decision::Abandon(properties, delay) => {
                Settlement::Abandon { properties: overlay(properties), delay: *delay }
            }
            Decision::Defer(properties) => Settlement::Defer { properties: overlay(properties) },
            Decision::DeadLetter(properties) => {
                Settlement::DeadLetter { properties: overlay(properties) }
            }
            Decision::Release => Settlement::Release,
        }
    }
}

fn inspected(head: &HeadFacts<MessageFacts>) -> Inspected {
    assert_eq!(head.message.lock, None, "an inspection shows a lock token (SET-24)");
    Inspected {
        sequence: head.message.sequence.0,
        state: head.state,
        expires_at: head.expires_at,
        is_expired: head.is_expired,
        lock: head.lock.clone(),
    }
}

pub(super) fn report(described: Described) -> Report {
    Report {
        description: described.description,
        counts: described.counts,
        size_bytes: described.size_bytes,
        created_at: described.created_at,
        updated_at: described.updated_at,
        accessed_at: described.accessed_at,
    }
}

fn numbers(sequences: &[u64]) -> Vec<SequenceNumber> {
    sequences.iter().copied().map(SequenceNumber).collect()
}

/// Whether a `Done` promises a durable change.
pub(super) const fn rests_on_change(operation: &Operation) -> bool {
    match operation {
        Operation::CancelScheduled(_)
        | Operation::DeleteDeferred { .. }
        | Operation::ForgetJob(_)
        | Operation::Update { .. }
        | Operation::Settle {
            settlement:
                Decision::Complete
                | Decision::Abandon(..)
                | Decision::Defer(_)
                | Decision::DeadLetter(_),
            ..
        } => true,
        Operation::Send(_)
        | Operation::SendBatch(_)
        | Operation::Receive { .. }
        | Operation::CancelReceive { .. }
        | Operation::ReceiveDeferred { .. }
        | Operation::Attach { .. }
        | Operation::Grant { .. }
        | Operation::Detach { .. }
        | Operation::Settle { settlement: Decision::Release, .. }
        | Operation::RenewLock { .. }
        | Operation::Peek { .. }
        | Operation::DeleteBatch { .. }
        | Operation::BreakLocks { .. }
        | Operation::Act(_)
        | Operation::Check(_)
        | Operation::Commit(_)
        | Operation::Inspect(_)
        | Operation::Describe => false,
    }
}
