//! Work of a command to a topic, known before it runs: a published message becomes at
//! most one copy for each subscription. A command that exceeds a turn needs a long turn, so that it
//! does not delay other entities of its arbiter (DESIGN D6).

use super::Topic;
use super::transaction::is_published;
use crate::Machine as _;
use crate::command::{
    Command, InboundMessage, OperatorCommand, PeerArrival, RuleCommand, TopicCommand,
};
use crate::ids::EntityId;
use crate::inspect::Inquiry;
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Arrival;

/// Number of skipped rules that count as one unit of work.
const PASSED_PER_UNIT: usize = 16;
/// Number of listed rules that count as one step: each is copied, and judges no message.
const SHOWN_PER_STEP: usize = 4;

/// Commands by the kind of their cost. The match in [`CommandKind::of`] names every command, so
/// that a new one must define its cost.
#[derive(Clone, Copy)]
pub(super) enum CommandKind<'c> {
    /// Publishes messages of a client.
    Publish(&'c [InboundMessage]),
    /// Checks an operation of a transaction.
    Check(&'c Operation),
    /// Commits a transaction.
    Commit(&'c [Part]),
    /// Publishes messages of another entity.
    Arrivals(&'c [Arrival]),
    /// Publishes messages of another broker.
    PeerArrivals(&'c [PeerArrival]),
    /// Cancels this number of scheduled messages.
    Cancel(usize),
    /// Acts on this number of messages of the topic or its outbox.
    Act(usize),
    /// Sends this number of messages via the topic, without rules.
    SendVia(usize),
    /// Lists rules of a subscription.
    ListRules { subscription: EntityId, skip: usize, top: usize },
    /// Answers an inquiry of an operator.
    Inspect(&'c Inquiry),
    /// One step in any state.
    SingleStep,
    /// A command of the outbox.
    Outbox,
}

impl<'c> CommandKind<'c> {
    pub(super) const fn of(command: &'c Command) -> Self {
        match command {
            Command::Send { message } => Self::Publish(std::slice::from_ref(message)),
            Command::SendBatch { messages } => Self::Publish(messages.as_slice()),
            Command::Check { operation } => Self::Check(operation),
            Command::Commit { parts } => Self::Commit(parts.as_slice()),
            Command::TransferIn { messages, .. } => Self::Arrivals(messages.as_slice()),
            Command::TransferFromPeer { messages, .. } => Self::PeerArrivals(messages.as_slice()),
            Command::CancelScheduled { sequences } => Self::Cancel(sequences.len()),
            Command::OfOperator(OperatorCommand::Act(act)) => Self::Act(act.sequences.len()),
            Command::SendVia { messages, .. } => Self::SendVia(messages.len()),
            Command::OfTopic(TopicCommand::InSubscription {
                subscription,
                command: RuleCommand::List { skip, top },
            }) => Self::ListRules { subscription: *subscription, skip: *skip, top: *top },
            Command::Inspect(inquiry) => Self::Inspect(inquiry),
            Command::OfTopic(_) | Command::Describe => Self::SingleStep,
            Command::EndTransfer { .. }
            | Command::Receive { .. }
            | Command::CancelReceive { .. }
            | Command::ReceiveDeferred { .. }
            | Command::Attach { .. }
            | Command::SetCredit { .. }
            | Command::Detach { .. }
            | Command::Settle { .. }
            | Command::RenewLock { .. }
            | Command::Peek { .. }
            | Command::AcceptSession { .. }
            | Command::InSession { .. }
            | Command::PeekSession { .. }
            | Command::ListSessions { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteDeferred { .. }
            | Command::OfOperator(_)
            | Command::Update { .. }
            | Command::UpdateSubscription { .. } => Self::Outbox,
        }
    }
}

impl Topic {
    /// Returns the work, at least 1.
    pub(super) fn work_of_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> u64 {
        let published = 2 + self.subscriptions.len() as u64;
        let of_outbox =
            || self.outbox.as_ref().map_or(1, |outbox| outbox.work_of(command, now, limits));
        let work = match CommandKind::of(command) {
            CommandKind::Publish(messages) => published * messages.len() as u64,
            // The overlays of a message become part of it, and are removed at the source.
            CommandKind::Arrivals(messages) => {
                messages.iter().map(|one| published + one.overlays.len() as u64).sum::<u64>()
            }
            // In addition, the message is remembered, and another source may be forgotten for it.
            CommandKind::PeerArrivals(messages) => (published + 2) * messages.len() as u64,
            CommandKind::Commit(parts) => {
                let work_of = |part: &Part| match is_published(part) {
                    true => published * part.operation.count(),
                    // As in a queue. The driver of the tree looks overlays of a subscription's
                    // messages up there.
                    false => 2 * part.operation.count() + self.overlays_of_settled(part),
                };
                parts.iter().map(work_of).sum::<u64>()
            }
            CommandKind::Cancel(count) => count as u64,
            CommandKind::SendVia(count) => 2 * count as u64,
            CommandKind::ListRules { subscription, skip, top } => {
                let count = self.matcher.rule_count_of(subscription);
                let passed = skip.min(count);
                let shown = top.min(RuleCommand::LISTED_MAX).min(count - passed);
                (1 + passed / PASSED_PER_UNIT + shown / SHOWN_PER_STEP) as u64
            }
            CommandKind::Inspect(inquiry) => self.work_of_inquiry(inquiry),
            CommandKind::Check(_) | CommandKind::SingleStep => 1,
            // The receipts of the topic as in a queue.
            CommandKind::Act(count) => of_outbox().max(2 + count as u64),
            CommandKind::Outbox => of_outbox(),
        };
        work.max(1)
    }
}
