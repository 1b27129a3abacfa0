//! Crashes, and the state at rest.

use std::sync::Arc;

use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::{Crash, Fate};

use super::{Description, FAN, PLACES, SHARDS, World, check, grove_of};
use crate::ground::{take, writers};

impl World {
    /// Crashes the process; another finds the stored records.
    pub(super) fn crash(&mut self) {
        self.seen.crashed += 1;
        self.note(|| "crash".to_owned());
        let mut random = self.random.clone();
        let keeps = random.one_in(2);
        let how = if keeps { Crash::KeepsSome(&mut random) } else { Crash::Loses };
        let store = self.store.crash(how);
        self.random = random;
        for entity in &mut self.entities {
            entity.shell = None;
            entity.inlet.clear();
            entity.mail.clear();
        }
        self.errands.clear();
        take(&self.done);
        take(&self.deletions);
        take(&self.settled);
        take(&self.ended);
        take(&self.unknown);
        self.store = store;
        self.hold_reads();
        self.writers = writers(&self.store, SHARDS, &self.unknown);
        self.asked.clear();
        self.outlet = Arc::default();
        self.judge.look(&self.store, self.next_id, self.now);
        for place in 0..=FAN {
            let id = self.entities[place].id;
            if self.judge.last.entities.contains(&id.0) {
                self.entities[place].closed = false;
                self.entities[place].is_deleted = false;
                self.reopen(place);
            } else {
                let entity = self.create(place);
                self.entities[place] = entity;
            }
        }
        take(&self.ended);
    }

    /// Finishes all work in progress with a working store.
    pub fn come_to_rest(&mut self) {
        let odds = std::mem::take(&mut self.odds);
        let mut stable = 0;
        let mut before = self.judge.last.places.clone();
        for _ in 0..2_000 {
            self.resubmit();
            for shard in 0..SHARDS {
                while self.complete(Shard(shard), Fate::Store) {}
            }
            self.take_completions();
            for place in 0..PLACES {
                self.run_all(place);
                self.submit_tree(place);
            }
            while !self.errands.is_empty() {
                self.walk();
            }
            self.process_ends();
            self.move_endings();
            self.process_outputs();
            // Refused transfers are offered again and again without an effect.
            let now = &self.judge.last.places;
            stable = if *now == before { stable + 1 } else { 0 };
            before.clone_from(now);
            if stable > 20 && self.is_at_rest() {
                self.odds = odds;
                self.check_rest();
                return;
            }
            // Lazy changes are flushed, locks end, and kept messages are offered again. If two
            // sources offer alternately, both pause only while time stands still.
            if stable <= 20 || stable % 7 == 0 {
                self.now = self.now.plus(TimeSpan::from_seconds(11));
            }
        }
        let restless: Vec<_> = self
            .entities
            .iter()
            .map(|one| (&one.path, one.ending, one.inlet.len(), one.tree.borrow().is_quiet()))
            .collect();
        panic!("the world does not come to rest: {restless:?}");
    }

    fn is_at_rest(&self) -> bool {
        self.errands.is_empty()
            && (0..SHARDS).all(|shard| self.store.queued(Shard(shard)) == 0)
            && self.done.lock().unwrap().is_empty()
            && self.ended.lock().unwrap().is_empty()
            && self.entities.iter().all(|one| {
                one.is_deleted
                    || (one.ending.is_none()
                        && one.inlet.is_empty()
                        && one.tree.borrow().is_quiet())
            })
    }

    /// Every message that can leave has left, and the machines agree with the store.
    fn check_rest(&mut self) {
        let open: Vec<usize> =
            (0..PLACES).filter(|place| !self.entities[*place].is_deleted).collect();
        let bytes_in = |place: usize| -> u64 {
            let id = self.entities[place].id.0;
            let stored = self.judge.last.places.values().filter(|one| one.entity == id);
            stored.map(|one| one.size).sum()
        };
        for place in open {
            let entity = &self.entities[place];
            let machine = entity.shell.as_ref().unwrap().machine();
            check(machine);
            let stored = self.judge.last.places.values().filter(|one| one.entity == entity.id.0);
            let count = stored.count() as u64;
            assert_eq!(machine.counts().total(), count, "{}: counts (CNT-03)", entity.path);
            assert_eq!(machine.size_bytes(), bytes_in(place), "{}: size (CNT-08)", entity.path);
            let bytes: u64 = grove_of(place).map(bytes_in).sum();
            let tree = entity.tree.borrow();
            assert_eq!(tree.stored_bytes(), bytes, "{}: account (FWD-25, TOP-10)", entity.path);
            let counts = machine.counts();
            // Every delay is shorter than the time that has passed.
            assert_eq!(counts.delayed, 0, "{}: messages are Delayed (RTY-04)", entity.path);
            let holds = self.config.forwarding.holds_when_full;
            match Description::of(machine) {
                Description::Queue(queue) if queue.status.allows_receive() && !holds => {
                    let active = if queue.forward_to.is_some() { counts.active } else { 0 };
                    assert_eq!(active, 0, "{}: messages wait (FWD-01)", entity.path);
                    assert_eq!(counts.transfer, 0, "{}: transfers wait (VIA-01)", entity.path);
                }
                Description::Subscription(one) if one.status.allows_receive() && !holds => {
                    let active = if one.forward_to.is_some() { counts.active } else { 0 };
                    assert_eq!(active, 0, "{}: messages wait (FWD-01)", entity.path);
                }
                Description::Queue(_) | Description::Subscription(_) => {}
                Description::Topic(_) => {
                    let waits = if holds { 0 } else { counts.transfer };
                    assert_eq!(waits, 0, "{}: transfers wait (VIA-01)", entity.path);
                    assert_eq!(counts.dead_letter, 0, "{} has dead letters (DLQ-32)", entity.path);
                    self.seen.topic_dead_letters += counts.transfer_dead_letter;
                }
            }
            self.seen.transfer_dead_letters += counts.transfer_dead_letter;
        }
        let far = self.judge.last.places.values().filter(|one| one.hops == 4).count();
        self.seen.four_hops += far as u64;
        self.seen.moved = self.judge.moved;
        self.seen.shared_out = self.judge.fan.reached.clone();
        self.seen.delayed_moved = self.judge.delayed_moved[0];
        self.seen.delayed_dead_letters_moved = self.judge.delayed_moved[1];
    }

    /// After a restart everything is unchanged.
    pub fn restart_and_rest(&mut self) {
        let before = self.judge.last.places.clone();
        self.crash();
        self.come_to_rest();
        for (marker, place) in &before {
            let now = self.judge.last.places.get(marker);
            assert!(now.is_some(), "{marker} was at {place:?} and is lost by a restart");
        }
    }
}
