//! Creation of entities, and their opening after a crash.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::admission::Budget;
use peeklock_core::change::codec;
use peeklock_core::ids::EntityId;
use peeklock_core::machine::Machine as _;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::family::Family;
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::Tree;
use peeklock_core::store::{Batch, Store, StoreError};
use peeklock_store_testing::{Fate, Random, block_on, visit_records};

use super::{Description, Ending, Entity, FAN, World, check, grove_of, path, root_of};
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
            block_on(self.writer_of(id).recover()).unwrap();
        }
        self.note(|| format!("{} is created as {id:?}: {description:?}", path(place)));
        let (seat, tree, shell) = self.open(id, &description);
        let mut entity = Entity::resting(id, place, description.clone(), Rc::clone(&tree));
        entity.open(seat, tree, shell, description);
        entity
    }

    pub(super) fn open(
        &mut self,
        id: EntityId,
        description: &Description,
    ) -> (u64, Rc<RefCell<Tree>>, Shell<AnyMachine>) {
        let mut machine = description.machine(id, self.config, self.now);
        visit_records(&*self.store, &codec::space_key(id), |key, value| {
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
        let (seat, shell) = self.drive(machine, &tree);
        (seat, tree, shell)
    }

    /// Gives a machine of a tree a shell.
    pub(super) fn drive(
        &mut self,
        machine: AnyMachine,
        tree: &Rc<RefCell<Tree>>,
    ) -> (u64, Shell<AnyMachine>) {
        let seat = self.next_seat;
        self.next_seat += 1;
        let mut tokens = Random::new(self.random.bits());
        let fuse = Rc::clone(&self.fuse);
        let shell = Shell::new(
            machine,
            Rc::clone(tree),
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
        (seat, shell)
    }

    /// Opens a tree again.
    pub(super) fn reopen(&mut self, place: usize) {
        let root = root_of(place);
        if root == FAN {
            self.open_family();
        } else {
            let id = self.entities[root].id;
            let (seat, tree, shell) = self.open(id, &self.entities[root].description.clone());
            let description = Description::of(shell.machine());
            self.entities[root].open(seat, tree, shell, description);
        }
        self.note(|| format!("{} is open again", path(root)));
        for place in grove_of(root) {
            self.wake(place);
        }
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

impl Entity {
    /// An entity without a shell.
    pub(super) fn resting(
        id: EntityId,
        place: usize,
        description: Description,
        tree: Rc<RefCell<Tree>>,
    ) -> Self {
        Self {
            id,
            path: path(place),
            description,
            seat: 0,
            tree,
            shell: None,
            claims: Arc::default(),
            ending: None,
            settled: 0,
            is_deleted: false,
            inlet: VecDeque::new(),
            closed: false,
            mail: VecDeque::new(),
            dirty: true,
        }
    }

    /// Attaches tree and shell.
    pub(super) fn open(
        &mut self,
        seat: u64,
        tree: Rc<RefCell<Tree>>,
        shell: Shell<AnyMachine>,
        description: Description,
    ) {
        self.description = description;
        self.seat = seat;
        self.tree = tree;
        self.shell = Some(shell);
        self.claims = Arc::default();
        self.ending = None;
        self.settled = 0;
        self.mail.clear();
        self.dirty = true;
    }
}
