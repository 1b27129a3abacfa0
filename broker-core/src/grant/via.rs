//! Grant on the destination of messages that are sent through another entity (VIA-02, SEC-07). It
//! is requested when the handle is opened and checked for every message. Its end ends the handle
//! (SEC-09, SEC-15).

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

/// The single destination of messages that are sent through a handle.
#[derive(Clone)]
pub(crate) struct ViaGrant {
    destination: Arc<str>,
    /// None if everything is granted.
    entitlement: Option<Arc<Entitlement>>,
}

impl ViaGrant {
    pub(crate) const fn new(destination: Arc<str>, entitlement: Option<Arc<Entitlement>>) -> Self {
        Self { destination, entitlement }
    }

    /// Refuses a command whose messages may not go to their destination; also a commit with such an
    /// operation. `granted` is the grant of the handle, if it has one. The match names every
    /// command, also commands of sessions, topics and rules, so that a new one with a destination
    /// cannot bypass this check.
    pub(crate) fn check(
        granted: Option<&Self>,
        command: &Command,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        match command {
            Command::SendVia { destination, .. } => {
                Self::check_destination(granted, destination, now)
            }
            Command::Check { operation } => Self::check_operation(granted, operation, now),
            Command::Commit { parts } => parts
                .iter()
                .try_for_each(|part| Self::check_operation(granted, &part.operation, &now)),
            Command::Send { .. }
            | Command::SendBatch { .. }
            | Command::TransferIn { .. }
            | Command::EndTransfer { .. }
            | Command::TransferFromPeer { .. }
            | Command::CancelScheduled { .. }
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
            | Command::OfOperator(_)
            | Command::Inspect(_)
            | Command::Describe => Ok(()),
        }
    }

    /// As [`ViaGrant::check`], for an operation of a transaction.
    pub(crate) fn check_operation(
        granted: Option<&Self>,
        operation: &Operation,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        match operation {
            Operation::SendVia { destination, .. } => {
                Self::check_destination(granted, destination, now)
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
        granted: Option<&Self>,
        destination: &str,
        now: impl Fn() -> Timestamp,
    ) -> Result<(), Rejection> {
        let Some(granted) = granted.filter(|granted| &*granted.destination == destination) else {
            // The handle has no grant for this destination.
            return Err(rights::missing_right(Action::BeSentTo, None));
        };
        granted
            .entitlement
            .as_ref()
            .map_or(Ok(()), |entitlement| entitlement.check(Action::BeSentTo, now))
    }

    /// Watches a link, so that it is notified when it may no longer send to the destination.
    /// `notified` is the outlet of the link, and the flag whether it has been notified.
    pub(crate) fn watch(
        &self,
        receiver: ReceiverId,
        notified: (&Arc<dyn Outlet>, &Arc<AtomicBool>),
        now: impl Fn() -> Timestamp,
    ) {
        if let Some(entitlement) = &self.entitlement {
            entitlement.watch(Action::BeSentTo, receiver, notified, now);
        }
    }

    /// Forgets a link that has ended.
    pub(crate) fn forget(&self, receiver: ReceiverId) {
        if let Some(entitlement) = &self.entitlement {
            entitlement.forget(receiver);
        }
    }
}
