//! Cost of a command, known before the command runs.
//!
//! A handle takes a permit for the cost of its commands, and the shell asks the store for room by it
//! (DESIGN D6, D11). Transports compute the price of their input themselves, before it is decoded.

use bytes::Bytes;

use super::{
    Act, Command, Deed, InboundMessage, OperatorCommand, RuleCommand, SessionCommand, Settlement,
    TopicCommand,
};
use crate::ids::ReceiverId;
use crate::inspect::{HeadQuery, Inquiry, LockQuery, ROW_COUNT_MAX, SessionQuery, TimelineQuery};
use crate::limits::PEEK_COUNT_LARGEST;
use crate::rule::RuleDescription;
use crate::transaction::Operation;

/// Overhead of a record in addition to key, value and content; part of every reservation.
const RECORD_OVERHEAD_BYTES: u64 = 256;
/// Maximum bytes of a session name, which the record of the session's state repeats.
const SESSION_NAME_BYTES_MAX: u64 = 4 * 128;

/// Memory for each peeked message before its content is loaded: its facts, and the reference to its
/// content.
const PEEKED_BYTES: u64 = 384;
/// Memory for the result of a message that an operator acts on.
const ACTED_BYTES: u64 = 16;
/// Memory for each row of an excerpt, without the facts of a message.
const INSPECTED_ROW_BYTES: u64 = 256;

/// Cost of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Number of single operations, at least 1: each message of a batch, each number of a list and
    /// each part of a transaction counts as one.
    pub count: u64,
    /// Bytes of the messages, properties, states and rules in the command, and of the part of its
    /// answer that is built before the answer has a permit. Names and descriptions do not count:
    /// they are bounded, and every operation has a minimum cost.
    pub bytes: u64,
    /// Storage for data of variable size; `None` for a command that also runs when the store is
    /// full.
    pub stored: Option<Stored>,
}

/// Storage that a command needs for data of variable size. The entity reserves it in the store
/// first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Bytes of contents and of their records.
    pub bytes: u64,
    /// Number of messages that a topic would publish. Each needs a record in every subscription
    /// that gets a copy.
    pub published: u64,
}

impl Stored {
    /// Returns the sum of both.
    const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            published: self.published.saturating_add(other.published),
        }
    }
}

impl Cost {
    /// Cost of a single operation without data.
    const PLAIN: Self = Self::of_bytes(0);

    /// Cost of a single operation that brings `bytes` bytes and stores no data of variable size.
    const fn of_bytes(bytes: u64) -> Self {
        Self { count: 1, bytes, stored: None }
    }

    /// Cost of `count` operations without data.
    const fn of_count(count: usize) -> Self {
        Self { count: if count == 0 { 1 } else { count as u64 }, ..Self::PLAIN }
    }

    /// Adds `bytes` to the stored bytes, if the command stores anything.
    fn with_stored(self, bytes: usize) -> Self {
        let more =
            |stored: Stored| Stored { bytes: stored.bytes.saturating_add(bytes as u64), ..stored };
        Self { stored: self.stored.map(more), ..self }
    }

    /// Cost of messages of these sizes, each stored with `records_each` records next to its
    /// content.
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

/// Whether a topic makes copies of the messages.
#[derive(Clone, Copy)]
enum Publishes {
    Yes,
    No,
}

impl Command {
    /// Returns the cost. The match names every command, so that a new one must define its cost.
    #[must_use]
    pub fn cost(&self) -> Cost {
        match self {
            Self::Send { message } => send_cost(std::slice::from_ref(message), None),
            Self::SendBatch { messages } => send_cost(messages, None),
            Self::SendVia { messages, destination } => send_cost(messages, Some(destination)),
            // A second record remembers each message for repetitions.
            Self::TransferFromPeer { messages, .. } => {
                let sizes = messages.iter().map(|arrival| size(&arrival.message));
                Cost::of_messages(sizes, 2, Publishes::Yes)
            }
            // These messages are stored already. The shell asks for room for changes of a job.
            Self::TransferIn { messages, .. } => Cost {
                bytes: messages.iter().map(|arrival| size(&arrival.message)).sum(),
                ..Cost::of_count(messages.len())
            },
            Self::EndTransfer { departures, .. } => Cost::of_count(departures.len()),
            Self::CancelScheduled { sequences } | Self::ReceiveDeferred { sequences, .. } => {
                Cost::of_count(sequences.len())
            }
            Self::InSession { receiver: _, command } => command.cost(),
            Self::Settle { token: _, settlement } => Cost::of_bytes(settlement.bytes()),
            // Reserved numbers of scheduled messages are stored.
            Self::Check { operation } => {
                let stored = operation.messages().iter().any(is_scheduled);
                let stored =
                    stored.then_some(Stored { bytes: RECORD_OVERHEAD_BYTES, published: 0 });
                Cost { stored, ..Cost::of_bytes(operation.bytes()) }
            }
            Self::Commit { parts } => {
                let operations = parts.iter().map(|part| &part.operation);
                // Messages are sent to the coordinator only; a member may store states of its
                // sessions.
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
            Self::OfOperator(command) => command.cost(),
            Self::Peek { count_max, .. } | Self::PeekSession { count_max, .. } => {
                Cost::of_bytes(peeked_bytes(*count_max))
            }
            Self::Inspect(inquiry) => Cost::of_bytes(inspected_bytes(inquiry)),
            Self::Receive { .. }
            | Self::CancelReceive { .. }
            | Self::Attach { .. }
            | Self::SetCredit { .. }
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

    /// Whether only the broker may issue the command, because it names records of other entities or
    /// is one of several steps. The match names every command, so that a new one is not open to
    /// clients by default.
    #[must_use]
    pub const fn is_internal(&self) -> bool {
        match self {
            Self::TransferIn { .. } | Self::EndTransfer { .. } => true,
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
            Self::OfOperator(command) => match command {
                OperatorCommand::BreakLocks { .. }
                | OperatorCommand::BreakSession { .. }
                | OperatorCommand::SetSessionState { .. }
                | OperatorCommand::Act(_)
                | OperatorCommand::ForgetJob(_) => false,
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
            | Self::SetCredit { .. }
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
            | Self::Inspect(_)
            | Self::Describe => false,
        }
    }

    /// Returns the holder of the session whose state the command sets.
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
            Self::SetState { state: Some(state) } => state_cost(state),
            Self::ReceiveDeferred { sequences } => Cost::of_count(sequences.len()),
            // Clearing a state frees storage.
            Self::SetState { state: None }
            | Self::Attach
            | Self::Receive { .. }
            | Self::Renew
            | Self::GetState
            | Self::DeleteBatch { .. } => Cost::PLAIN,
        }
    }
}

impl OperatorCommand {
    fn cost(&self) -> Cost {
        match self {
            Self::BreakLocks { sequences, .. } => Cost::of_count(sequences.len()),
            Self::SetSessionState { state: Some(state), .. } => state_cost(state),
            Self::Act(act) => act_cost(act),
            // Clearing a state frees storage.
            Self::SetSessionState { state: None, .. }
            | Self::BreakSession { .. }
            | Self::ForgetJob(_) => Cost::PLAIN,
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
            // The size as sent; the command itself checks the limits.
            Self::Create(rule) | Self::Update(rule) => Cost::of_bytes(rule_bytes(rule)),
            Self::Delete(_) | Self::Get(_) | Self::List { .. } => Cost::PLAIN,
        }
    }
}

/// Cost of storing the state of a session.
fn state_cost(state: &Bytes) -> Cost {
    Cost { stored: Some(stored_state(state)), ..Cost::of_bytes(state.len() as u64) }
}

/// Cost of a step of an operator. Reason and description of dead letters need storage, since each
/// message gets its own, and messages that are put back.
fn act_cost(act: &Act) -> Cost {
    let count = act.sequences.len() as u64;
    let text = act.deed.text_bytes();
    let overhead = count.saturating_add(1).saturating_mul(RECORD_OVERHEAD_BYTES);
    let stored = match &act.deed {
        Deed::DeadLetter { .. } => Some(count.saturating_mul(text).saturating_add(overhead)),
        Deed::PutBack(_) => {
            let of_overlays = act.deed.overlay_count().saturating_mul(RECORD_OVERHEAD_BYTES);
            Some(text.saturating_add(overhead).saturating_add(of_overlays))
        }
        _ => None,
    };
    let stored = stored.map(|bytes| Stored { bytes, published: 0 });
    let kept = act.kept.iter().flat_map(|kept| kept.values()).map(|record| record.len() as u64);
    let of_kept = kept.fold(0, |sum: u64, bytes| sum.saturating_add(bytes + ACTED_BYTES));
    let bytes = count.saturating_mul(ACTED_BYTES).saturating_add(text).saturating_add(of_kept);
    Cost { bytes, stored, ..Cost::of_count(act.sequences.len()) }
}

/// Memory of the answer to a peek for `count_max` messages, before their contents have room.
#[must_use]
pub fn peeked_bytes(count_max: u32) -> u64 {
    PEEKED_BYTES * u64::from(count_max.min(PEEK_COUNT_LARGEST.into()))
}

/// Memory of the excerpt that answers an inquiry, before contents have room.
fn inspected_bytes(inquiry: &Inquiry) -> u64 {
    let rows = |count: u32| INSPECTED_ROW_BYTES * u64::from(count.min(ROW_COUNT_MAX));
    match inquiry {
        Inquiry::Heads(HeadQuery { count_max, .. }) => {
            (INSPECTED_ROW_BYTES + PEEKED_BYTES) * u64::from((*count_max).min(ROW_COUNT_MAX))
        }
        Inquiry::Originals { sequences, .. } => {
            let count = u64::try_from(sequences.len()).unwrap_or(u64::MAX);
            (2 * INSPECTED_ROW_BYTES + PEEKED_BYTES) * count.min(ROW_COUNT_MAX.into())
        }
        Inquiry::Locks(LockQuery { count_max, .. })
        | Inquiry::Sessions(SessionQuery { count_max, .. }) => rows(*count_max),
        Inquiry::Timeline(TimelineQuery { slot_count, .. }) => 8 * u64::from(*slot_count),
        Inquiry::SessionState { .. } => 0,
    }
}

/// Memory of rules in bytes.
#[must_use]
pub fn rules_bytes(rules: &[RuleDescription]) -> u64 {
    rules.iter().map(rule_bytes).fold(0, u64::saturating_add)
}

fn rule_bytes(rule: &RuleDescription) -> u64 {
    rule.memory_bytes() as u64
}

impl Settlement {
    /// Bytes of the properties that the settlement sets.
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

/// Cost of sending messages. With a destination, each message waits in an outbox with the path of
/// the destination, and is not published by this entity.
fn send_cost(messages: &[InboundMessage], destination: Option<&str>) -> Cost {
    let sizes = messages.iter().map(size);
    match destination {
        None => Cost::of_messages(sizes, 1, Publishes::Yes),
        Some(path) => Cost::of_messages(sizes, 1, Publishes::No)
            .with_stored(path.len().saturating_mul(messages.len())),
    }
}

/// Upper bound on the stored bytes of a session state.
const fn stored_state(state: &Bytes) -> Stored {
    let bytes = state.len() as u64 + SESSION_NAME_BYTES_MAX + RECORD_OVERHEAD_BYTES;
    Stored { bytes, published: 0 }
}

/// Returns the storage of an operation that sends messages or sets a state.
fn stored_by(operation: &Operation) -> Option<Stored> {
    match operation {
        Operation::Send { message } => send_cost(std::slice::from_ref(message), None).stored,
        Operation::SendBatch { messages } => send_cost(messages, None).stored,
        Operation::SendVia { destination, messages } => {
            send_cost(messages, Some(destination)).stored
        }
        Operation::SetSessionState { state: Some(state), .. } => Some(stored_state(state)),
        Operation::Settle { .. }
        | Operation::RenewLock { .. }
        | Operation::CancelScheduled { .. }
        | Operation::SetSessionState { state: None, .. } => None,
    }
}

/// Whether the message names the instant at which it is enqueued.
const fn is_scheduled(message: &InboundMessage) -> bool {
    message.envelope.scheduled_enqueue_time.is_some()
}

fn size(message: &InboundMessage) -> u64 {
    u64::from(message.envelope.size)
}

#[cfg(test)]
mod tests;
