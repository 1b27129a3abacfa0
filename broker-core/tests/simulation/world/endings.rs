//! Ends and restarts of trees: failures, rebuilds, deletions.

use super::*;

impl World {
    /// Ends a tree like the actor: waiting callers get errors, and staged answers are dropped.
    pub(super) fn fail(&mut self, entity: usize, why: &str) {
        let of = &mut self.entities[entity];
        let Some(mut shell) = of.shell.take() else { return };
        of.ending = Some(Ending::Failed);
        of.dirty = false;
        self.auditor.failed(entity);
        self.clients.lose_links(entity);
        self.note(|| format!("{entity} fails: {why}"));
        let reason = Rejection::internal("the entity failed and is being rebuilt");
        let mut releases = Vec::new();
        shell.close(&reason, &mut releases);
        self.entities[entity].tree.borrow_mut().abandon();
        drop(shell);
        release_all(&mut releases);
        self.process_outputs();
        self.auditor.lose_sessions(entity);
        self.end_if_quiet(entity);
    }

    /// Continues with an ending entity once nothing of it is in transit.
    pub(super) fn end_if_quiet(&mut self, entity: usize) -> bool {
        let of = &self.entities[entity];
        match of.ending {
            Some(Ending::Failed) if !of.tree.borrow().is_submitting() => self.rebuild(entity),
            Some(Ending::Retired) if of.tree.borrow().is_quiet() => self.delete(entity),
            Some(_) | None => return false,
        }
        true
    }

    pub(super) fn rebuild(&mut self, entity: usize) {
        block_on(self.writer_of(entity).recover()).expect("the store gives the shard");
        let (id, description) =
            (self.entities[entity].id, self.entities[entity].description.clone());
        let Some(image) = Image::read(&self.store, id) else {
            // The deletion was stored with an unknown outcome.
            self.replace(entity);
            return;
        };
        self.note(|| format!("{entity} is rebuilt with {} messages", image.messages.len()));
        self.seen.rebuilds += 1;
        self.auditor.inspect(entity, &image, Occasion::Restart, self.now);
        let (seat, tree, shell) = self.open(entity, id, &description);
        let of = &mut self.entities[entity];
        (of.seat, of.tree, of.shell, of.ending) = (seat, tree, Some(shell), None);
        of.mail.clear();
        // An actor runs once when it starts.
        self.turn(entity, |shell, now, out| shell.run([], now, out));
    }

    /// The entity was idle for its AutoDeleteOnIdle: ends it like the namespace.
    pub(super) fn retire(&mut self, entity: usize) {
        let book = &self.auditor.books[entity];
        let idle = book.idle_min();
        let unused = self.now.since(book.used_at).plus(TimeSpan::from_seconds(60));
        assert!(unused >= idle, "deleted after {unused} without use, not {idle} (TMP-07)");
        let counts = self.entities[entity].shell.as_ref().map(|shell| shell.machine().counts());
        assert_eq!(counts.map(|counts| counts.scheduled), Some(0), "TMP-14");
        self.note(|| format!("{entity} is idle and retired"));
        let reason = Rejection::entity_not_found("queue");
        let mut releases = Vec::new();
        let of = &mut self.entities[entity];
        if let Some(shell) = &mut of.shell {
            shell.close(&reason, &mut releases);
        }
        of.tree.borrow_mut().flush();
        of.dirty = true;
        of.ending = Some(Ending::Retired);
        release_all(&mut releases);
        self.process_outputs();
        self.end_if_quiet(entity);
    }

    pub(super) fn delete(&mut self, entity: usize) {
        let of = &mut self.entities[entity];
        of.ending = Some(Ending::Deleting);
        of.shell = None;
        let (seat, deleted) = (of.seat, Arc::clone(&self.deleted));
        let mut batch = Batch::default();
        batch.delete_prefix(&codec::space_key(of.id));
        batch.require_sync();
        let completion = Box::new(move |result| push(&deleted, (seat, result)));
        self.writer_of(entity).submit(batch, completion);
    }

    pub(super) fn replace(&mut self, entity: usize) {
        let old = self.entities[entity].id;
        assert!(Image::read(&self.store, old).is_none(), "a deleted entity is stored (ENT-14)");
        self.seen.deleted += 1;
        let mut description = self.draw_description(entity);
        // Commands in transit to the path were drawn with or without sessions.
        description.requires_session = self.entities[entity].description.requires_session;
        let inlet = std::mem::take(&mut self.entities[entity].inlet);
        let new = self.create(entity, description);
        self.note(|| format!("{entity} is deleted and created anew as {:?}", new.id));
        self.auditor.replaced(entity, new.id, new.description.clone(), self.now);
        self.clients.forget(entity);
        self.entities[entity] = new;
        self.entities[entity].inlet = inlet;
    }
}
