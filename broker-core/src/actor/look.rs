//! A round through all mailboxes that asks whether anybody has something to do. What is in a mailbox before the
//! question is handled before it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use actix::{Context, Handler, Message};
use tokio::sync::oneshot;

use super::entity::EntityActor;
use super::session::SessionActor;

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

impl Handler<Look> for EntityActor {
    type Result = ();

    fn handle(&mut self, Look(round): Look, _: &mut Context<Self>) {
        if round.counts == Counts::Held {
            self.keep_while_held(round);
            return;
        }
        round.says(self.is_quiet(round.counts));
        self.look_further(&round);
    }
}

impl Handler<Look> for SessionActor {
    type Result = ();

    fn handle(&mut self, Look(round): Look, _: &mut Context<Self>) {
        round.says(self.is_quiet());
    }
}
