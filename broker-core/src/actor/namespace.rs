//! The parent of all entities: creates them, starts them from the store, rebuilds them after a
//! failure, deletes and retires them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use tokio::sync::oneshot;

use super::desk::Desk;
use super::directory::{Directory, Entry};
use super::entity::{EndWaits, EntityActor, Parts, Retire, RetireWhen, RoomAgain};
use super::inlet::Inlet;
use crate::broker::Shared;
use crate::change::codec;
use crate::description::QueueDescription;
use crate::entity::Machine;
use crate::entity::queue::{Queue, QueueConfig};
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::shell::Shell;
use crate::shell::tree::Tree;
use crate::shell::writer::ShardWriter;
use crate::store::{Batch, Key, Store, StoreError};

/// The space of the namespace's own records.
const NAMESPACE_SPACE: u64 = 0;
const TABLE_IDS: u8 = 0x01;
const TABLE_SECRETS: u8 = 0x02;
const TABLE_ENTITIES: u8 = 0x10;
/// Ids are taken from the store in blocks, so that creating an entity writes no counter of its own.
const ID_BLOCK: u64 = 1_000;
/// So many failures within [`FAILURE_WINDOW`] close an entity for good.
const FAILURES_MAX: usize = 3;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

/// The result of an operation on the namespace.
pub type Answer<T> = oneshot::Sender<Result<T, Rejection>>;

/// Creates a queue.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CreateQueue {
    /// Validated before.
    pub description: QueueDescription,
    /// Answered when it is durable and open.
    pub answer: Answer<()>,
}

/// Deletes an entity.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeleteEntity {
    /// Its path.
    pub key: PathKey,
    /// Answered when it is durably gone.
    pub answer: Answer<()>,
}

/// Ends all waits, then, after `grace`, retires every entity.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Stop {
    pub(crate) grace: Duration,
    pub(crate) answer: oneshot::Sender<()>,
}

/// An entity has been idle for its AutoDeleteOnIdle.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct IdleElapsed(pub(super) EntityId);

/// A tree ended and has nothing on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct TreeFailed {
    pub(super) id: EntityId,
    pub(super) why: String,
}

/// An entity was opened on its arbiter, or could not be.
#[derive(Message)]
#[rtype(result = "()")]
struct Opened {
    id: EntityId,
    result: Result<Addr<EntityActor>, String>,
}

/// The records of a creation or deletion are durable, or not.
#[derive(Message)]
#[rtype(result = "()")]
struct Written {
    id: EntityId,
    result: Result<(), StoreError>,
}

/// What the actor of an entity was doing is durable; its records can be deleted.
#[derive(Message)]
#[rtype(result = "()")]
struct Retired(EntityId);

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

/// What is known of a namespace before its entities are opened.
pub(crate) struct Loaded {
    pub(crate) duplicate_key: [u8; 16],
    id_limit: u64,
    entities: Vec<(EntityId, Box<str>)>,
}

/// Reads the namespace's own records; makes the first ones in an empty store.
pub(crate) fn load(store: &dyn Store, fresh_key: [u8; 16]) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded { duplicate_key: fresh_key, id_limit: 1, entities: Vec::new() };
    let mut damaged = false;
    let prefix = Key::of_space(NAMESPACE_SPACE);
    store.scan(prefix.as_bytes(), &mut |key, value| {
        let rest = key.get(crate::store::SPACE_BYTES..).unwrap_or_default();
        match rest.split_first() {
            Some((&TABLE_IDS, _)) => match value.try_into() {
                Ok(bytes) => loaded.id_limit = u64::from_be_bytes(bytes),
                Err(_) => damaged = true,
            },
            Some((&TABLE_SECRETS, _)) => match value.try_into() {
                Ok(bytes) => loaded.duplicate_key = bytes,
                Err(_) => damaged = true,
            },
            Some((&TABLE_ENTITIES, id)) => match (id.try_into(), std::str::from_utf8(value)) {
                (Ok(id), Ok(path)) => {
                    loaded.entities.push((EntityId(u64::from_be_bytes(id)), path.into()));
                }
                _ => damaged = true,
            },
            Some(_) | None => damaged = true,
        }
    })?;
    if damaged {
        return Err(StoreError::Damaged("a record of the namespace cannot be read".into()));
    }
    let mut paths = HashMap::new();
    for (id, path) in &loaded.entities {
        if let Some(other) = paths.insert(PathKey::fold(path), *id) {
            let what = format!("entities {other} and {id} have one path, `{path}`");
            return Err(StoreError::Damaged(what.into()));
        }
        // No id that any record names is given again, whatever became of the counter.
        loaded.id_limit = loaded.id_limit.max(id.0 + 1);
    }
    Ok(loaded)
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

    /// Starts the actor of an entity on its arbiter, from what the store has of it.
    fn open(&mut self, id: EntityId, itself: Addr<Self>) {
        let (Some(writer), Some(entity)) =
            (self.writer(id).map(Arc::clone), self.entities.get_mut(&id))
        else {
            return;
        };
        entity.state = State::Opening;
        let opening = Opening {
            id,
            path: Arc::clone(&entity.path),
            description: entity.description.take(),
            duplicate_key: self.duplicate_key,
            shared: Arc::clone(&self.shared),
            writer,
            inlet: Arc::clone(&entity.inlet),
            observed: Arc::clone(&entity.observed),
            namespace: itself.clone(),
        };
        let index = usize::try_from(hash(&entity.path) % self.arbiters.len() as u64).unwrap_or(0);
        let started = self.arbiters.get(index).is_some_and(|arbiter| {
            arbiter.spawn_fn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| opening.open()))
                    .unwrap_or_else(|_| Err("it panicked while it was opened".to_owned()));
                itself.do_send(Opened { id, result });
            })
        });
        if !started {
            tracing::error!(entity_id = id.0, "arbiter is gone");
        }
    }

    /// Writes records that are ordered with those of the entity.
    fn write(&self, id: EntityId, mut batch: Batch, itself: Addr<Self>) {
        batch.require_sync();
        if let Some(writer) = self.writer(id) {
            writer.submit(batch, Box::new(move |result| itself.do_send(Written { id, result })));
        }
    }

    /// Takes a block of ids from the store; what waits for one is created when it is durable, so that
    /// no id is ever given twice (DESIGN D4). The key of the message id hashes goes with it.
    fn take_id_block(&mut self, itself: Addr<Self>) {
        let limit = self.id_limit + ID_BLOCK;
        let mut batch = Batch::default();
        let space = Key::of_space(NAMESPACE_SPACE);
        batch.put(&space.then(&[TABLE_IDS]), |value| {
            value.extend_from_slice(&limit.to_be_bytes());
        });
        batch.put(&space.then(&[TABLE_SECRETS]), |value| {
            value.extend_from_slice(&self.duplicate_key);
        });
        batch.require_sync();
        if let Some(writer) = self.writers.first() {
            let done = move |result| itself.do_send(IdBlockTaken { limit, result });
            writer.submit(batch, Box::new(done));
        }
    }

    fn create(&mut self, mail: CreateQueue, itself: Addr<Self>) {
        let CreateQueue { description, answer } = mail;
        if self.stopping {
            refuse(Some(answer), Rejection::cancelled("the broker is stopping"));
            return;
        }
        let key = PathKey::fold(&description.path);
        if self.paths.contains_key(&key) {
            refuse(Some(answer), Rejection::entity_already_exists(&description.path));
            return;
        }
        let count_max = self.shared.settings.limits.entity_count_max;
        if self.entities.len() >= count_max {
            let name = &self.shared.settings.name;
            refuse(Some(answer), Rejection::too_many("queues and topics", name, count_max));
            return;
        }
        if self.next_id == self.id_limit {
            self.waiting.push(CreateQueue { description, answer });
            if self.waiting.len() == 1 {
                self.take_id_block(itself);
            }
            return;
        }
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let mut batch = Batch::default();
        let queue = Queue::new(id, description.clone(), self.config(), self.shared.clock.now());
        batch.put(&entity_key(id), |value| value.extend_from_slice(description.path.as_bytes()));
        queue.write_creation(&mut batch);
        self.enter(id, &description.path, State::Creating);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.description = Some(description);
            entity.answer = Some(answer);
        }
        self.write(id, batch, itself);
    }

    /// Removes every record of an entity.
    fn write_deletion(&self, id: EntityId, itself: Addr<Self>) {
        let mut batch = Batch::default();
        batch.delete(&entity_key(id));
        batch.delete_prefix(&codec::space_key(id));
        self.write(id, batch, itself);
    }

    fn config(&self) -> QueueConfig {
        QueueConfig {
            release_on_detach: self.shared.settings.locks_release_on_detach,
            duplicate_key: self.duplicate_key,
        }
    }

    /// Retires an open entity, to delete it when nothing of it is on its way.
    fn delete(&mut self, id: EntityId, answer: Option<Answer<()>>, itself: Addr<Self>) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        let reason = Rejection::entity_not_found(&entity.path);
        match (entity.state, &entity.actor) {
            (State::Open, Some(actor)) => {
                entity.state = State::Retiring;
                entity.answer = answer;
                self.shared.directory.remove(&entity.key);
                let done = Box::new(move || itself.do_send(Retired(id)));
                actor.do_send(Retire { when: RetireWhen::Now, reason, done });
            }
            (State::Closed, _) => {
                entity.state = State::Retiring;
                entity.answer = answer;
                self.shared.directory.remove(&entity.key);
                itself.do_send(Retired(id));
            }
            (State::Creating | State::Opening | State::Open, _) => {
                refuse(answer, Rejection::update_conflict(&entity.path));
            }
            (State::Retiring | State::Deleting | State::Undoing, _) => refuse(answer, reason),
        }
    }

    fn forget(&mut self, id: EntityId) -> Option<Entity> {
        let entity = self.entities.remove(&id)?;
        self.paths.remove(&entity.key);
        self.directory().remove(&entity.key);
        Some(entity)
    }

    fn close(&mut self, id: EntityId, why: &str) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        tracing::error!(entity = %entity.path, why, "entity is closed until the broker is restarted");
        entity.state = State::Closed;
        entity.actor = None;
        let reason =
            Rejection::internal(format!("`{}` failed too often and is closed", entity.path));
        entity.inlet.close(&reason);
        refuse(entity.answer.take(), reason);
        // Its path answers with the reason, rather than that there is nothing.
        let (key, entry) = (entity.key.clone(), entity.entry(id));
        self.directory().insert(key, entry);
    }

    fn note_opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        if self.opening == 0
            && let Some(opened) = self.opened.take()
        {
            opened.send(()).ok();
        }
    }

    fn end_if_retired(&mut self) {
        let busy = self.entities.values().any(|entity| {
            entity.actor.is_some() || matches!(entity.state, State::Creating | State::Opening)
        });
        if !busy && let Some(stopped) = self.stopped.take() {
            stopped.send(()).ok();
        }
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

impl Handler<CreateQueue> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: CreateQueue, context: &mut Self::Context) {
        self.create(mail, context.address());
    }
}

impl Handler<DeleteEntity> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: DeleteEntity, context: &mut Self::Context) {
        match self.paths.get(&mail.key).copied() {
            Some(id) => self.delete(id, Some(mail.answer), context.address()),
            None => refuse(Some(mail.answer), Rejection::entity_not_found(mail.key.as_str())),
        }
    }
}

impl Handler<IdleElapsed> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, IdleElapsed(id): IdleElapsed, context: &mut Self::Context) {
        let open = self.entities.get(&id).filter(|entity| entity.state == State::Open);
        if let Some((entity, actor)) =
            open.and_then(|entity| Some((entity, entity.actor.as_ref()?)))
        {
            // The actor looks again: it may have been used since it said so.
            let itself = context.address();
            let done = Box::new(move || itself.do_send(Retired(id)));
            let reason = Rejection::entity_not_found(&entity.path);
            actor.do_send(Retire { when: RetireWhen::Idle, reason, done });
        }
    }
}

impl Handler<Written> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Written { id, result }: Written, context: &mut Self::Context) {
        let Some(state) = self.entities.get(&id).map(|entity| entity.state) else { return };
        match (state, result) {
            (State::Creating, Ok(())) => self.open(id, context.address()),
            (
                State::Opening | State::Open | State::Retiring | State::Deleting | State::Closed,
                Ok(()),
            ) => {
                if let Some(answer) = self.forget(id).and_then(|entity| entity.answer) {
                    answer.send(Ok(())).ok();
                }
            }
            (State::Creating, Err(error)) => {
                tracing::error!(entity_id = id.0, %error, "entity could not be created");
                if let Some(entity) = self.entities.get_mut(&id) {
                    entity.state = State::Undoing;
                }
                // It may have landed nevertheless; nothing of it may be found at the next start.
                self.recover_writer(id);
                self.write_deletion(id, context.address());
            }
            (State::Undoing, result) => {
                if let Err(error) = result {
                    tracing::error!(entity_id = id.0, %error, "failed creation could not be undone");
                }
                if let Some(entity) = self.forget(id) {
                    refuse(entity.answer, Rejection::internal("the store failed"));
                }
                if self.stopping {
                    self.end_if_retired();
                }
            }
            (_, Err(error)) => {
                self.close(id, &error.to_string());
                self.recover_writer(id);
            }
        }
    }
}

/// A block of ids is durable, or not.
#[derive(Message)]
#[rtype(result = "()")]
struct IdBlockTaken {
    limit: u64,
    result: Result<(), StoreError>,
}

impl Handler<IdBlockTaken> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: IdBlockTaken, context: &mut Self::Context) {
        let IdBlockTaken { limit, result } = mail;
        let waiting = std::mem::take(&mut self.waiting);
        // Whether or not it landed, the next block begins behind it.
        self.next_id = self.id_limit;
        self.id_limit = limit;
        if let Err(error) = result {
            tracing::error!(%error, "no ids could be taken for new entities");
            self.next_id = limit;
            if let Some(Err(error)) = self.writers.first().map(|writer| writer.recover()) {
                self.shared.health.fail(&error.to_string());
            }
            for mail in waiting {
                refuse(Some(mail.answer), Rejection::internal("the store failed"));
            }
            return;
        }
        for mail in waiting {
            self.create(mail, context.address());
        }
    }
}

impl NamespaceActor {
    /// Takes the shard of an entity over again; if that fails the store is of no more use.
    fn recover_writer(&self, id: EntityId) -> bool {
        let Some(writer) = self.writer(id) else { return false };
        match writer.recover() {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "the store failed for good");
                self.shared.health.fail(&error.to_string());
                false
            }
        }
    }
}

impl Handler<Opened> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Opened { id, result }: Opened, context: &mut Self::Context) {
        match result {
            Ok(actor) => {
                let Some(entity) = self.entities.get_mut(&id) else { return self.note_opened() };
                if self.stopping {
                    let itself = context.address();
                    let done = Box::new(move || itself.do_send(Retired(id)));
                    let reason = Rejection::cancelled("the broker is stopping");
                    actor.do_send(Retire { when: RetireWhen::Now, reason, done });
                }
                entity.actor = Some(actor);
                entity.state = State::Open;
                let entry = entity.entry(id);
                let (key, answer) = (entity.key.clone(), entity.answer.take());
                self.directory().insert(key, entry);
                if let Some(answer) = answer {
                    answer.send(Ok(())).ok();
                }
            }
            Err(why) => {
                self.close(id, &why);
                if self.stopping {
                    self.end_if_retired();
                }
            }
        }
        self.note_opened();
    }
}

impl Handler<TreeFailed> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, TreeFailed { id, why }: TreeFailed, context: &mut Self::Context) {
        crate::telemetry::count_rebuild();
        let Some(entity) = self.entities.get_mut(&id) else { return };
        if entity.state == State::Retiring {
            self.recover_writer(id);
            return;
        }
        if self.stopping {
            // What it had not stored is answered; the next start opens it from the store.
            entity.actor = None;
            self.end_if_retired();
            return;
        }
        let now = Instant::now();
        entity.failures.push_back(now);
        entity.failures.retain(|at| now.duration_since(*at) < FAILURE_WINDOW);
        let too_often = entity.failures.len() >= FAILURES_MAX;
        entity.actor = None;
        if !self.recover_writer(id) || too_often {
            self.close(id, &why);
            return;
        }
        self.open(id, context.address());
    }
}

impl Handler<Retired> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Retired(id): Retired, context: &mut Self::Context) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        entity.actor = None;
        let key = entity.key.clone();
        // A deletion that was asked for before the stop is still carried out.
        if self.stopping && entity.state != State::Retiring {
            self.end_if_retired();
            return;
        }
        entity.state = State::Deleting;
        self.directory().remove(&key);
        // A failure while it was retired has left the shard to be taken over.
        self.recover_writer(id);
        self.write_deletion(id, context.address());
        if self.stopping {
            self.end_if_retired();
        }
    }
}

impl Handler<Stop> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Stop { grace, answer }: Stop, context: &mut Self::Context) {
        self.stopping = true;
        self.stopped = Some(answer);
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(EndWaits);
        }
        let itself = context.address();
        context.run_later(grace, move |namespace, _| {
            let reason = Rejection::cancelled("the broker is stopping");
            let open = namespace.entities.iter().filter(|(_, one)| one.state == State::Open);
            for (id, entity) in open {
                let Some(actor) = &entity.actor else { continue };
                let (id, itself) = (*id, itself.clone());
                let done = Box::new(move || itself.do_send(Retired(id)));
                actor.do_send(Retire { when: RetireWhen::Now, reason: reason.clone(), done });
            }
            namespace.end_if_retired();
        });
    }
}

/// Everything that is needed to open an entity on another thread.
struct Opening {
    id: EntityId,
    path: Arc<str>,
    description: Option<QueueDescription>,
    duplicate_key: [u8; 16],
    shared: Arc<Shared>,
    writer: Arc<ShardWriter>,
    inlet: Arc<Inlet>,
    observed: Arc<crate::telemetry::Observed>,
    namespace: Addr<NamespaceActor>,
}

thread_local! {
    static DESK: RefCell<Option<Rc<Desk>>> = const { RefCell::new(None) };
}

impl Opening {
    /// Restores the machine from the store and starts its actor on this arbiter.
    fn open(self) -> Result<Addr<EntityActor>, String> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let config = QueueConfig {
            release_on_detach: shared.settings.locks_release_on_detach,
            duplicate_key: self.duplicate_key,
        };
        let description =
            self.description.unwrap_or_else(|| shared.settings.new_queue(&*self.path));
        let mut queue = Queue::new(self.id, description, config, now);
        let mut corrupt = None;
        shared
            .store
            .scan(codec::space_key(self.id).as_bytes(), &mut |key, value| {
                if let Err(error) = queue.restore(key, value) {
                    corrupt.get_or_insert(error);
                }
            })
            .map_err(|error| error.to_string())?;
        if let Some(error) = corrupt {
            return Err(error.to_string());
        }
        queue.restored(now);
        let desk = DESK.with(|desk| {
            Rc::clone(
                desk.borrow_mut().get_or_insert_with(|| Desk::open(Arc::clone(&shared.clock))),
            )
        });
        let tree = Rc::new(RefCell::new(Tree::new(self.writer, queue.size_bytes())));
        let seat = desk.take_seat(self.id, &tree);
        let tokens = Arc::clone(shared);
        let actor_of_waker: Arc<Mutex<Option<Addr<EntityActor>>>> = Arc::default();
        let waker_actor = Arc::clone(&actor_of_waker);
        let shell = Shell::new(
            queue,
            tree,
            Arc::clone(&shared.store),
            Arc::new(shared.settings.limits.clone()),
            Box::new(move || tokens.edge.entropy().next_u64()),
            shared.parking.clone(),
            Box::new(move || {
                let actor = waker_actor.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Box::new(move || {
                    if let Some(actor) = actor {
                        actor.do_send(RoomAgain);
                    }
                })
            }),
        );
        let actor = EntityActor::new(Parts {
            id: self.id,
            shell,
            inlet: self.inlet,
            observed: self.observed,
            clock: Arc::clone(&shared.clock),
            desk,
            seat,
            namespace: self.namespace,
        })
        .start();
        *actor_of_waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor.clone());
        Ok(actor)
    }
}

fn entity_key(id: EntityId) -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[TABLE_ENTITIES]).then(&id.0.to_be_bytes())
}

fn refuse(answer: Option<Answer<()>>, reason: Rejection) {
    if let Some(answer) = answer {
        answer.send(Err(reason)).ok();
    }
}

/// Spreads paths over arbiters; the same path always goes to the same one.
fn hash(path: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new();
    PathKey::fold(path).hash(&mut hasher);
    hasher.finish()
}
