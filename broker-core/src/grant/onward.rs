//! What is granted where messages go that are sent by way of another entity (VIA-02, SEC-07). It is asked for when the way is
//! opened, and looked at for every message that goes by it: what ends there ends the way (SEC-09, SEC-15).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use peeklock_model::transaction::Operation;

use super::entitlement::Entitlement;
use crate::command::{Command, RuleCommand, SessionCommand, TopicCommand};
use crate::contract::action::Action;
use crate::contract::rights;
use crate::error::Rejection;
use crate::ids::ReceiverId;
use crate::request::Outlet;
use crate::time::Timestamp;

/// The one entity that messages may go to by way of another.
#[derive(Clone)]
pub(crate) struct Onward {
    destination: Arc<str>,
    /// None where everything is granted.
    held: Option<Arc<Entitlement>>,
}

impl Onward {
    pub(crate) const fn new(destination: Arc<str>, held: Option<Arc<Entitlement>>) -> Self {
        Self { destination, held }
    }

    /// Refuses a command with messages that may not go where they are for; of a commit, with one of them. `way` is what the
    /// handle has, by which it was given. Every command is named, those of sessions, topics and rules too, so that a new one
    /// is judged here before it can have a destination.
    pub(crate) fn check(
        way: Option<&Self>,
        command: &Command,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        match command {
            Command::SendVia { destination, .. } => Self::check_destination(way, destination, now),
            Command::Check { operation } => Self::check_operation(way, operation, now),
            Command::Commit { parts } => {
                parts.iter().try_for_each(|part| Self::check_operation(way, &part.operation, &now))
            }
            Command::Send { .. }
            | Command::SendBatch { .. }
            | Command::TransferIn { .. }
            | Command::TransferOut { .. }
            | Command::TransferFromPeer { .. }
            | Command::CancelScheduled { .. }
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
            | Command::InSession {
                receiver: _,
                command:
                    SessionCommand::Attach
                    | SessionCommand::Receive { .. }
                    | SessionCommand::ReceiveDeferred { .. }
                    | SessionCommand::Renew
                    | SessionCommand::GetState
                    | SessionCommand::SetState { .. }
                    | SessionCommand::DeleteBatch { .. },
            }
            | Command::PeekSession { .. }
            | Command::ListSessions { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteDeferred { .. }
            | Command::Update { .. }
            | Command::UpdateSubscription { .. }
            | Command::OfTopic(
                TopicCommand::Update { .. }
                | TopicCommand::CreateSubscription { .. }
                | TopicCommand::RemoveSubscription { .. }
                | TopicCommand::InSubscription {
                    subscription: _,
                    command:
                        RuleCommand::Create(_)
                        | RuleCommand::Update(_)
                        | RuleCommand::Delete(_)
                        | RuleCommand::Get(_)
                        | RuleCommand::List { .. }
                        | RuleCommand::Explain(_),
                },
            )
            | Command::Describe => Ok(()),
        }
    }

    /// The same for an operation of a transaction.
    pub(crate) fn check_operation(
        way: Option<&Self>,
        operation: &Operation,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        match operation {
            Operation::SendVia { destination, .. } => {
                Self::check_destination(way, destination, now)
            }
            Operation::Send { .. }
            | Operation::SendBatch { .. }
            | Operation::Settle { .. }
            | Operation::RenewLock { .. }
            | Operation::CancelScheduled { .. }
            | Operation::SetSessionState { .. } => Ok(()),
        }
    }

    fn check_destination(
        way: Option<&Self>,
        destination: &str,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        let Some(way) = way.filter(|way| &*way.destination == destination) else {
            // Nobody has asked for it there.
            return Err(rights::missing(Action::BeSentTo, None));
        };
        way.held.as_ref().map_or(Ok(()), |held| held.check(Action::BeSentTo, now))
    }

    /// Has a link told when it may send there no more.
    pub(crate) fn watch(
        &self,
        receiver: ReceiverId,
        told: (&Arc<dyn Outlet>, &Arc<AtomicBool>),
        now: impl Fn() -> Timestamp,
    ) {
        if let Some(held) = &self.held {
            held.watch(Action::BeSentTo, receiver, told, now);
        }
    }

    /// A link is over.
    pub(crate) fn forget(&self, receiver: ReceiverId) {
        if let Some(held) = &self.held {
            held.forget(receiver);
        }
    }
}
