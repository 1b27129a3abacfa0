//! Actions of actors and desks: turns, submissions, completions.

use super::*;

impl World {
    pub(super) fn run_someone(&mut self) {
        let first = self.random.index(self.entities.len());
        for offset in 0..self.entities.len() {
            let entity = (first + offset) % self.entities.len();
            if self.run(entity) {
                return;
            }
        }
    }

    /// Runs an actor: its mail, then its inlet, or its timer. Returns whether there was any work.
    pub(super) fn run(&mut self, entity: usize) -> bool {
        self.wake();
        // Commands may overtake notices: a client that learns that data is durable can send a
        // command before the actor has read its notice.
        let overtakes = !self.entities[entity].inlet.is_empty() && self.random.one_in(4);
        if !overtakes && let Some(mail) = self.entities[entity].mail.pop_front() {
            match mail {
                Mail::Committed(stage) => {
                    self.turn(entity, |shell, now, out| shell.committed(stage, now, out));
                }
                Mail::RoomAgain => self.turn(entity, |shell, now, out| shell.run([], now, out)),
                Mail::Failed => self.fail(entity, "an append failed"),
            }
            self.end_if_quiet(entity);
            return true;
        }
        if self.end_if_quiet(entity) {
            return true;
        }
        let Some(shell) = &self.entities[entity].shell else { return false };
        if self.entities[entity].tree.borrow().is_lost() {
            self.fail(entity, "an append failed");
            return true;
        }
        let due = shell.next_deadline().is_some_and(|at| at <= self.now);
        // A retired entity takes nothing more, but its timer still fires.
        let is_open = self.entities[entity].ending.is_none();
        let count = if is_open { self.entities[entity].inlet.len() } else { 0 };
        if count == 0 && !due {
            return false;
        }
        let count = self.random.index(count + 1).max(count.min(1));
        let requests: Vec<Request> = self.entities[entity].inlet.drain(..count).collect();
        for request in &requests {
            self.auditor.reached(request.ticket.0, self.now);
        }
        self.turn(entity, |shell, now, out| shell.run(requests, now, out));
        true
    }

    pub(super) fn turn(
        &mut self,
        entity: usize,
        run: impl FnOnce(
            &mut Shell<Queue>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        let now = self.now;
        let Some(shell) = &mut self.entities[entity].shell else { return };
        let mut releases = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| run(shell, now, &mut releases)));
        match result {
            Ok(Ok(turn)) => {
                shell.machine().check_invariants().unwrap_or_else(|broken| panic!("{broken}"));
                release_all(&mut releases);
                self.process_outputs();
                let of = &mut self.entities[entity];
                of.dirty |= of.tree.borrow().wants_submit(now);
                self.check_account(entity);
                if turn.idle_elapsed && self.entities[entity].ending.is_none() {
                    self.retire(entity);
                }
            }
            Ok(Err(failure)) => {
                assert!(
                    self.entities[entity].tree.borrow().is_lost(),
                    "the shell failed by itself: {failure}"
                );
                drop(releases);
                self.fail(entity, "an append failed");
            }
            Err(panic) => {
                if panic.downcast_ref::<&str>() != Some(&PLANNED) {
                    std::panic::resume_unwind(panic);
                }
                self.seen.panics += 1;
                self.auditor.failed(entity);
                drop(releases);
                self.fail(entity, "a panic");
            }
        }
    }

    /// QUO-02, DESIGN D3: bytes count from acceptance until their removal is durable.
    pub(super) fn check_account(&mut self, entity: usize) {
        if !self.random.one_in(8) {
            return;
        }
        let of = &self.entities[entity];
        let Some(shell) = &of.shell else { return };
        let counted = of.tree.borrow().stored_bytes();
        let lives = shell.machine().size_bytes();
        assert!(counted >= lives, "{counted} bytes are counted and {lives} are there (QUO-02)");
        if self.store.queued(shard_of(entity)) == 0
            && let Some(image) = Image::read(&self.store, of.id)
        {
            let held = image.size_bytes;
            // Removals that were stored with an unknown outcome may still be counted, never the
            // other way round.
            let gone = counted.saturating_sub(lives);
            assert!(
                counted >= held || gone == 0 && lives < held && self.odds.unknown > 0,
                "{counted} bytes are counted and {held} are stored (SND-24)"
            );
        }
    }

    pub(super) fn wake(&mut self) {
        for seat in take(&self.woken) {
            if let Some(of) = self.entities.iter_mut().find(|of| of.seat == seat) {
                of.mail.push_back(Mail::RoomAgain);
            }
        }
    }

    pub(super) fn submit_someone(&mut self) {
        let first = self.random.index(self.entities.len());
        for offset in 0..self.entities.len() {
            let entity = (first + offset) % self.entities.len();
            if self.entities[entity].dirty {
                self.submit(entity);
                return;
            }
        }
    }

    pub(super) fn submit(&mut self, entity: usize) {
        let of = &mut self.entities[entity];
        of.dirty = false;
        let (seat, done) = (of.seat, Arc::clone(&self.done));
        let completion = || {
            let done = Arc::clone(&done);
            Box::new(move |stage, result| push(&done, (seat, stage, result))) as StageCompletion
        };
        of.tree.borrow_mut().submit(self.now, &completion);
    }

    /// Completions arrive at one place on each arbiter, which sends notices and then releases
    /// replies.
    pub(super) fn take_completions(&mut self, arbiter: usize) {
        let mut releases = Vec::new();
        for (seat, stage, result) in take(&self.done) {
            let Some(entity) = self.entities.iter().position(|of| of.seat == seat) else {
                continue;
            };
            if arbiter_of(entity) != arbiter {
                push(&self.done, (seat, stage, result));
                continue;
            }
            let of = &mut self.entities[entity];
            match result {
                Ok(()) => {
                    releases.extend(of.tree.borrow_mut().complete(stage));
                    of.mail.push_back(Mail::Committed(stage));
                }
                Err(_) => {
                    self.auditor.failed(entity);
                    of.tree.borrow_mut().note_lost(stage);
                    of.mail.push_back(Mail::Failed);
                }
            }
        }
        release_all(&mut releases);
        self.process_outputs();
        for (seat, result) in take(&self.deleted) {
            self.note(|| format!("deletion of seat {seat}: {result:?}"));
            let Some(entity) = self.entities.iter().position(|of| of.seat == seat) else {
                continue;
            };
            if result.is_ok() {
                self.replace(entity);
                continue;
            }
            self.auditor.failed(entity);
            self.rebuild(entity);
        }
    }

    pub(super) fn resubmit(&mut self) {
        for writer in take(&self.unknown) {
            self.seen.unknown += 1;
            writer.resubmit();
        }
    }
}
