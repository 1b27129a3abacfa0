//! The parent of all entities: creates them, starts them from the store, rebuilds them after a
//! failure, deletes and retires them.
//!
//! ```text
//!             written           opened            retired            written
//!  Creating ──────────► Opening ──────► Open ───────────► Deleting ─────────► gone
//!     │ failed             ▲             │ Retiring
//!     ▼                    └─────────────┤ the tree failed
//!  Undoing ─────────► gone               └─► Closed, if it fails too often
//! ```

mod create;
mod delete;
mod open;
mod rebuild;
mod records;
mod settle;
mod stop;
mod write;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, Addr, AsyncContext, Context};
use tokio::sync::oneshot;

use super::directory::{Directory, Entry};
use super::entity::EntityActor;
use super::inlet::Inlet;
use crate::broker::Shared;
use crate::description::QueueDescription;
use crate::entity::queue::QueueConfig;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::shell::writer::ShardWriter;
use crate::transfer::passage::Passages;

pub use create::CreateQueue;
pub use delete::DeleteEntity;
pub(super) use delete::IdleElapsed;
use delete::Retired;
pub(super) use rebuild::TreeFailed;
pub(crate) use records::{Loaded, load};
pub(crate) use stop::Stop;

/// The result of an operation on the namespace.
pub type Answer<T> = oneshot::Sender<Result<T, Rejection>>;

/// The actor.
pub struct NamespaceActor {
    shared: Arc<Shared>,
    writers: Vec<Arc<ShardWriter>>,
    arbiters: Vec<actix::ArbiterHandle>,
    entities: HashMap<EntityId, Entity>,
    paths: HashMap<PathKey, EntityId>,
    next_id: u64,
    id_limit: u64,
    duplicate_key: [u8; 16],
    /// Creations that wait for a block of ids.
    waiting: Vec<CreateQueue>,
    opening: usize,
    opened: Option<oneshot::Sender<()>>,
    stopping: bool,
    stopped: Option<oneshot::Sender<()>>,
}

struct Entity {
    key: PathKey,
    path: Arc<str>,
    inlet: Arc<Inlet>,
    /// The transfers of its present actor that others have taken over.
    passages: Arc<Passages>,
    observed: Arc<crate::telemetry::Observed>,
    state: State,
    actor: Option<Addr<EntityActor>>,
    failures: VecDeque<Instant>,
    /// A description that the store does not have yet.
    description: Option<QueueDescription>,
    answer: Option<Answer<()>>,
}

impl Entity {
    fn entry(&self, id: EntityId) -> Entry {
        Entry {
            id,
            path: Arc::clone(&self.path),
            inlet: Arc::clone(&self.inlet),
            observed: Arc::clone(&self.observed),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its records are on their way to the store.
    Creating,
    /// Its actor is being started.
    Opening,
    Open,
    /// Its actor is being retired.
    Retiring,
    /// The deletion is on its way to the store.
    Deleting,
    /// Its creation failed, and whatever of it may have landed is being removed.
    Undoing,
    /// It failed too often.
    Closed,
}

impl NamespaceActor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        writers: Vec<Arc<ShardWriter>>,
        arbiters: Vec<actix::ArbiterHandle>,
        loaded: Loaded,
        opened: oneshot::Sender<()>,
    ) -> Self {
        let mut namespace = Self {
            shared,
            writers,
            arbiters,
            entities: HashMap::new(),
            paths: HashMap::new(),
            next_id: loaded.id_limit,
            id_limit: loaded.id_limit,
            duplicate_key: loaded.duplicate_key,
            waiting: Vec::new(),
            opening: 0,
            opened: Some(opened),
            stopping: false,
            stopped: None,
        };
        for (id, path) in loaded.entities {
            namespace.enter(id, &path, State::Opening);
        }
        namespace
    }

    fn directory(&self) -> &Directory {
        &self.shared.directory
    }

    fn enter(&mut self, id: EntityId, path: &str, state: State) {
        let key = PathKey::fold(path);
        let entity = Entity {
            key: key.clone(),
            path: path.into(),
            inlet: Arc::default(),
            passages: Arc::default(),
            observed: Arc::default(),
            state,
            actor: None,
            failures: VecDeque::new(),
            description: None,
            answer: None,
        };
        self.paths.insert(key, id);
        self.entities.insert(id, entity);
    }

    fn writer(&self, id: EntityId) -> Option<&Arc<ShardWriter>> {
        let count = self.writers.len() as u64;
        self.writers.get(usize::try_from(id.0.checked_rem(count)?).ok()?)
    }

    fn config(&self) -> QueueConfig {
        self.shared.settings.queue_config(self.duplicate_key)
    }

    fn forget(&mut self, id: EntityId) -> Option<Entity> {
        let entity = self.entities.remove(&id)?;
        self.paths.remove(&entity.key);
        self.directory().remove(&entity.key);
        Some(entity)
    }
}

impl Actor for NamespaceActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(usize::MAX >> 4);
        let ids: Vec<EntityId> = self.entities.keys().copied().collect();
        self.opening = ids.len() + 1;
        for id in ids {
            self.open(id, context.address());
        }
        self.note_opened();
    }
}

fn refuse(answer: Option<Answer<()>>, reason: Rejection) {
    if let Some(answer) = answer {
        answer.send(Err(reason)).ok();
    }
}
