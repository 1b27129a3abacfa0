//! Messages that actors send each other. The actors that handle them are above this file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use actix::Message;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::admission::{LoadRoom, LongTurn};
use crate::entity::StageNumber;
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber};
use crate::transfer::{Departure, ListNumber};

/// News of the tree of an entity, from the desk of its arbiter.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum TreeNews {
    /// Another actor of the tree has left something for this one.
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

/// The entity ends its waits; receives that wait get nothing. Answered when everything is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct EndWaits;

/// When an actor is to be retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetireWhen {
    /// Whatever it is doing.
    Now,
    /// Only if it is still idle and nothing has come in (TMP-07).
    Idle,
}

/// The parent retires the actor: everybody who waits gets the reason, what is staged is submitted,
/// and `done` is called when it is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Retire {
    pub(super) when: RetireWhen,
    pub(super) reason: Rejection,
    pub(super) done: Box<dyn FnOnce() + Send>,
}

/// Contents that the machine has asked for are there, and hold room.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ContentsLoaded {
    pub(super) contents: Vec<(SequenceNumber, Option<Bytes>)>,
    pub(super) room: LoadRoom,
}

/// Nothing of a list is on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ListEnded {
    pub(super) list: ListNumber,
    pub(super) departures: Vec<Departure>,
}

/// An entity has been idle for its AutoDeleteOnIdle.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct IdleElapsed(pub(super) EntityId);

/// A tree ended and has nothing on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct TreeFailed {
    pub(super) id: EntityId,
    pub(super) why: String,
}

/// The session is held no more, or its tree has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct End;

/// Tells who asks when everybody was asked, which is when nobody has it any more.
pub(crate) struct Round {
    pub(crate) counts: Counts,
    is_quiet: AtomicBool,
    asked: Mutex<Option<oneshot::Sender<bool>>>,
}

/// What is to be done that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    All,
    /// Not what is on its way to the store.
    AllButStore,
    /// Only what clients hold: locks, and commands that are not carried out. Who has some keeps the round until he has
    /// none.
    Held,
}

/// One question of a round.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Look(pub(crate) Arc<Round>);

impl Round {
    /// A round, and where it tells whether all were quiet.
    pub(crate) fn begin(counts: Counts) -> (Arc<Self>, oneshot::Receiver<bool>) {
        let (asked, told) = oneshot::channel();
        let round =
            Self { counts, is_quiet: AtomicBool::new(true), asked: Mutex::new(Some(asked)) };
        (Arc::new(round), told)
    }

    /// Somebody says whether he has nothing to do.
    pub(crate) fn says(&self, is_quiet: bool) {
        self.is_quiet.fetch_and(is_quiet, Ordering::AcqRel);
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(asked) = asked {
            // Nobody may wait any more.
            asked.send(self.is_quiet.load(Ordering::Acquire)).ok();
        }
    }
}
