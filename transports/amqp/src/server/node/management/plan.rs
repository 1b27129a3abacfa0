//! Plans of requests at a management node, and their state until they are answered.

use peeklock_core::Entity;
use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::transaction::{Issued, TransactionId};
use peeklock_link::Working;

use super::pieces::Pieces;
use crate::connection::SessionId;
use crate::server::conversation::Conversation;
use crate::server::outcomes::OutcomeKind;
use crate::server::work::Asker;

/// What an operation came to: something to be asked of its entity, or something else.
pub(super) enum Planned {
    Commands { entity: Entity, commands: Vec<Command>, read: Read, memo: Memo },
    Apart(Working<Answered>),
}

impl Planned {
    /// Something that is asked apart, and answered in little.
    pub(super) fn apart(asking: impl Future<Output = Answered> + Send + 'static) -> Self {
        Self::Apart(Box::pin(async move { (None, asking.await) }))
    }
}

/// What a request comes to: commands, and how their outcomes are told.
pub(in crate::server) struct Plan {
    pub(super) asker: Asker,
    pub(super) entity: Entity,
    pub(super) commands: Vec<Command>,
    pub(super) read: Read,
    pub(super) memo: Memo,
    /// The transaction that they are to be part of, and the session that says so (AMQ-26).
    pub(super) transaction: Option<(TransactionId, SessionId)>,
}

impl Plan {
    /// How many commands it is, and of how many bytes.
    pub(in crate::server) fn cost(&self) -> (u64, u64) {
        self.commands.iter().map(Command::cost).fold((0, 0), |(count, bytes), cost| {
            (cost.count.saturating_add(count), cost.bytes.saturating_add(bytes))
        })
    }
}

/// What is remembered of a request until it is answered.
#[derive(Default)]
pub(in crate::server) struct Memo {
    /// The link by way of which it is asked: that of a session, or that which is to hold locks.
    pub(super) link: Option<u32>,
    /// The locks that it names, by command.
    pub(super) tokens: Vec<LockToken>,
    /// How it settles them, if it does.
    pub(super) kind: Option<OutcomeKind>,
    /// How many messages it sends.
    pub(super) count: usize,
    /// Its commands became part of a transaction, and have done nothing yet.
    pub(super) is_joined: bool,
    /// Whether bodies are left out.
    pub(super) without_bodies: bool,
    /// Room for what it takes for good, until its reply is counted.
    pub(super) room: Option<Permit>,
}

/// A request whose commands are under way.
pub(in crate::server) struct Managing {
    pub(super) asker: Asker,
    pub(super) read: Read,
    pub(super) memo: Memo,
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// What is to be part of a transaction, if all of it would be carried out.
    pub(super) issued: Vec<Issued>,
    pub(super) left: usize,
    pub(super) failure: Option<Rejection>,
    /// What the outcomes hold of the account that are here, until all are.
    pub(super) held_bytes: u64,
    /// Whether no other that large may arrive meanwhile.
    pub(super) is_large: bool,
}

/// Makes the reply of the outcomes of all commands.
pub(super) type Read =
    fn(&mut Conversation, &Asker, &Memo, Vec<Outcome>) -> Result<ManagementAnswer, Rejection>;

/// A reply that is no refusal.
pub(in crate::server) enum ManagementAnswer {
    /// It is done, and there is nothing more to say.
    Done,
    /// There is nothing (AMQP-92).
    Nothing,
    /// The items of a map, and their count.
    Map(Pieces, usize),
}

impl ManagementAnswer {
    /// How many bytes it has, beside what stands before them.
    pub(in crate::server) fn len(&self) -> u64 {
        match self {
            Self::Done | Self::Nothing => 0,
            Self::Map(items, _) => items.len() as u64,
        }
    }
}

/// The result of a request that is carried out apart.
pub(in crate::server) type Answered = Result<ManagementAnswer, BrokerError>;
