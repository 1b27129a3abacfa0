//! Rests and crashes, at which all knowledge is compared.

use super::*;

impl World {
    /// Runs everything that is ready, until nothing is.
    pub(super) fn drain(&mut self) {
        for _ in 0..100_000 {
            let mut moved = false;
            for entity in 0..self.entities.len() {
                moved |= self.run(entity);
                if self.entities[entity].dirty {
                    self.submit(entity);
                    moved = true;
                }
            }
            let waits = !self.unknown.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            self.resubmit();
            moved |= waits;
            for shard in 0..SHARDS {
                moved |= self.store.complete_next(Shard(shard), Fate::Store);
            }
            let done = !self.done.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
                || !self.deleted.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            (0..ARBITERS).for_each(|arbiter| self.take_completions(arbiter));
            moved |= done;
            moved |= self.move_events();
            if !moved {
                return;
            }
        }
        panic!("the broker never comes to rest");
    }

    /// Lets everything be answered and become durable, and compares all knowledge.
    pub fn come_to_rest(&mut self) {
        self.note(|| "rest".to_owned());
        self.fuse.set(None);
        self.seen.rests += 1;
        self.drain();
        // Parked sends are answered after 5 s, even if the store is busy; lazy counts are durable
        // within a second (SET-27). A send that waited for an entity to be created again is parked
        // afterwards.
        for _ in 0..20 {
            self.pass_promptly(TimeSpan::from_ms(400));
            self.drain();
        }
        for entity in 0..self.entities.len() {
            let deadline = self.entities[entity].tree.borrow().flush_deadline();
            assert!(
                deadline.is_none_or(|at| at > self.now),
                "changes are staged since half a second before {deadline:?} (SET-27)"
            );
        }
        // The turn that learns of the first flush may store the last use.
        for _ in 0..2 {
            for of in &mut self.entities {
                of.tree.borrow_mut().flush();
                of.dirty = true;
            }
            self.flush_events();
            self.drain();
        }
        let overdue = self.auditor.overdue(self.now);
        let ending: Vec<_> = self.entities.iter().map(|of| (of.id, of.ending)).collect();
        assert!(overdue.is_empty(), "never answered: {overdue:?}; {ending:?}");
        assert!(!self.store.is_overdrawn(), "reservations are given back twice (DESIGN D11)");
        assert_eq!(self.store.reserved_bytes(), 0, "reservations are not given back (DESIGN D11)");
        for entity in 0..self.entities.len() {
            self.inspect(entity);
        }
        self.check_events();
    }

    pub(super) fn inspect(&mut self, entity: usize) {
        let of = &self.entities[entity];
        let Some(shell) = &of.shell else { panic!("entity {entity} did not come back") };
        let image = Image::read(&self.store, of.id).expect("an open entity is stored");
        let alive = shell.machine();
        let twin = restored(&self.store, of.id, &of.description, self.config, self.now);
        assert_eq!(twin.counts(), alive.counts(), "restored and live counts differ (LIF-02)");
        assert_eq!(twin.size_bytes(), alive.size_bytes(), "restored and live sizes differ");
        assert_eq!(twin.description(), alive.description(), "descriptions differ");
        assert_eq!(alive.counts().total(), image.messages.len() as u64, "counts differ (CNT-03)");
        assert_eq!(alive.size_bytes(), image.size_bytes, "sizes differ (CNT-08)");
        let tree = of.tree.borrow();
        assert!(
            tree.is_quiet(),
            "something of {entity} is left on its way: submitted {}, due {:?}, now {}, next {:?}",
            tree.is_submitting(),
            tree.flush_deadline(),
            self.now,
            shell.next_deadline()
        );
        drop(tree);
        assert_eq!(of.tree.borrow().stored_bytes(), image.size_bytes, "the account is wrong");
        twin.check_invariants().unwrap_or_else(|broken| panic!("restored: {broken}"));
        self.auditor.inspect(entity, &image, Occasion::Rest, self.now);
        self.compare_peeks(entity, &image);
    }

    /// A peek of the live machine shows the stored messages (LIF-04).
    pub(super) fn compare_peeks(&mut self, entity: usize, image: &Image) {
        for sub_queue in SubQueue::ALL {
            let outlet = Arc::new(Mailbox::default());
            let reply = Reply::new(Arc::clone(&outlet) as Arc<dyn Outlet>, 0, None);
            let command = Command::Peek { from: SequenceNumber(0), count_max: u32::MAX };
            let request = Request { ticket: Ticket(u64::MAX), sub_queue, command, reply };
            self.turn(entity, |shell, now, out| shell.run([request], now, out));
            let mut released =
                std::mem::take(&mut *outlet.0.lock().unwrap_or_else(PoisonError::into_inner));
            let Some(Released::Answer { result: Ok(Outcome::Peeked(shown)), .. }) = released.pop()
            else {
                // The turn had work to do, so the answer waits.
                return;
            };
            let shown: Vec<_> = shown
                .iter()
                .map(|message| (message.facts.sequence.0, message.facts.delivery_count))
                .collect();
            let stored: Vec<_> = image
                .messages
                .iter()
                .filter(|message| message.sub_queue == sub_queue)
                .map(|message| (message.sequence, message.delivery_count))
                .collect();
            assert_eq!(shown, stored, "live and stored messages differ in {sub_queue:?} (LIF-04)");
        }
    }

    /// The process crashes, and another one opens the durable state.
    pub(super) fn crash(&mut self) {
        self.seen.crashes += 1;
        let keeps = self.random.one_in(2);
        self.note(|| format!("crash, the store keeps some: {keeps}"));
        let crash = if keeps { Crash::KeepsSome(&mut self.random) } else { Crash::Loses };
        let store = self.store.crash(crash);
        self.store = store;
        self.outlet = Arc::default();
        self.unknown = Done::default();
        self.done = Done::default();
        self.deleted = Done::default();
        self.woken = Done::default();
        self.room = Room::Open;
        self.fuse.set(None);
        self.auditor.died();
        self.writers = writers(&self.store, &self.unknown);
        for entity in 0..self.entities.len() {
            let of = &mut self.entities[entity];
            (of.shell, of.ending, of.dirty) = (None, None, false);
            of.inlet.clear();
            of.mail.clear();
            self.clients.lose_links(entity);
            self.rebuild(entity);
        }
        self.crash_events();
    }

    /// Ends a run: the state at rest survives a crash unchanged.
    pub fn restart_and_rest(&mut self) {
        self.crash();
        self.come_to_rest();
    }
}
