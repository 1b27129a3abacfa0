//! How entities come to be: created, and opened again after a crash.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::change::codec;
use peeklock_core::entity::Machine as _;
use peeklock_core::entity::any::AnyMachine;
use peeklock_core::entity::family::Family;
use peeklock_core::ids::EntityId;
use peeklock_core::permits::Budget;
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::Tree;
use peeklock_core::store::{Batch, Store, StoreError};
use peeklock_core::testing::{Fate, Random};

use super::{Description, Ending, Entity, World, check, path};
use crate::ground::{PLANNED, Shared, push, take};

impl World {
    pub(super) fn create(&mut self, place: usize) -> Entity {
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let description = self.draw(place);
        let mut batch = Batch::default();
        match description.machine(id, self.config, self.now) {
            AnyMachine::Queue(queue) => queue.write_creation(&mut batch),
            AnyMachine::Topic(topic) => topic.write_creation(&mut batch),
        }
        let stored = Shared::default();
        loop {
            let answer = Arc::clone(&stored);
            self.writer_of(id).submit(
                batch.clone(),
                Box::new(move |result: Result<(), StoreError>| push(&answer, result.is_ok())),
            );
            let outcome = loop {
                if let Some(outcome) = take(&stored).pop() {
                    break outcome;
                }
                self.resubmit();
                self.complete(Self::shard_of(id), Fate::Store);
            };
            if outcome {
                break;
            }
            self.writer_of(id).recover().unwrap();
        }
        let path = path(place);
        self.note(|| format!("{path} is created as {id:?}: {description:?}"));
        let (seat, tree, shell) = self.open(id, &description);
        Entity {
            id,
            path,
            description,
            seat,
            tree,
            shell: Some(shell),
            passages: Arc::default(),
            ending: None,
            is_deleted: false,
            inlet: VecDeque::new(),
            closed: false,
            mail: VecDeque::new(),
            dirty: true,
        }
    }

    pub(super) fn open(
        &mut self,
        id: EntityId,
        description: &Description,
    ) -> (u64, Rc<RefCell<Tree>>, Shell<AnyMachine>) {
        let mut machine = description.machine(id, self.config, self.now);
        self.store
            .scan(codec::space_key(id).as_bytes(), &mut |key, value| {
                machine.restore(key, value).expect("every record can be read");
            })
            .unwrap();
        machine.restored(self.now);
        check(&machine);
        let (writer, bytes) = (self.writer_of(id), machine.size_bytes());
        let tree = match &machine {
            AnyMachine::Queue(_) => Tree::new(writer, bytes),
            AnyMachine::Topic(topic) => {
                Tree::of_family(writer, bytes, Family::new(Arc::clone(topic.description())))
            }
        };
        let tree = Rc::new(RefCell::new(tree));
        let seat = self.next_seat;
        self.next_seat += 1;
        let mut tokens = Random::new(self.random.bits());
        let fuse = Rc::clone(&self.fuse);
        let shell = Shell::new(
            machine,
            Rc::clone(&tree),
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&self.limits),
            Box::new(move || {
                if fuse.replace(false) {
                    std::panic::panic_any(PLANNED);
                }
                tokens.bits()
            }),
            Budget::new(64 << 20),
            Box::new(|| Box::new(|| {})),
        );
        (seat, tree, shell)
    }

    pub(super) fn reopen(&mut self, place: usize) {
        let (id, description) = (self.entities[place].id, self.entities[place].description.clone());
        let (seat, tree, shell) = self.open(id, &description);
        let entity = &mut self.entities[place];
        entity.description = Description::of(shell.machine());
        entity.seat = seat;
        entity.tree = tree;
        entity.shell = Some(shell);
        entity.passages = Arc::default();
        entity.ending = None;
        entity.mail.clear();
        entity.dirty = true;
        self.note(|| format!("{} is open again", path(place)));
        self.turn(place, |shell, now, out| shell.run([], now, out));
    }

    pub(super) fn write_deletion(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        entity.ending = Some(Ending::Deleting);
        let (id, seat) = (entity.id, entity.seat);
        let mut batch = Batch::default();
        batch.delete_prefix(&codec::space_key(id));
        batch.require_sync();
        let deletions = Arc::clone(&self.deletions);
        self.writer_of(id).submit(batch, Box::new(move |result| push(&deletions, (seat, result))));
    }
}
