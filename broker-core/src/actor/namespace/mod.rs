//! Parent of all entities: creates them, opens them from the store, rebuilds them after a failure,
//! deletes and retires them.
//!
//! ```text
//!             written           opened            retired            written
//!  Creating ──────────► Opening ──────► Open ───────────► Deleting ─────────► gone
//!     │ failed             ▲             │ Retiring
//!     ▼                    └─────────────┤ the tree failed
//!  Undoing ─────────► gone               └─► Closed, if it fails too often
//! ```
//!
//! A subscription lives in the tree of its topic: the topic writes its creation and its removal. It
//! is opened, rebuilt, closed and deleted with the topic.

mod create;
mod delete;
mod open;
mod parked;
mod policy;
mod rebuild;
mod records;
mod recovery;
mod stop;
mod subscription;
mod transfer_end;
mod write;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, Addr, AsyncContext, Context, Handler, SpawnHandle};
use tokio::sync::oneshot;

use super::directory::{Directory, DirectoryEntry};
use super::entity::EntityActor;
use super::inlet::Inlet;
use super::messages::{RoundQuestion, RoundScope};
use crate::admission::Permit;
use crate::change::codec::{NAMESPACE_SPACE, NamespaceFacts};
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::machine::config::QueueConfig;
use crate::path::{EntityName, PathKey};
use crate::policies::namespace_key;
use crate::shared::Shared;
use crate::shell::writer::ShardWriter;
use crate::transfer::claim::TransferClaims;

pub use create::{Create, NewRoot};
use delete::ActorRetired;
pub use delete::DeleteEntity;
use parked::ParkedOperations;
pub use policy::ChangePolicies;
pub(crate) use records::{StoredNamespace, load, unfinished_copy_key};
use recovery::Recoveries;
pub(crate) use stop::StopNamespace;
pub use subscription::CreateSubscription;

/// Id under which the namespace itself has records and policies.
const NAMESPACE: EntityId = EntityId(NAMESPACE_SPACE);

/// Sender of the result of an operation on the namespace, with the room of the operation. The
/// room is held until the answer, and as long as the caller uses it for further requests; it bounds
/// the mailbox. Requests of the broker itself concern entities, whose number is bounded.
pub struct AnswerTo {
    sender: oneshot::Sender<Result<(), Rejection>>,
    room: Arc<Permit>,
}

impl AnswerTo {
    /// Returns a sender and the receiver of its result.
    pub fn new(room: &Arc<Permit>) -> (Self, oneshot::Receiver<Result<(), Rejection>>) {
        let (sender, answered) = oneshot::channel();
        (Self { sender, room: Arc::clone(room) }, answered)
    }

    /// Releases the room, then answers.
    pub fn send(self, result: Result<(), Rejection>) {
        drop(self.room);
        // The receiver may be gone.
        self.sender.send(result).ok();
    }
}

/// Actor of the namespace.
pub struct NamespaceActor {
    shared: Arc<Shared>,
    writers: Vec<Arc<ShardWriter>>,
    arbiters: Vec<actix::ArbiterHandle>,
    entities: HashMap<EntityId, NamespaceEntity>,
    paths: HashMap<PathKey, EntityId>,
    /// Number of queues and topics (QUO-01), and of subscriptions (QUO-08).
    root_count: usize,
    subscription_count: usize,
    next_id: u64,
    id_limit: u64,
    /// The counter of ids, as it was last read or written.
    stored_id_limit: Option<u64>,
    duplicate_key: [u8; 16],
    /// Facts about the namespace itself (CNT-10).
    facts: NamespaceFacts,
    are_facts_new: bool,
    /// Creations that wait for a block of ids.
    waiting: Vec<PendingCreation>,
    /// Operations that wait for the outcome of a creation or deletion.
    parked: ParkedOperations,
    /// Entities whose policies are being stored.
    policies_in_flight: BTreeSet<EntityId>,
    makes_root_policy: bool,
    recoveries: Recoveries,
    opening: usize,
    opened: Option<oneshot::Sender<()>>,
    stopping: bool,
    stopped: Option<oneshot::Sender<()>>,
    /// Entities that had not ended at the last full check during a stop.
    not_ended: Vec<EntityId>,
    /// Timer of the grace period of a stop, until all entities are retired.
    grace: Option<SpawnHandle>,
}

/// A creation that waits for a block of ids.
enum PendingCreation {
    Root(Create),
    Subscription(CreateSubscription),
}

struct NamespaceEntity {
    kind: EntityKind,
    /// The topic of a subscription.
    topic: Option<EntityId>,
    /// The subscriptions of a topic.
    subscriptions: BTreeSet<EntityId>,
    key: PathKey,
    path: Arc<str>,
    inlet: Arc<Inlet>,
    /// Transfers that others have taken over from its current actor.
    transfer_claims: Arc<TransferClaims>,
    observed: Arc<crate::telemetry::LiveGauges>,
    state: State,
    actor: Option<Addr<EntityActor>>,
    failures: VecDeque<Instant>,
    /// Whether the result of the topic's last request about this subscription is unknown.
    is_outcome_unknown: bool,
    answer: Option<AnswerTo>,
}

impl NamespaceEntity {
    fn entry(&self, id: EntityId) -> DirectoryEntry {
        DirectoryEntry {
            id,
            kind: self.kind,
            path: Arc::clone(&self.path),
            inlet: Arc::clone(&self.inlet),
            observed: Arc::clone(&self.observed),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its records are being stored.
    Creating,
    /// Its actor is being started.
    Opening,
    Open,
    /// Its actor is being retired.
    Retiring,
    /// Its deletion is being stored.
    Deleting,
    /// Its creation failed; records that may have been stored are being removed.
    Undoing,
    /// It failed too often.
    Closed,
}

impl NamespaceActor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        writers: Vec<Arc<ShardWriter>>,
        arbiters: Vec<actix::ArbiterHandle>,
        loaded: StoredNamespace,
        opened: oneshot::Sender<()>,
    ) -> Self {
        let mut namespace = Self {
            shared,
            writers,
            arbiters,
            entities: HashMap::new(),
            paths: HashMap::new(),
            root_count: 0,
            subscription_count: 0,
            next_id: loaded.id_limit,
            id_limit: loaded.id_limit,
            stored_id_limit: loaded.stored_id_limit,
            duplicate_key: loaded.duplicate_key,
            facts: loaded.facts,
            are_facts_new: loaded.are_facts_new,
            waiting: Vec::new(),
            parked: ParkedOperations::default(),
            policies_in_flight: BTreeSet::new(),
            makes_root_policy: loaded.has_policies
                && !loaded.policies.contains_key(&EntityId(NAMESPACE_SPACE)),
            recoveries: Recoveries::new(),
            opening: 0,
            opened: Some(opened),
            stopping: false,
            stopped: None,
            not_ended: Vec::new(),
            grace: None,
        };
        for (id, kind, path) in loaded.roots {
            namespace.enter(id, kind, &path, State::Opening);
        }
        for (id, topic, name) in loaded.subscriptions {
            namespace.enter_subscription(id, topic, &name, State::Opening);
        }
        let policies = &namespace.shared.policies;
        for (id, held) in loaded.policies {
            let owner = namespace.entities.get(&id).map(|entity| entity.key.clone());
            policies.install(&owner.unwrap_or_else(namespace_key), held);
        }
        if loaded.ended_anonymous_access {
            policies.end_anonymous_access();
        }
        namespace
    }

    fn directory(&self) -> &Directory {
        &self.shared.directory
    }

    fn enter(&mut self, id: EntityId, kind: EntityKind, path: &str, state: State) {
        let key = PathKey::fold(path);
        let entity = NamespaceEntity {
            kind,
            topic: None,
            subscriptions: BTreeSet::new(),
            key: key.clone(),
            path: path.into(),
            inlet: Arc::default(),
            transfer_claims: Arc::default(),
            observed: Arc::default(),
            state,
            actor: None,
            failures: VecDeque::new(),
            is_outcome_unknown: false,
            answer: None,
        };
        if state == State::Creating {
            self.directory().begin_creation(&key);
        }
        self.paths.insert(key, id);
        self.entities.insert(id, entity);
        self.root_count += usize::from(kind != EntityKind::Subscription);
        self.subscription_count += usize::from(kind == EntityKind::Subscription);
    }

    /// Enters a subscription of an existing topic.
    fn enter_subscription(&mut self, id: EntityId, topic: EntityId, name: &str, state: State) {
        let Some(owner) = self.entities.get_mut(&topic) else { return };
        owner.subscriptions.insert(id);
        let name = EntityName::Subscription { topic: (*owner.path).into(), name: name.into() };
        self.enter(id, EntityKind::Subscription, &name.path(), state);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.topic = Some(topic);
        }
    }

    /// Returns the root entity of a tree.
    fn root_of(&self, id: EntityId) -> EntityId {
        self.entities.get(&id).and_then(|entity| entity.topic).unwrap_or(id)
    }

    /// Returns a topic or queue with all entities below it.
    fn family_of(&self, root: EntityId) -> Vec<EntityId> {
        let below = self.entities.get(&root).into_iter().flat_map(|root| &root.subscriptions);
        std::iter::once(root).chain(below.copied()).collect()
    }

    /// Returns the writer of an entity's tree.
    fn writer(&self, id: EntityId) -> Option<&Arc<ShardWriter>> {
        let count = self.writers.len() as u64;
        let root = self.root_of(id);
        self.writers.get(usize::try_from(root.0.checked_rem(count)?).ok()?)
    }

    fn config(&self) -> QueueConfig {
        QueueConfig::of(&self.shared.settings, self.duplicate_key)
    }

    fn forget(&mut self, id: EntityId) -> Option<NamespaceEntity> {
        let entity = self.entities.remove(&id)?;
        self.paths.remove(&entity.key);
        self.directory().remove(&entity.key);
        self.continue_parked(&entity.key);
        if entity.kind != EntityKind::Subscription {
            self.shared.policies.install(&entity.key, Vec::new());
        }
        if let Some(topic) = entity.topic.and_then(|topic| self.entities.get_mut(&topic)) {
            topic.subscriptions.remove(&id);
        }
        let count = match entity.kind {
            EntityKind::Queue | EntityKind::Topic => &mut self.root_count,
            EntityKind::Subscription => &mut self.subscription_count,
        };
        *count = count.saturating_sub(1);
        Some(entity)
    }
}

impl Actor for NamespaceActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let roots = self.entities.iter().filter(|(_, entity)| entity.topic.is_none());
        let ids: Vec<EntityId> = roots.map(|(id, _)| *id).collect();
        if self.are_facts_new && !ids.is_empty() {
            self.write_facts();
        }
        self.opening = ids.len() + 1;
        self.begin_policies(context.address());
        for id in ids {
            self.open(id, context.address());
        }
        self.note_opened();
    }
}

impl Handler<RoundQuestion> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, RoundQuestion(round): RoundQuestion, _: &mut Context<Self>) {
        let are_settled = self
            .entities
            .values()
            .all(|entity| matches!(entity.state, State::Open | State::Closed));
        let is_quiet = self.opening == 0
            && self.recoveries.is_empty()
            && self.waiting.is_empty()
            && self.policies_in_flight.is_empty()
            && are_settled;
        round.record(is_quiet || round.scope == RoundScope::AllButStore);
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(RoundQuestion(Arc::clone(&round)));
        }
    }
}

fn refuse(answer: Option<AnswerTo>, reason: Rejection) {
    if let Some(answer) = answer {
        answer.send(Err(reason));
    }
}

#[cfg(test)]
mod tests;
