//! Actions, and the table of the right that each action needs (SEC-05, CON-72). Every way into the
//! broker uses only this table. Part of the data path before step 1.

use super::rights::{Ceiling, Right, Rights};
use crate::command::{Command, OperatorCommand, RuleCommand, SessionCommand, TopicCommand};
use crate::transaction::Operation;

/// An action of a principal on an entity or on the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Action {
    /// Sends messages, immediately or scheduled (SND-01, SCH-01).
    Send,
    /// Stores messages in an entity that moves them to another one (VIA-01).
    SendVia,
    /// Receives messages that are sent through another entity (VIA-02).
    BeSentTo,
    /// Cancels scheduled messages (SCH-05).
    CancelScheduled,
    /// Hands over messages of another broker with the number of their hops (FWD-13).
    Forward,
    /// Receives messages, with calls or over a link with credit (RCV-01).
    Receive,
    /// Receives deferred messages (DEF-03).
    ReceiveDeferred,
    /// Settles messages (SET-01).
    Settle,
    /// Renews locks of messages (SET-18).
    RenewLock,
    /// Peeks at messages (PEK-01).
    Peek,
    /// Examines messages, locks and sessions without any effect on them (CON-01).
    Inspect,
    /// Locks a session (SES-05).
    AcceptSession,
    /// Renews the lock of a session, reads and sets its state (SES-12, SES-24).
    HoldSession,
    /// Lists sessions (SES-29).
    ListSessions,
    /// Removes available messages (DEL-01).
    DeleteBatch,
    /// Removes available messages of all sessions that are not held (DEL-07).
    DeleteUnlocked,
    /// Removes a deferred message (DEL-09).
    DeleteDeferred,
    /// Breaks locks of others, and sets states of sessions that nobody holds (CON-26, CON-27).
    Operate,
    /// Creates an entity (ENT-03).
    Create,
    /// Reads a description with counts and instants (ENT-31, CNT-12).
    Describe,
    /// As `Describe`, over the JSON API, where Listen suffices (CON-73).
    Overview,
    /// Plans the changes of an entity for a declaration (DEC-12).
    Plan,
    /// Changes a description (ENT-17).
    Update,
    /// Deletes an entity (ENT-14).
    Delete,
    /// Lists the entities of the namespace, or the subscriptions of a topic (ENT-30).
    List,
    /// Becomes the forwarding destination of an entity (FWD-05).
    BeForwardedTo,
    /// Reads rules, or explains their effect on a message (SEC-05, MAT-01).
    ReadRules,
    /// Adds, changes and removes rules (SEC-06).
    ChangeRules,
    /// Adds and removes rules over the management node of a subscription, as receivers do (SEC-06).
    ChangeOwnRules,
    /// Reads the policies of an entity or of the namespace, without their keys (SEC-05).
    ReadPolicies,
    /// Reads the keys of a policy (SEC-17).
    ReadKeys,
    /// Creates, changes and deletes policies, and regenerates their keys (SEC-05, SEC-09).
    ChangePolicies,
    /// Closes connections of other clients (CON-24).
    CloseClients,
    /// Reads the audit trail (CON-23).
    ReadAudit,
    /// Reads the metrics, which contain names of entities.
    ReadMetrics,
    /// Ends something that the principal began: a link, its credit, a waiting call.
    End,
    /// Carries out a transaction. Each of its operations is checked separately.
    Commit,
    /// Command that only the broker gives, to its own entities.
    Internal,
}

/// Requirement of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// No right.
    Nothing,
    /// One of these rights, and at least this ceiling.
    OneOf(Rights, Ceiling),
    /// All of these rights, and at least this ceiling.
    AllOf(Rights, Ceiling),
    /// Only the broker itself; never granted.
    BrokerItself,
}

impl Action {
    /// Number of actions.
    pub const COUNT: usize = Self::Internal as usize + 1;

    /// All actions, for tests and documents.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Send,
        Self::SendVia,
        Self::BeSentTo,
        Self::CancelScheduled,
        Self::Forward,
        Self::Receive,
        Self::ReceiveDeferred,
        Self::Settle,
        Self::RenewLock,
        Self::Peek,
        Self::Inspect,
        Self::AcceptSession,
        Self::HoldSession,
        Self::ListSessions,
        Self::DeleteBatch,
        Self::DeleteUnlocked,
        Self::DeleteDeferred,
        Self::Operate,
        Self::Create,
        Self::Describe,
        Self::Overview,
        Self::Plan,
        Self::Update,
        Self::Delete,
        Self::List,
        Self::BeForwardedTo,
        Self::ReadRules,
        Self::ChangeRules,
        Self::ChangeOwnRules,
        Self::ReadPolicies,
        Self::ReadKeys,
        Self::ChangePolicies,
        Self::CloseClients,
        Self::ReadAudit,
        Self::ReadMetrics,
        Self::End,
        Self::Commit,
        Self::Internal,
    ];

    /// Returns the requirement of each action (SEC-05, CON-72).
    #[must_use]
    pub const fn needs(self) -> Requirement {
        use Ceiling::{Admin, Operator, Viewer};
        const SEND: Rights = Rights::of(Right::Send);
        const LISTEN: Rights = Rights::of(Right::Listen);
        const MANAGE: Rights = Rights::of(Right::Manage);
        match self {
            Self::Send | Self::SendVia | Self::BeSentTo | Self::CancelScheduled => {
                Requirement::OneOf(SEND, Operator)
            }
            Self::Receive
            | Self::ReceiveDeferred
            | Self::Settle
            | Self::RenewLock
            | Self::AcceptSession
            | Self::HoldSession
            | Self::DeleteBatch => Requirement::OneOf(LISTEN, Operator),
            Self::Operate => Requirement::AllOf(LISTEN.and(Right::Send), Operator),
            Self::ChangeOwnRules => Requirement::OneOf(LISTEN.and(Right::Manage), Operator),
            Self::Peek | Self::Inspect | Self::ListSessions => Requirement::OneOf(LISTEN, Viewer),
            Self::Overview | Self::ReadRules => {
                Requirement::OneOf(LISTEN.and(Right::Manage), Viewer)
            }
            Self::Describe | Self::Plan | Self::List | Self::ReadMetrics => {
                Requirement::OneOf(MANAGE, Viewer)
            }
            Self::Forward
            | Self::DeleteUnlocked
            | Self::DeleteDeferred
            | Self::Create
            | Self::Update
            | Self::Delete
            | Self::BeForwardedTo
            | Self::ChangeRules
            | Self::ReadPolicies
            | Self::ReadKeys
            | Self::ChangePolicies
            | Self::CloseClients
            | Self::ReadAudit => Requirement::OneOf(MANAGE, Admin),
            Self::End | Self::Commit => Requirement::Nothing,
            Self::Internal => Requirement::BrokerItself,
        }
    }

    /// Returns the action of a command. The parts of a [`Command::Commit`] are separate actions;
    /// see [`Action::of_operation`].
    #[must_use]
    pub const fn of(command: &Command) -> Self {
        match command {
            Command::Send { .. } | Command::SendBatch { .. } => Self::Send,
            Command::SendVia { .. } => Self::SendVia,
            Command::CancelScheduled { .. } => Self::CancelScheduled,
            Command::TransferFromPeer { .. } => Self::Forward,
            // Takes back all credit of a link.
            Command::SetCredit { delivery_limit: 0, .. }
            | Command::CancelReceive { .. }
            | Command::Detach { .. } => Self::End,
            Command::Receive { .. } | Command::Attach { .. } | Command::SetCredit { .. } => {
                Self::Receive
            }
            Command::ReceiveDeferred { .. } => Self::ReceiveDeferred,
            Command::Settle { .. } => Self::Settle,
            Command::RenewLock { .. } => Self::RenewLock,
            Command::Peek { .. } | Command::PeekSession { .. } => Self::Peek,
            Command::Inspect(_) => Self::Inspect,
            Command::AcceptSession { .. } => Self::AcceptSession,
            Command::InSession { command, .. } => match command {
                SessionCommand::Attach | SessionCommand::Receive { .. } => Self::Receive,
                SessionCommand::ReceiveDeferred { .. } => Self::ReceiveDeferred,
                SessionCommand::Renew
                | SessionCommand::GetState
                | SessionCommand::SetState { .. } => Self::HoldSession,
                SessionCommand::DeleteBatch { .. } => Self::DeleteBatch,
            },
            Command::ListSessions { .. } => Self::ListSessions,
            Command::DeleteBatch { .. } => Self::DeleteBatch,
            Command::DeleteBatchUnlocked { .. } => Self::DeleteUnlocked,
            Command::DeleteDeferred { .. } => Self::DeleteDeferred,
            Command::Update { .. } | Command::UpdateSubscription { .. } => Self::Update,
            Command::OfTopic(command) => Self::of_topic(command),
            // A job checks the right on its destination and reads the messages that it puts back,
            // which a command alone does not.
            Command::OfOperator(OperatorCommand::Act(act)) if act.deed.is_of_jobs() => {
                Self::Internal
            }
            Command::OfOperator(_) => Self::Operate,
            Command::Check { operation } => Self::of_operation(operation),
            Command::Commit { .. } => Self::Commit,
            Command::Describe => Self::Describe,
            Command::TransferIn { .. } | Command::EndTransfer { .. } => Self::Internal,
        }
    }

    /// Returns the action of a command that only topics accept.
    const fn of_topic(command: &TopicCommand) -> Self {
        match command {
            TopicCommand::Update { .. } => Self::Update,
            TopicCommand::InSubscription { command, .. } => match command {
                RuleCommand::Create(_) | RuleCommand::Update(_) | RuleCommand::Delete(_) => {
                    Self::ChangeRules
                }
                RuleCommand::Get(_) | RuleCommand::List { .. } | RuleCommand::Explain(_) => {
                    Self::ReadRules
                }
            },
            TopicCommand::CreateSubscription { .. } | TopicCommand::RemoveSubscription { .. } => {
                Self::Internal
            }
        }
    }

    /// Returns the action of an operation in a transaction.
    #[must_use]
    pub const fn of_operation(operation: &Operation) -> Self {
        match operation {
            Operation::Send { .. } | Operation::SendBatch { .. } => Self::Send,
            Operation::SendVia { .. } => Self::SendVia,
            Operation::Settle { .. } => Self::Settle,
            Operation::RenewLock { .. } => Self::RenewLock,
            Operation::CancelScheduled { .. } => Self::CancelScheduled,
            Operation::SetSessionState { .. } => Self::HoldSession,
        }
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Actions(u64);

impl Actions {
    /// The set as one bit for each action.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the actions that rights allow below a ceiling.
    pub(crate) fn granted(rights: Rights, ceiling: Ceiling) -> Self {
        let allowed = Action::ALL.into_iter().filter(|action| match action.needs() {
            Requirement::Nothing => true,
            Requirement::OneOf(one_of, least) => one_of.intersects(rights) && ceiling >= least,
            Requirement::AllOf(all, least) => rights.include(all) && ceiling >= least,
            Requirement::BrokerItself => false,
        });
        Self(allowed.fold(0, |bits, action| bits | 1 << (action as u8)))
    }

    pub(crate) const fn with(self, action: Action) -> Self {
        Self(self.0 | 1 << (action as u8))
    }

    pub(crate) const fn contains(self, action: Action) -> bool {
        self.0 & (1 << (action as u8)) != 0
    }
}
