//! Ends of entities: failed, retired, deleted.

use std::sync::Arc;

use peeklock_core::error::Rejection;
use peeklock_core::request::{Released, release_all};
use peeklock_store_testing::block_on;

use super::{Ending, FAN, World, grove_of, path, root_of};
use crate::ground::{push, take};

impl World {
    /// Ends the tree of an entity with all its members.
    pub(super) fn fail(&mut self, place: usize, why: &str) {
        let root = root_of(place);
        if self.entities[root].shell.is_none() {
            return;
        }
        self.seen.failed += 1;
        let mut out = Vec::new();
        for entity in &mut self.entities[grove_of(root)] {
            if let Some(mut shell) = entity.shell.take() {
                shell.close(&Rejection::internal("the entity failed"), &mut out);
            }
            entity.mail.clear();
        }
        let entity = &mut self.entities[root];
        entity.tree.borrow_mut().abandon();
        release_all(&mut out);
        if entity.ending.is_none() {
            entity.ending = Some(Ending::Failed);
        }
        self.note(|| format!("{} failed: {why}", path(place)));
    }

    /// Begins a deletion.
    pub(super) fn retire(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        if entity.ending.is_some() || entity.shell.is_none() || entity.closed {
            return;
        }
        entity.closed = true;
        entity.ending = Some(Ending::Retired);
        let reason = Rejection::entity_not_found(&entity.path);
        for request in entity.inlet.drain(..) {
            if let Some(claim) = request.reply.transfer_claim() {
                let result = Err(reason.clone());
                claim.outlet().release(vec![Released::Answer { correlation: 0, result }]);
            }
        }
        let mut out = Vec::new();
        if let Some(shell) = &mut entity.shell {
            shell.close(&reason, &mut out);
        }
        entity.tree.borrow_mut().flush();
        entity.dirty = true;
        release_all(&mut out);
        self.note(|| format!("{} is retired", path(place)));
    }

    /// Processes ended entities like the namespace.
    pub(super) fn move_endings(&mut self) {
        for seat in take(&self.settled) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            if self.entities[place].ending != Some(Ending::Settling) {
                continue;
            }
            self.entities[place].settled += 1;
            if self.entities[place].settled < grove_of(place).len() {
                continue;
            }
            if self.entities[place].closed {
                self.write_deletion(place);
            } else {
                self.reopen(place);
            }
        }
        for (seat, result) in take(&self.deletions) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            let id = self.entities[place].id;
            match result {
                Ok(()) => {
                    self.seen.deleted += 1;
                    self.note(|| format!("{} is gone", path(place)));
                    self.entities[place].is_deleted = true;
                    self.entities[place].ending = None;
                }
                Err(_) => {
                    block_on(self.writer_of(id).recover()).unwrap();
                    self.write_deletion(place);
                }
            }
        }
        for place in 0..=FAN {
            let entity = &self.entities[place];
            let tree = entity.tree.borrow();
            let moves = match entity.ending {
                Some(Ending::Failed) => !tree.is_submitting(),
                Some(Ending::Retired) if entity.shell.is_none() => !tree.is_submitting(),
                Some(Ending::Retired) => tree.is_quiet(),
                Some(Ending::Settling | Ending::Deleting) | None => false,
            };
            drop(tree);
            if moves {
                self.settle(place);
            }
            if self.entities[place].is_deleted && self.random.one_in(2) {
                let entity = self.create(place);
                self.entities[place] = entity;
            }
        }
    }

    fn settle(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        entity.ending = Some(Ending::Settling);
        entity.settled = 0;
        let (id, seat) = (entity.id, entity.seat);
        block_on(self.writer_of(id).recover()).unwrap();
        for entity in &mut self.entities[grove_of(place)] {
            entity.shell = None;
            let settled = Arc::clone(&self.settled);
            entity.claims.close(Box::new(move || push(&settled, seat)));
        }
        if self.settled.lock().unwrap().is_empty() {
            self.seen.waited_for_guards += 1;
            self.note(|| format!("{} waits for its guards", path(place)));
        }
    }
}
