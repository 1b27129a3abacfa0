//! Desk of an arbiter: submits the stages of its trees, takes completions, notifies the actors, and
//! only then releases replies (DESIGN D3, D5). It has an entry for each tree, with the actors of
//! the tree and the state of its submissions; drives refer to the entry by the number of the tree.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use actix::Recipient;
use tokio::sync::Notify;

use super::messages::{TreeFailed, TreeNews};
use super::own_commits::OwnCommits;
use super::pulse::Pulse;
use crate::admission::LongTurns;
use crate::clock::Clock;
use crate::cluster::tenure::Tenure;
use crate::ids::EntityId;
use crate::machine::StageNumber;
use crate::machine::family::MemberNumber;
use crate::request::{RequesterId, release_all};
use crate::shell::tree::{StageCompletion, Tree};
use crate::store::StoreError;
use crate::telemetry::{Telemetry, count_fenced};
use crate::time::{TimeSpan, Timestamp};

/// The data of the desk about one tree: its actors and its submission state.
pub(super) struct TreeEntry {
    id: EntityId,
    tree: Rc<RefCell<Tree>>,
    namespace: Recipient<TreeFailed>,
    /// Its actors by the numbers of their machines; more than one for a topic.
    members: RefCell<HashMap<MemberNumber, Recipient<TreeNews>>>,
    /// Number of its actors that drive a machine.
    running: Cell<usize>,
    /// Reason for the end of the tree, and whether it is an outage of the store.
    failure: RefCell<Option<(String, bool)>>,
    dirty: Cell<bool>,
}

/// The desk of this arbiter.
pub(super) struct Desk {
    clock: Arc<dyn Clock>,
    trees: RefCell<HashMap<u64, Rc<TreeEntry>>>,
    next_tree: Cell<u64>,
    dirty: RefCell<Vec<u64>>,
    submit: Notify,
    completions: Arc<Completions>,
    own_commits: OwnCommits,
    pub(super) telemetry: Telemetry,
    /// Last warning about retries without delay.
    warned_of_undelayed_at: Cell<Option<Timestamp>>,
    pub(super) pulse: Arc<Pulse>,
    /// Time in which this broker may work.
    pub(super) tenure: Arc<Tenure>,
    /// Long turns of this arbiter.
    pub(super) long_turns: Rc<LongTurns<RequesterId>>,
}

/// Number of the tree, and stage of a submission, with its result.
type CompletedStage = (u64, StageNumber, Result<(), StoreError>);

/// Results that stores report, from any thread.
#[derive(Default)]
struct Completions {
    done: Mutex<Vec<CompletedStage>>,
    arrived: Notify,
}

impl Desk {
    /// Opens the desk of this thread and starts its three tasks.
    pub(super) fn open(clock: Arc<dyn Clock>, pulse: Arc<Pulse>, tenure: Arc<Tenure>) -> Rc<Self> {
        let desk = Rc::new(Self {
            clock,
            trees: RefCell::default(),
            next_tree: Cell::new(0),
            dirty: RefCell::default(),
            submit: Notify::new(),
            completions: Arc::default(),
            own_commits: OwnCommits::default(),
            telemetry: Telemetry::new(),
            warned_of_undelayed_at: Cell::new(None),
            pulse,
            tenure,
            long_turns: Rc::default(),
        });
        actix_rt::spawn(submit_when_dirty(Rc::clone(&desk)));
        actix_rt::spawn(take_completions(Rc::clone(&desk)));
        actix_rt::spawn(Rc::clone(&desk.long_turns).serve());
        desk
    }

    /// Warns that failed messages came back without the delay of their retry policy, at most once a
    /// minute on each arbiter (RTY-32).
    pub(super) fn warn_of_undelayed(&self, entity: EntityId, count: u64, now: Timestamp) {
        let last = self.warned_of_undelayed_at.get();
        if last.is_some_and(|last| now.since(last) < TimeSpan::from_minutes(1)) {
            return;
        }
        self.warned_of_undelayed_at.set(Some(now));
        tracing::warn!(
            entity_id = entity.0,
            count,
            limit = "broker_delayed_count_max",
            "a retry policy does not delay failed messages: the broker already keeps the maximum \
             of waiting messages"
        );
    }

    /// Adds a tree; its batches are submitted under the returned number.
    pub(super) fn add_tree(
        &self,
        id: EntityId,
        tree: &Rc<RefCell<Tree>>,
        namespace: Recipient<TreeFailed>,
    ) -> u64 {
        let at = self.next_tree.get();
        self.next_tree.set(at + 1);
        let entry = Rc::new(TreeEntry {
            id,
            tree: Rc::clone(tree),
            namespace,
            members: RefCell::default(),
            running: Cell::new(0),
            failure: RefCell::new(None),
            dirty: Cell::new(false),
        });
        self.trees.borrow_mut().insert(at, entry);
        at
    }

    /// Connects an actor that drives a machine from now on and is notified of commits.
    pub(super) fn connect(&self, at: u64, number: MemberNumber, actor: Recipient<TreeNews>) {
        let Some(entry) = self.entry_of(at) else { return };
        entry.members.borrow_mut().insert(number, actor);
        entry.running.set(entry.running.get() + 1);
    }

    /// Notes that an actor was retired and no longer drives its machine.
    pub(super) fn halt(&self, at: u64) {
        let Some(entry) = self.entry_of(at) else { return };
        entry.running.set(entry.running.get().saturating_sub(1));
        self.report_if_ended(at, &entry);
    }

    /// Removes an actor, and with the last one the tree. Later completions are dropped.
    pub(super) fn leave(&self, at: u64, number: MemberNumber) {
        let Some(entry) = self.entry_of(at) else { return };
        entry.members.borrow_mut().remove(&number);
        if entry.members.borrow().is_empty() {
            self.trees.borrow_mut().remove(&at);
        }
    }

    /// The machine of an actor has failed: ends the tree, and with it all its machines.
    pub(super) fn fail(&self, at: u64, why: &str) {
        let Some(entry) = self.entry_of(at) else { return };
        entry.running.set(entry.running.get().saturating_sub(1));
        entry.end(why, false);
        self.report_if_ended(at, &entry);
    }

    /// Wakes members of a tree.
    pub(super) fn wake(&self, at: u64, numbers: &[MemberNumber]) {
        let Some(entry) = self.entry_of(at) else { return };
        let members = entry.members.borrow();
        for actor in numbers.iter().filter_map(|number| members.get(number)) {
            actor.do_send(TreeNews::Knock);
        }
    }

    /// Submits a tree once all ready work on this arbiter has run.
    pub(super) fn mark_dirty(&self, at: u64) {
        let Some(entry) = self.entry_of(at) else { return };
        if !entry.dirty.replace(true) {
            self.dirty.borrow_mut().push(at);
            self.submit.notify_one();
        }
    }

    fn entry_of(&self, at: u64) -> Option<Rc<TreeEntry>> {
        self.trees.borrow().get(&at).map(Rc::clone)
    }

    fn submit_dirty(&self) {
        let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        let now = self.clock.now();
        let is_single = dirty.len() == 1;
        for at in &dirty {
            let Some(entry) = self.entry_of(*at) else { continue };
            entry.dirty.set(false);
            let completion = || self.completion(*at, now);
            let mut submit = || entry.tree.borrow_mut().submit(now, &completion);
            if !is_single || !entry.tree.borrow().wants_small_commit() {
                self.own_commits.note_load(now);
                submit();
            } else if self.own_commits.may_commit(*at, now) {
                self.commit(&entry, now, &mut submit);
            } else {
                submit();
            }
        }
    }

    /// Creates the callback for the result of a stage of a tree.
    fn completion(&self, at: u64, submitted_at: Timestamp) -> StageCompletion {
        let completions = Arc::clone(&self.completions);
        let clock = Arc::clone(&self.clock);
        let commit_seconds = self.telemetry.commit_seconds.clone();
        Box::new(move |stage, result| {
            commit_seconds.record(clock.now().since(submitted_at).as_seconds_f64());
            if matches!(result, Err(StoreError::Fenced { .. })) {
                count_fenced();
            }
            let mut done = completions.done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((at, stage, result));
            drop(done);
            completions.arrived.notify_one();
        })
    }

    /// Submits a stage, and commits it on this thread if the store has no other work. A slow disk is
    /// no stuck turn, so the pulse does not see it: a restart would not help.
    fn commit(&self, entry: &TreeEntry, now: Timestamp, submit: &mut dyn FnMut()) {
        let writer = Arc::clone(entry.tree.borrow().writer());
        if writer.commit_here(submit) {
            let then = self.clock.now();
            self.own_commits.note_commit(then.since(now), then);
            self.complete();
        }
    }

    /// Notes a turn of a tree.
    pub(super) fn note_turn(&self, at: u64, now: Timestamp) {
        self.own_commits.note_turn(at, now);
    }

    fn complete(&self) {
        let done = std::mem::take(
            &mut *self.completions.done.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let mut releases = Vec::new();
        for (at, stage, result) in done {
            let Some(entry) = self.entry_of(at) else { continue };
            match result {
                Ok(()) => {
                    let numbers = entry.tree.borrow().members_of(stage);
                    let held = entry.tree.borrow_mut().complete(stage);
                    let members = entry.members.borrow();
                    for actor in numbers.iter().filter_map(|number| members.get(number)) {
                        actor.do_send(TreeNews::Committed(stage));
                    }
                    releases.extend(held);
                }
                Err(error) => {
                    tracing::error!(entity_id = entry.id.0, %error, "append failed");
                    // Actors are notified first: a client that learns of the failure and retries
                    // must not reach the failed machine.
                    entry.end(&error.to_string(), error.is_unavailable());
                    entry.tree.borrow_mut().note_lost(stage);
                }
            }
            self.report_if_ended(at, &entry);
        }
        release_all(&mut releases);
    }

    /// Reports the end of a tree to the namespace, once none of its machines is driven and no batch
    /// is on its way.
    fn report_if_ended(&self, at: u64, entry: &TreeEntry) {
        let Some((why, by_outage)) = entry.failure.borrow().clone() else { return };
        if entry.running.get() > 0 || entry.tree.borrow().is_submitting() {
            return;
        }
        self.trees.borrow_mut().remove(&at);
        // Retired actors waited for batches that have now ended.
        for actor in entry.members.borrow().values() {
            actor.do_send(TreeNews::StoreFailed(why.clone()));
        }
        entry.namespace.do_send(TreeFailed { id: entry.id, why, by_outage });
    }
}

impl TreeEntry {
    /// Ends the tree: notifies all its actors, and drops staged changes.
    fn end(&self, why: &str, by_outage: bool) {
        if self.failure.borrow().is_some() {
            return;
        }
        *self.failure.borrow_mut() = Some((why.to_owned(), by_outage));
        for actor in self.members.borrow().values() {
            actor.do_send(TreeNews::StoreFailed(why.to_owned()));
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
