//! Turns, stages and the store, driven like by the actors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use peeklock_core::machine::any::AnyMachine;
use peeklock_core::request::{Release, Request, release_all};
use peeklock_core::shell::tree::StageCompletion;
use peeklock_core::shell::{Shell, TreeFault, TurnResults};
use peeklock_core::store::Shard;
use peeklock_core::time::Timestamp;
use peeklock_store_testing::Fate;

use super::{FAN, Misfortune, World, check, grove_of, path, root_of};
use crate::ground::{Mail, push, take};

impl World {
    /// Runs actors with their mail and inlet. Some members of a tree lag behind.
    pub(super) fn run_someone(&mut self) {
        let root = self.random.index(FAN + 1);
        for place in grove_of(root) {
            if place == root || self.random.one_in(2) {
                self.run(place);
            }
        }
    }

    pub(super) fn run(&mut self, place: usize) {
        if self.random.one_in(400) && self.odds.fail > 0 {
            self.fuse.set(true);
        }
        while let Some(mail) = self.entities[place].mail.pop_front() {
            match mail {
                Mail::Committed(stage) => {
                    self.turn(place, |shell, now, out| shell.committed(stage, now, out));
                }
                Mail::Failed => self.fail(place, "an append failed"),
            }
        }
        let entity = &mut self.entities[place];
        if entity.shell.is_none() {
            return;
        }
        if entity.tree.borrow().is_lost() {
            self.fail(place, "an append failed");
            return;
        }
        let count = self.random.index(entity.inlet.len() + 1);
        let requests: Vec<Request> = entity.inlet.drain(..count).collect();
        if place == FAN {
            self.foresee(&requests);
        }
        self.turn(place, |shell, now, out| shell.run(requests, now, out));
        self.fuse.set(false);
    }

    /// Runs an empty turn.
    pub(super) fn wake(&mut self, place: usize) {
        self.turn(place, |shell, now, out| shell.run([], now, out));
    }

    pub(super) fn turn(
        &mut self,
        place: usize,
        run: impl FnOnce(
            &mut Shell<AnyMachine>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        let now = self.now;
        let entity = &mut self.entities[place];
        let Some(shell) = &mut entity.shell else { return };
        let mut out = Vec::new();
        match catch_unwind(AssertUnwindSafe(|| run(shell, now, &mut out))) {
            Ok(Ok(_)) => {
                check(shell.machine());
                let seat = entity.seat;
                let lists = shell.take_outgoing();
                let to_wake = entity.tree.borrow_mut().take_to_wake();
                self.entities[root_of(place)].dirty = true;
                for list in lists {
                    self.seen.lists += 1;
                    let claims = Arc::clone(&self.entities[place].claims);
                    self.note(|| {
                        let numbers: Vec<_> =
                            list.messages.iter().map(|one| one.message.facts.sequence).collect();
                        format!(
                            "{} hands over {:?} to {}: {numbers:?}",
                            path(place),
                            list.list,
                            list.destination
                        )
                    });
                    self.errands.push((seat, claims, list));
                }
                release_all(&mut out);
                for number in to_wake {
                    if let Some(woken) = self.numbered(place, number) {
                        self.wake(woken);
                    }
                }
            }
            Ok(Err(TreeFault(why))) => {
                let is_lost = entity.tree.borrow().is_lost();
                assert!(is_lost, "{} ends by itself: {why}", path(place));
                release_all(&mut out);
                self.fail(place, &why);
            }
            Err(_) => self.fail(place, "panic"),
        }
    }

    pub(super) fn submit_someone(&mut self) {
        let place = self.random.index(FAN + 1);
        self.submit_tree(place);
    }

    pub(super) fn submit_tree(&mut self, place: usize) {
        let entity = &mut self.entities[root_of(place)];
        if !std::mem::take(&mut entity.dirty) {
            return;
        }
        let (seat, done) = (entity.seat, Arc::clone(&self.done));
        let completion = move || {
            let done = Arc::clone(&done);
            Box::new(move |stage, result| push(&done, (seat, stage, result))) as StageCompletion
        };
        entity.tree.borrow_mut().submit(self.now, &completion);
        if entity.tree.borrow().flush_deadline().is_some() {
            entity.dirty = true;
        }
    }

    pub(super) fn take_completions(&mut self) {
        let mut releases = Vec::new();
        for (seat, stage, result) in take(&self.done) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            let entity = &mut self.entities[place];
            match result {
                Ok(()) => {
                    let numbers = entity.tree.borrow().members_of(stage);
                    releases.extend(entity.tree.borrow_mut().complete(stage));
                    entity.mail.push_back(Mail::Committed(stage));
                    for number in numbers {
                        let member = self.numbered(place, number);
                        if let Some(member) = member.filter(|member| *member != place) {
                            self.entities[member].mail.push_back(Mail::Committed(stage));
                        }
                    }
                }
                Err(_) => {
                    entity.mail.push_back(Mail::Failed);
                    entity.tree.borrow_mut().note_lost(stage);
                }
            }
        }
        release_all(&mut releases);
        self.process_outputs();
    }

    pub(super) fn resubmit(&mut self) {
        for writer in take(&self.unknown) {
            writer.resubmit();
        }
    }

    /// Completes one batch of the store, and judges the durable state.
    pub(super) fn complete(&mut self, shard: Shard, fate: Fate) -> bool {
        if self.store.queued(shard) == 0 {
            return false;
        }
        let mut fate = fate;
        if let Some((_, misfortune)) = self.planned.take_if(|(step, _)| *step == self.completed) {
            match misfortune {
                Misfortune::Fate(planned) => fate = planned,
                Misfortune::Crash => {
                    self.completed += 1;
                    self.crash();
                    return false;
                }
                Misfortune::Panic(place) => self.fail(place, "as planned"),
            }
        }
        self.completed += 1;
        let done = self.store.complete_next(shard, fate);
        if done {
            self.judge.look(&self.store, self.next_id, self.now);
        }
        done
    }

    pub(super) fn step_store(&mut self) {
        let odds = self.odds;
        let mut random = self.random.clone();
        self.store.step(&mut random, &odds);
        self.random = random;
        self.judge.look(&self.store, self.next_id, self.now);
    }

    pub(super) fn run_all(&mut self, place: usize) {
        self.run_inlet(place);
        self.run(place);
    }

    pub(super) fn run_inlet(&mut self, place: usize) {
        while !self.entities[place].inlet.is_empty() && self.entities[place].shell.is_some() {
            self.run(place);
        }
    }
}
