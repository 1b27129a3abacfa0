//! One per arbiter: submits the stages of its trees, takes completions, tells the actors, and only
//! then lets replies out (DESIGN D3, D5).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use actix::Addr;
use tokio::sync::Notify;

use super::entity::{Committed, EntityActor, StoreFailed};
use crate::clock::Clock;
use crate::entity::StageNumber;
use crate::ids::EntityId;
use crate::request::release_all;
use crate::shell::tree::{StageCompletion, Tree};
use crate::store::StoreError;
use crate::telemetry::Telemetry;

/// A tree, its actor, and whether it waits for submission.
pub(super) struct Seat {
    id: EntityId,
    tree: Rc<RefCell<Tree>>,
    actor: RefCell<Option<Addr<EntityActor>>>,
    dirty: Cell<bool>,
}

/// The desk of this arbiter.
pub(super) struct Desk {
    clock: Arc<dyn Clock>,
    seats: RefCell<HashMap<u64, Rc<Seat>>>,
    next_seat: Cell<u64>,
    dirty: RefCell<Vec<u64>>,
    submit: Notify,
    completions: Arc<Completions>,
    pub(super) telemetry: Telemetry,
}

/// A stage of the tree of a seat, and how it ended.
type Done = (u64, StageNumber, Result<(), StoreError>);

/// What stores report, from any thread.
#[derive(Default)]
struct Completions {
    done: Mutex<Vec<Done>>,
    arrived: Notify,
}

impl Desk {
    /// Opens the desk of this thread and starts its two tasks.
    pub(super) fn open(clock: Arc<dyn Clock>) -> Rc<Self> {
        let desk = Rc::new(Self {
            clock,
            seats: RefCell::default(),
            next_seat: Cell::new(0),
            dirty: RefCell::default(),
            submit: Notify::new(),
            completions: Arc::default(),
            telemetry: Telemetry::new(),
        });
        actix_rt::spawn(submit_when_dirty(Rc::clone(&desk)));
        actix_rt::spawn(take_completions(Rc::clone(&desk)));
        desk
    }

    /// Gives a tree a seat; its batches are submitted under this number.
    pub(super) fn take_seat(&self, id: EntityId, tree: &Rc<RefCell<Tree>>) -> u64 {
        let seat = self.next_seat.get();
        self.next_seat.set(seat + 1);
        let place = Rc::new(Seat {
            id,
            tree: Rc::clone(tree),
            actor: RefCell::new(None),
            dirty: Cell::new(false),
        });
        self.seats.borrow_mut().insert(seat, place);
        seat
    }

    /// Connects the actor that is told of commits.
    pub(super) fn connect(&self, seat: u64, actor: Addr<EntityActor>) {
        if let Some(place) = self.seats.borrow().get(&seat) {
            *place.actor.borrow_mut() = Some(actor);
        }
    }

    /// Takes the seat away. Completions that still come are dropped.
    pub(super) fn leave(&self, seat: u64) {
        self.seats.borrow_mut().remove(&seat);
    }

    /// Submits the tree of a seat once everything that is ready on this arbiter has run.
    pub(super) fn mark_dirty(&self, seat: u64) {
        let Some(place) = self.seats.borrow().get(&seat).map(Rc::clone) else { return };
        if !place.dirty.replace(true) {
            self.dirty.borrow_mut().push(seat);
            self.submit.notify_one();
        }
    }

    fn submit_dirty(&self) {
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        let now = self.clock.now();
        for seat in dirty {
            let Some(place) = self.seats.borrow().get(&seat).map(Rc::clone) else { continue };
            place.dirty.set(false);
            let completion = || {
                let completions = Arc::clone(&self.completions);
                let submitted_at = now;
                let clock = Arc::clone(&self.clock);
                let commit_seconds = self.telemetry.commit_seconds.clone();
                Box::new(move |stage, result| {
                    commit_seconds.record(clock.now().since(submitted_at).as_seconds_f64());
                    let mut done = completions.done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((seat, stage, result));
                    drop(done);
                    completions.arrived.notify_one();
                }) as StageCompletion
            };
            place.tree.borrow_mut().submit(now, &completion);
        }
    }

    fn complete(&self) {
        let done = std::mem::take(
            &mut *self.completions.done.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let mut releases = Vec::new();
        for (seat, stage, result) in done {
            let Some(place) = self.seats.borrow().get(&seat).map(Rc::clone) else { continue };
            let actor = place.actor.borrow().clone();
            match result {
                Ok(()) => {
                    let held = place.tree.borrow_mut().completed(stage);
                    if let Some(actor) = actor {
                        actor.do_send(Committed(stage));
                    }
                    releases.extend(held);
                }
                Err(error) => {
                    tracing::error!(entity_id = place.id.0, %error, "append failed");
                    // The actor is told first: who learns of the failure and tries again must not
                    // meet the machine that failed.
                    if let Some(actor) = actor {
                        actor.do_send(StoreFailed(error.to_string()));
                    }
                    place.tree.borrow_mut().ended(stage);
                }
            }
        }
        release_all(&mut releases);
    }
}

async fn submit_when_dirty(desk: Rc<Desk>) {
    loop {
        desk.submit.notified().await;
        desk.submit_dirty();
    }
}

async fn take_completions(desk: Rc<Desk>) {
    let completions = Arc::clone(&desk.completions);
    loop {
        completions.arrived.notified().await;
        desk.complete();
    }
}
