//! What a command costs: known before it is carried out, so that it can be paid for first.
//!
//! This is the only place that says so. A transport counts by it what it reads, a handle takes a permit
//! by it, and the shell asks the store for room by it (DESIGN D6, D11).

use bytes::Bytes;

use super::{Command, InboundMessage, RuleCommand, SessionCommand, Settlement, TopicCommand};
use crate::ids::ReceiverId;
use crate::limits::PEEK_COUNT_LARGEST;
use crate::rule::RuleDescription;
use crate::transaction::Operation;

/// What a record needs beside keys, values and contents; part of every reservation.
const RECORD_OVERHEAD_BYTES: u64 = 256;
/// Maximum bytes of the name of a session, which the record of its state repeats.
const SESSION_NAME_BYTES_MAX: u64 = 4 * 128;

/// What is in memory of a message that was looked at before its content is loaded: what the broker says of it, and
/// where its content is.
const PEEKED_BYTES: u64 = 384;

/// What a command costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// How many single operations it is, at least one: each message of a list is one, each part of a
    /// transaction, each number.
    pub count: u64,
    /// The bytes of messages, properties, states and rules that came with it, and of what it is answered with before
    /// anybody has room for that. Names and descriptions are not counted: they are bounded, and every operation has a
    /// least cost.
    pub bytes: u64,
    /// What it stores of any size; none for a command that is carried out however full the store is.
    pub stored: Option<Stored>,
}

/// What a command stores of any size, for which its entity asks the store first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The bytes of contents, and of the records beside them.
    pub bytes: u64,
    /// How many messages are published, if the entity is a topic: each needs a record in every subscription
    /// that gets a copy.
    pub published: u64,
}

impl Stored {
    /// Both.
    const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            published: self.published.saturating_add(other.published),
        }
    }
}

impl Cost {
    /// One operation that brings nothing with it.
    const PLAIN: Self = Self::of_bytes(0);

    /// One operation that brings so many bytes with it and stores nothing of any size.
    const fn of_bytes(bytes: u64) -> Self {
        Self { count: 1, bytes, stored: None }
    }

    /// So many operations that bring nothing with them.
    const fn of_count(count: usize) -> Self {
        Self { count: if count == 0 { 1 } else { count as u64 }, ..Self::PLAIN }
    }

    /// The same, if so many bytes more are stored.
    fn and_stored(self, bytes: usize) -> Self {
        let more =
            |stored: Stored| Stored { bytes: stored.bytes.saturating_add(bytes as u64), ..stored };
        Self { stored: self.stored.map(more), ..self }
    }

    /// Messages of these sizes, each stored with so many records beside its content.
    fn of_messages(
        sizes: impl Iterator<Item = u64>,
        records_each: u64,
        publishes: Publishes,
    ) -> Self {
        let (mut count, mut bytes) = (0u64, 0u64);
        for size in sizes {
            count += 1;
            bytes = bytes.saturating_add(size);
        }
        let records = count.saturating_mul(records_each).saturating_mul(RECORD_OVERHEAD_BYTES);
        let published = match publishes {
            Publishes::Yes => count,
            Publishes::No => 0,
        };
        let stored = Stored { bytes: bytes.saturating_add(records), published };
        Self { count: count.max(1), bytes, stored: Some(stored) }
    }
}

/// Whether a topic makes copies of what it is sent so.
#[derive(Clone, Copy)]
enum Publishes {
    Yes,
    No,
}

impl Command {
    /// What it costs. Names every command, so that a new one has to say it.
    #[must_use]
    pub fn cost(&self) -> Cost {
        match self {
            Self::Send { message } => sending(std::slice::from_ref(message), None),
            Self::SendBatch { messages } => sending(messages, None),
            Self::SendVia { messages, destination } => sending(messages, Some(destination)),
            // Each is remembered beside its content.
            Self::TransferFromPeer { messages, .. } => {
                let sizes = messages.iter().map(|arrival| size(&arrival.message));
                Cost::of_messages(sizes, 2, Publishes::Yes)
            }
            // What is stored by these is stored already, and only moves.
            Self::TransferIn { messages, .. } => Cost {
                bytes: messages.iter().map(|arrival| size(&arrival.message)).sum(),
                ..Cost::of_count(messages.len())
            },
            Self::TransferOut { departures, .. } => Cost::of_count(departures.len()),
            Self::CancelScheduled { sequences } | Self::ReceiveDeferred { sequences, .. } => {
                Cost::of_count(sequences.len())
            }
            Self::InSession { receiver: _, command } => command.cost(),
            Self::Settle { token: _, settlement } => Cost::of_bytes(settlement.bytes()),
            // Numbers reserved for scheduled messages are stored.
            Self::Check { operation } => {
                let stored = operation.messages().iter().any(is_scheduled);
                let stored =
                    stored.then_some(Stored { bytes: RECORD_OVERHEAD_BYTES, published: 0 });
                Cost { stored, ..Cost::of_bytes(operation.bytes()) }
            }
            Self::Commit { parts } => {
                let operations = parts.iter().map(|part| &part.operation);
                // Messages are sent to the coordinator only; a member may store states of its sessions.
                let stored = parts.iter().filter(|part| {
                    part.member.is_none()
                        || matches!(part.operation, Operation::SetSessionState { .. })
                });
                Cost {
                    count: operations.clone().map(Operation::count).sum::<u64>().max(1),
                    bytes: operations.map(Operation::bytes).sum(),
                    stored: stored
                        .filter_map(|part| stored_by(&part.operation))
                        .reduce(Stored::and),
                }
            }
            Self::OfTopic(command) => command.cost(),
            Self::Peek { count_max, .. } | Self::PeekSession { count_max, .. } => {
                Cost::of_bytes(peeked_bytes(*count_max))
            }
            Self::Receive { .. }
            | Self::CancelReceive { .. }
            | Self::Attach { .. }
            | Self::Grant { .. }
            | Self::Detach { .. }
            | Self::RenewLock { .. }
            | Self::AcceptSession { .. }
            | Self::ListSessions { .. }
            | Self::DeleteBatchUnlocked { .. }
            | Self::DeleteBatch { .. }
            | Self::DeleteDeferred { .. }
            | Self::Update { .. }
            | Self::UpdateSubscription { .. }
            | Self::Describe => Cost::PLAIN,
        }
    }

    /// Whether nobody but the broker asks it: it names records of others, or is one step of several. Names every
    /// command: a new one that a client must not ask is not a client's by default.
    #[must_use]
    pub const fn is_the_brokers_own(&self) -> bool {
        match self {
            Self::TransferIn { .. } | Self::TransferOut { .. } => true,
            Self::OfTopic(command) => match command {
                TopicCommand::CreateSubscription { .. }
                | TopicCommand::RemoveSubscription { .. } => true,
                TopicCommand::Update { .. } => false,
                TopicCommand::InSubscription { subscription: _, command } => match command {
                    RuleCommand::Create(_)
                    | RuleCommand::Update(_)
                    | RuleCommand::Delete(_)
                    | RuleCommand::Get(_)
                    | RuleCommand::List { .. }
                    | RuleCommand::Explain(_) => false,
                },
            },
            Self::InSession { receiver: _, command } => match command {
                SessionCommand::Attach
                | SessionCommand::Receive { .. }
                | SessionCommand::ReceiveDeferred { .. }
                | SessionCommand::Renew
                | SessionCommand::GetState
                | SessionCommand::SetState { .. }
                | SessionCommand::DeleteBatch { .. } => false,
            },
            Self::Send { .. }
            | Self::SendBatch { .. }
            | Self::SendVia { .. }
            | Self::TransferFromPeer { .. }
            | Self::CancelScheduled { .. }
            | Self::Receive { .. }
            | Self::CancelReceive { .. }
            | Self::ReceiveDeferred { .. }
            | Self::Attach { .. }
            | Self::Grant { .. }
            | Self::Detach { .. }
            | Self::Settle { .. }
            | Self::RenewLock { .. }
            | Self::Peek { .. }
            | Self::AcceptSession { .. }
            | Self::PeekSession { .. }
            | Self::ListSessions { .. }
            | Self::DeleteBatchUnlocked { .. }
            | Self::DeleteBatch { .. }
            | Self::DeleteDeferred { .. }
            | Self::Update { .. }
            | Self::UpdateSubscription { .. }
            | Self::Check { .. }
            | Self::Commit { .. }
            | Self::Describe => false,
        }
    }

    /// The holder of a session whose state it sets.
    pub const fn sets_state_of(&self) -> Option<ReceiverId> {
        match self {
            Self::InSession { receiver, command: SessionCommand::SetState { .. } } => {
                Some(*receiver)
            }
            _ => None,
        }
    }
}

impl SessionCommand {
    fn cost(&self) -> Cost {
        match self {
            Self::SetState { state: Some(state) } => {
                let stored = Some(stored_state(state));
                Cost { stored, ..Cost::of_bytes(state.len() as u64) }
            }
            Self::ReceiveDeferred { sequences } => Cost::of_count(sequences.len()),
            // A state that is cleared makes room.
            Self::SetState { state: None }
            | Self::Attach
            | Self::Receive { .. }
            | Self::Renew
            | Self::GetState
            | Self::DeleteBatch { .. } => Cost::PLAIN,
        }
    }
}

impl TopicCommand {
    fn cost(&self) -> Cost {
        match self {
            Self::CreateSubscription { rules, .. } => {
                Cost { bytes: rules_bytes(rules), ..Cost::of_count(rules.len()) }
            }
            Self::InSubscription { subscription: _, command } => command.cost(),
            Self::Update { .. } | Self::RemoveSubscription { .. } => Cost::PLAIN,
        }
    }
}

impl RuleCommand {
    fn cost(&self) -> Cost {
        match self {
            Self::Explain(message) => Cost::of_bytes(size(message)),
            // As they were sent: how large they may be is looked at when they are carried out.
            Self::Create(rule) | Self::Update(rule) => Cost::of_bytes(rule_bytes(rule)),
            Self::Delete(_) | Self::Get(_) | Self::List { .. } => Cost::PLAIN,
        }
    }
}

/// What the answer to a peek for so many messages takes in memory before there is room for their contents.
#[must_use]
pub fn peeked_bytes(count_max: u32) -> u64 {
    PEEKED_BYTES * u64::from(count_max.min(PEEK_COUNT_LARGEST.into()))
}

/// The bytes that rules bring, in memory.
#[must_use]
pub fn rules_bytes(rules: &[RuleDescription]) -> u64 {
    rules.iter().map(rule_bytes).fold(0, u64::saturating_add)
}

fn rule_bytes(rule: &RuleDescription) -> u64 {
    rule.memory_bytes() as u64
}

impl Settlement {
    /// The bytes of the properties that it sets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Abandon { properties, delay: _ }
            | Self::Defer { properties }
            | Self::DeadLetter { properties } => {
                properties.as_ref().map_or(0, |overlay| u64::from(overlay.size_bytes()))
            }
            Self::Complete | Self::Release => 0,
        }
    }
}

/// Messages that are sent. Those that are only on their way wait in an outbox, each with the path of where it goes,
/// and are published elsewhere.
fn sending(messages: &[InboundMessage], destination: Option<&str>) -> Cost {
    let sizes = messages.iter().map(size);
    match destination {
        None => Cost::of_messages(sizes, 1, Publishes::Yes),
        Some(path) => Cost::of_messages(sizes, 1, Publishes::No)
            .and_stored(path.len().saturating_mul(messages.len())),
    }
}

/// Upper bound on the stored bytes of a session state.
const fn stored_state(state: &Bytes) -> Stored {
    let bytes = state.len() as u64 + SESSION_NAME_BYTES_MAX + RECORD_OVERHEAD_BYTES;
    Stored { bytes, published: 0 }
}

/// Stored bytes of an operation of a transaction that sends messages or sets a state.
fn stored_by(operation: &Operation) -> Option<Stored> {
    match operation {
        Operation::Send { message } => sending(std::slice::from_ref(message), None).stored,
        Operation::SendBatch { messages } => sending(messages, None).stored,
        Operation::SendVia { destination, messages } => sending(messages, Some(destination)).stored,
        Operation::SetSessionState { state: Some(state), .. } => Some(stored_state(state)),
        Operation::Settle { .. }
        | Operation::RenewLock { .. }
        | Operation::CancelScheduled { .. }
        | Operation::SetSessionState { state: None, .. } => None,
    }
}

/// Whether a message is to be enqueued at an instant that it names.
const fn is_scheduled(message: &InboundMessage) -> bool {
    message.envelope.scheduled_enqueue_time.is_some()
}

fn size(message: &InboundMessage) -> u64 {
    u64::from(message.envelope.size)
}

#[cfg(test)]
mod tests;
