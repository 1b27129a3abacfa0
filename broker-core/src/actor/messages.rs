//! Messages between actors. The actors that handle them are above this file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use actix::Message;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::admission::{LoadRoom, LongTurn};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber};
use crate::machine::StageNumber;
use crate::store::StoreError;
use crate::transfer::{Departure, ListNumber};

/// News of the tree of an entity, from the desk of its arbiter.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum TreeNews {
    /// Another actor of the tree left work for this one.
    Knock,
    /// A stage is durable.
    Committed(StageNumber),
    /// An append failed; the tree ends.
    StoreFailed(String),
}

/// The entity begins its long turn.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct BeginLongTurn(pub(super) LongTurn);

/// The store may have room again.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RoomAgain;

/// Ends the waits of the entity; waiting receives get no messages.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct EndWaits;

/// Condition for retiring an actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetireWhen {
    /// Unconditionally.
    Now,
    /// Only if it is still idle and no request has arrived (TMP-07).
    Idle,
}

/// Retires an actor: its waiting requests get the reason, staged changes are submitted, and `done`
/// is called when they are durable. Sent by the parent.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Retire {
    pub(super) when: RetireWhen,
    pub(super) reason: Rejection,
    pub(super) done: Box<dyn FnOnce() + Send>,
}

/// Contents that the machine requested, with the room that they hold.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ContentsLoaded {
    pub(super) contents: Vec<(SequenceNumber, Option<Bytes>)>,
    pub(super) room: LoadRoom,
}

/// The result of a list that is no longer on its way.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ListEnded {
    pub(super) list: ListNumber,
    /// An error if the store cannot report which messages have left.
    pub(super) departures: Result<Vec<Departure>, StoreError>,
}

/// An entity has been idle for its AutoDeleteOnIdle.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct IdleElapsed(pub(super) EntityId);

/// A tree ended and none of its batches is on its way.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct TreeFailed {
    pub(super) id: EntityId,
    pub(super) why: String,
    /// Whether the store was not available, which is no fault of the tree.
    pub(super) by_outage: bool,
}

/// The session is no longer held, or its tree has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct HoldEnded;

/// A question to all actors. The answer is sent when the last reference is dropped, which is when
/// all have answered.
pub(crate) struct Round {
    pub(crate) scope: RoundScope,
    is_quiet: AtomicBool,
    result: Mutex<Option<oneshot::Sender<bool>>>,
}

/// Work that counts in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundScope {
    All,
    /// All except batches on their way to the store.
    AllButStore,
    /// Only locks of clients and commands that are not carried out yet. An actor with such work
    /// keeps the round until it has none.
    Held,
}

/// One question of a round.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RoundQuestion(pub(crate) Arc<Round>);

impl Round {
    /// Returns a round, and the receiver of its result: whether all were quiet.
    pub(crate) fn begin(scope: RoundScope) -> (Arc<Self>, oneshot::Receiver<bool>) {
        let (sender, receiver) = oneshot::channel();
        let round =
            Self { scope, is_quiet: AtomicBool::new(true), result: Mutex::new(Some(sender)) };
        (Arc::new(round), receiver)
    }

    /// Records whether an actor has no work.
    pub(crate) fn record(&self, is_quiet: bool) {
        self.is_quiet.fetch_and(is_quiet, Ordering::AcqRel);
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let sender = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // The receiver may be gone.
            sender.send(self.is_quiet.load(Ordering::Acquire)).ok();
        }
    }
}
