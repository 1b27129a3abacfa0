//! One per arbiter: submits the stages of its trees, takes completions, tells the actors, and only
//! then lets replies out (DESIGN D3, D5).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use actix::Addr;
use tokio::sync::Notify;

use super::entity::{Committed, EntityActor, StoreFailed};
use super::long_turns::LongTurns;
use super::namespace::{NamespaceActor, TreeFailed};
use super::pace::Knock;
use super::pulse::Pulse;
use crate::clock::Clock;
use crate::entity::StageNumber;
use crate::entity::family::MemberNumber;
use crate::ids::EntityId;
use crate::request::release_all;
use crate::shell::tree::{StageCompletion, Tree};
use crate::store::StoreError;
use crate::telemetry::Telemetry;

/// A tree, its actors, and whether it waits for submission.
pub(super) struct Seat {
    id: EntityId,
    tree: Rc<RefCell<Tree>>,
    namespace: Addr<NamespaceActor>,
    /// Its actors, by their machines' numbers; more than one for a topic.
    members: RefCell<HashMap<MemberNumber, Addr<EntityActor>>>,
    /// How many of them drive a machine.
    running: Cell<usize>,
    /// Why the tree ends.
    failure: RefCell<Option<String>>,
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
    pub(super) pulse: Arc<Pulse>,
    /// For turns that take long.
    pub(super) long_turns: Rc<LongTurns>,
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
    /// Opens the desk of this thread and starts its three tasks.
    pub(super) fn open(clock: Arc<dyn Clock>, pulse: Arc<Pulse>) -> Rc<Self> {
        let desk = Rc::new(Self {
            clock,
            seats: RefCell::default(),
            next_seat: Cell::new(0),
            dirty: RefCell::default(),
            submit: Notify::new(),
            completions: Arc::default(),
            telemetry: Telemetry::new(),
            pulse,
            long_turns: Rc::default(),
        });
        actix_rt::spawn(submit_when_dirty(Rc::clone(&desk)));
        actix_rt::spawn(take_completions(Rc::clone(&desk)));
        actix_rt::spawn(Rc::clone(&desk.long_turns).serve());
        desk
    }

    /// Gives a tree a seat; its batches are submitted under this number.
    pub(super) fn take_seat(
        &self,
        id: EntityId,
        tree: &Rc<RefCell<Tree>>,
        namespace: Addr<NamespaceActor>,
    ) -> u64 {
        let seat = self.next_seat.get();
        self.next_seat.set(seat + 1);
        let place = Rc::new(Seat {
            id,
            tree: Rc::clone(tree),
            namespace,
            members: RefCell::default(),
            running: Cell::new(0),
            failure: RefCell::new(None),
            dirty: Cell::new(false),
        });
        self.seats.borrow_mut().insert(seat, place);
        seat
    }

    /// Connects an actor that is told of commits, and drives a machine from now on.
    pub(super) fn connect(&self, seat: u64, number: MemberNumber, actor: Addr<EntityActor>) {
        let Some(place) = self.place(seat) else { return };
        place.members.borrow_mut().insert(number, actor);
        place.running.set(place.running.get() + 1);
    }

    /// Takes note that an actor drives its machine no more, because it is retired.
    pub(super) fn halt(&self, seat: u64) {
        let Some(place) = self.place(seat) else { return };
        place.running.set(place.running.get().saturating_sub(1));
        self.report_if_ended(seat, &place);
    }

    /// An actor leaves. With the last one the seat goes; completions that still come are dropped.
    pub(super) fn leave(&self, seat: u64, number: MemberNumber) {
        let Some(place) = self.place(seat) else { return };
        place.members.borrow_mut().remove(&number);
        if place.members.borrow().is_empty() {
            self.seats.borrow_mut().remove(&seat);
        }
    }

    /// The machine of an actor has failed: the tree ends, and with it those of all others.
    pub(super) fn fail(&self, seat: u64, why: &str) {
        let Some(place) = self.place(seat) else { return };
        place.running.set(place.running.get().saturating_sub(1));
        place.end(why);
        self.report_if_ended(seat, &place);
    }

    /// Lets members of a tree look.
    pub(super) fn wake(&self, seat: u64, numbers: &[MemberNumber]) {
        let Some(place) = self.place(seat) else { return };
        let members = place.members.borrow();
        for actor in numbers.iter().filter_map(|number| members.get(number)) {
            actor.do_send(Knock);
        }
    }

    /// Submits the tree of a seat once everything that is ready on this arbiter has run.
    pub(super) fn mark_dirty(&self, seat: u64) {
        let Some(place) = self.place(seat) else { return };
        if !place.dirty.replace(true) {
            self.dirty.borrow_mut().push(seat);
            self.submit.notify_one();
        }
    }

    fn place(&self, seat: u64) -> Option<Rc<Seat>> {
        self.seats.borrow().get(&seat).map(Rc::clone)
    }

    fn submit_dirty(&self) {
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        let now = self.clock.now();
        for seat in dirty {
            let Some(place) = self.place(seat) else { continue };
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
            let Some(place) = self.place(seat) else { continue };
            match result {
                Ok(()) => {
                    let numbers = place.tree.borrow().members_of(stage);
                    let held = place.tree.borrow_mut().completed(stage);
                    let members = place.members.borrow();
                    for actor in numbers.iter().filter_map(|number| members.get(number)) {
                        actor.do_send(Committed(stage));
                    }
                    releases.extend(held);
                }
                Err(error) => {
                    tracing::error!(entity_id = place.id.0, %error, "append failed");
                    // The actors are told first: who learns of the failure and tries again must not
                    // meet a machine that failed.
                    place.end(&error.to_string());
                    place.tree.borrow_mut().ended(stage);
                }
            }
            self.report_if_ended(seat, &place);
        }
        release_all(&mut releases);
    }

    /// Tells the namespace that a tree has ended, once nobody drives a machine of it and nothing of
    /// it is on its way.
    fn report_if_ended(&self, seat: u64, place: &Seat) {
        let Some(why) = place.failure.borrow().clone() else { return };
        if place.running.get() > 0 || place.tree.borrow().is_submitting() {
            return;
        }
        self.seats.borrow_mut().remove(&seat);
        // Those that were retired have waited for what is over now.
        for actor in place.members.borrow().values() {
            actor.do_send(StoreFailed(why.clone()));
        }
        place.namespace.do_send(TreeFailed { id: place.id, why });
    }
}

impl Seat {
    /// Ends the tree: all its actors are told, nothing that is staged leaves.
    fn end(&self, why: &str) {
        if self.failure.borrow().is_some() {
            return;
        }
        *self.failure.borrow_mut() = Some(why.to_owned());
        for actor in self.members.borrow().values() {
            actor.do_send(StoreFailed(why.to_owned()));
        }
        self.tree.borrow_mut().abandon();
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
