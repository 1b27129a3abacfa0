//! Plans of requests to a management node, and their state until they are answered. An operation
//! returns a plan, and the module above carries it out.

use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::transaction::{PendingPart, TransactionId};
use peeklock_link::RunningWork;

use super::pieces::Pieces;
use crate::connection::SessionId;
use crate::server::conversation::Conversation;
use crate::server::outcomes::OutcomeKind;
use crate::server::work::ReplyAddress;

/// Plan of an operation: commands to the entity, or background work.
pub(super) enum OperationPlan {
    Commands { entity: Entity, commands: Vec<Command>, read: MakeReply, memo: RequestData },
    InBackground(RunningWork<ManagementResult>),
}

impl OperationPlan {
    /// Makes a plan of background work, with a small answer.
    pub(super) fn in_background(
        asking: impl Future<Output = ManagementResult> + Send + 'static,
    ) -> Self {
        Self::InBackground(Box::pin(async move { (None, asking.await) }))
    }
}

/// Plan of a request: its commands, and the function that makes the reply from their outcomes.
pub(in crate::server) struct CommandPlan {
    pub(super) reply_address: ReplyAddress,
    pub(super) entity: Entity,
    pub(super) commands: Vec<Command>,
    pub(super) read: MakeReply,
    pub(super) memo: RequestData,
    /// Transaction of the commands, and the session of the request (AMQ-26).
    pub(super) transaction: Option<(TransactionId, SessionId)>,
}

impl CommandPlan {
    /// Number of commands, and their bytes.
    pub(in crate::server) fn cost(&self) -> (u64, u64) {
        self.commands.iter().map(Command::cost).fold((0, 0), |(count, bytes), cost| {
            (cost.count.saturating_add(count), cost.bytes.saturating_add(bytes))
        })
    }
}

/// Data of a request that is kept until its reply.
#[derive(Default)]
pub(in crate::server) struct RequestData {
    /// Link for the commands: the link of a session, or the link that is to hold locks.
    pub(super) link: Option<u32>,
    /// Locks that the request names, by command.
    pub(super) tokens: Vec<LockToken>,
    /// Kind of the settlement, if the request settles.
    pub(super) kind: Option<OutcomeKind>,
    /// Number of messages that it sends.
    pub(super) count: usize,
    /// Whether its commands joined a transaction and had no effect yet.
    pub(super) is_joined: bool,
    /// Whether bodies are left out of the reply.
    pub(super) without_bodies: bool,
    /// Room for messages that it deletes on receipt, until its reply is counted.
    pub(super) room: Option<Permit>,
}

/// A request whose commands are running.
pub(in crate::server) struct PendingManagement {
    pub(super) reply_address: ReplyAddress,
    pub(super) read: MakeReply,
    pub(super) memo: RequestData,
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// Parts of a transaction, which count if all commands would be carried out.
    pub(super) issued: Vec<PendingPart>,
    pub(super) left: usize,
    pub(super) failure: Option<Rejection>,
    /// Account bytes of the received outcomes.
    pub(super) held_bytes: u64,
    /// Whether it occupies the slot for large messages.
    pub(super) is_large: bool,
}

/// Makes the reply from the outcomes of all commands.
pub(super) type MakeReply = fn(
    &mut Conversation,
    &ReplyAddress,
    &RequestData,
    Vec<Outcome>,
) -> Result<ManagementAnswer, Rejection>;

/// Successful reply.
pub(in crate::server) enum ManagementAnswer {
    /// Done, without data.
    Done,
    /// Nothing found (AMQP-92).
    Nothing,
    /// Items of a map, and the count of keys and values.
    Map(Pieces, usize),
}

impl ManagementAnswer {
    /// Size of the body in bytes, without the sections before it.
    pub(in crate::server) fn len(&self) -> u64 {
        match self {
            Self::Done | Self::Nothing => 0,
            Self::Map(items, _) => items.len() as u64,
        }
    }
}

/// Result of a request that is carried out in the background.
pub(in crate::server) type ManagementResult = Result<ManagementAnswer, BrokerError>;
