//! How much a command is for others on its arbiter, known before it is carried out: a message that is published is as
//! many copies as there are subscriptions, at most. What is more than a turn holds is left to a long turn (DESIGN D6).

use super::Topic;
use super::transaction::is_published;
use crate::Machine as _;
use crate::command::{Command, InboundMessage, PeerArrival, RuleCommand, TopicCommand};
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Arrival;

/// So many rules that are only passed over on the way to a page of them are a step.
const PASSED_PER_STEP: usize = 16;
/// So many rules that are shown are one: each is copied, and meets no message.
const SHOWN_PER_STEP: usize = 4;

/// What a command asks of a topic, as far as it tells what that costs. [`Asked::of`] alone names every command, so that
/// a new one has to say it.
#[derive(Clone, Copy)]
pub(super) enum Asked<'c> {
    /// To publish what a client sends.
    Publish(&'c [InboundMessage]),
    /// To say whether that would be done.
    Check(&'c Operation),
    /// To carry out a transaction.
    Commit(&'c [Part]),
    /// To publish what comes from another entity.
    TakeIn(&'c [Arrival]),
    /// To publish what comes from another broker.
    TakeFromPeer(&'c [PeerArrival]),
    /// To take so many scheduled messages out.
    Cancel(usize),
    /// To send so many messages on, which meet no rule.
    SendOn(usize),
    /// To show a page of the rules of a subscription.
    Rules { subscription: EntityId, skip: usize, top: usize },
    /// What is one step whatever there is.
    Plain,
    /// Something of the outbox.
    OfOutbox,
}

impl<'c> Asked<'c> {
    pub(super) const fn of(command: &'c Command) -> Self {
        match command {
            Command::Send { message } => Self::Publish(std::slice::from_ref(message)),
            Command::SendBatch { messages } => Self::Publish(messages.as_slice()),
            Command::Check { operation } => Self::Check(operation),
            Command::Commit { parts } => Self::Commit(parts.as_slice()),
            Command::TransferIn { messages, .. } => Self::TakeIn(messages.as_slice()),
            Command::TransferFromPeer { messages, .. } => Self::TakeFromPeer(messages.as_slice()),
            Command::CancelScheduled { sequences } => Self::Cancel(sequences.len()),
            Command::SendVia { messages, .. } => Self::SendOn(messages.len()),
            Command::OfTopic(TopicCommand::InSubscription {
                subscription,
                command: RuleCommand::List { skip, top },
            }) => Self::Rules { subscription: *subscription, skip: *skip, top: *top },
            Command::OfTopic(_) | Command::Describe => Self::Plain,
            Command::TransferOut { .. }
            | Command::Receive { .. }
            | Command::CancelReceive { .. }
            | Command::ReceiveDeferred { .. }
            | Command::Attach { .. }
            | Command::Grant { .. }
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
            | Command::Update { .. }
            | Command::UpdateSubscription { .. } => Self::OfOutbox,
        }
    }
}

impl Topic {
    /// So many messages, a command at least one.
    pub(super) fn steps_of_command(
        &self,
        command: &Command,
        now: Timestamp,
        limits: &Limits,
    ) -> u64 {
        let published = 2 + self.subscriptions.len() as u64;
        let steps = match Asked::of(command) {
            Asked::Publish(messages) => published * messages.len() as u64,
            // What was set on one becomes part of it, and goes where it was.
            Asked::TakeIn(messages) => {
                messages.iter().map(|one| published + one.overlays.len() as u64).sum::<u64>()
            }
            // And with what is remembered of it, for which another source may be forgotten.
            Asked::TakeFromPeer(messages) => (published + 2) * messages.len() as u64,
            Asked::Commit(parts) => {
                let steps_of = |part: &Part| match is_published(part) {
                    true => published * part.operation.count(),
                    // As of a queue. What is set on messages of a subscription is looked up there, by who drives both.
                    false => 2 * part.operation.count() + self.set_on_settled(part),
                };
                parts.iter().map(steps_of).sum::<u64>()
            }
            Asked::Cancel(count) => count as u64,
            Asked::SendOn(count) => 2 * count as u64,
            Asked::Rules { subscription, skip, top } => {
                let count = self.matcher.rule_count_of(subscription);
                let passed = skip.min(count);
                let shown = top.min(RuleCommand::LISTED_MAX).min(count - passed);
                (1 + passed / PASSED_PER_STEP + shown / SHOWN_PER_STEP) as u64
            }
            Asked::Check(_) | Asked::Plain => 1,
            Asked::OfOutbox => {
                self.outbox.as_ref().map_or(1, |outbox| outbox.steps_of(command, now, limits))
            }
        };
        steps.max(1)
    }
}
