//! Opening: restores the machines of a tree from the store, and starts their actors on its arbiter.
//! Start, creation and rebuild call it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Handler, Message};

use super::{ActorRetired, NamespaceActor, State};
use crate::actor::courier::Courier;
use crate::actor::desk::Desk;
use crate::actor::drive::{Drive, DriveParts, QueueTimeout};
use crate::actor::entity::{Adopt, EntityActor, SharedTree};
use crate::actor::inlet::Inlet;
use crate::actor::messages::{Retire, RetireWhen, RoomAgain};
use crate::actor::pulse::Pulse;
use crate::change::codec::{self, RecordKey, read_rule};
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::machine::Machine;
use crate::machine::any::AnyMachine;
use crate::machine::config::QueueConfig;
use crate::machine::family::Family;
use crate::machine::queue::Queue;
use crate::machine::topic::Topic;
use crate::path::PathKey;
use crate::rule::Rule;
use crate::shared::Shared;
use crate::shell::Shell;
use crate::shell::tree::Tree;
use crate::shell::writer::ShardWriter;
use crate::store::{RecordSlice, SLICE_BYTES};
use crate::time::Timestamp;
use crate::transfer::claim::TransferClaims;

/// Result of opening a tree on its arbiter.
#[derive(Message)]
#[rtype(result = "()")]
struct OpenResult {
    root: EntityId,
    result: Result<Vec<OpenedEntity>, String>,
}

/// One entity of an opened tree.
struct OpenedEntity {
    id: EntityId,
    /// Its actor, unless it is being removed or does not exist.
    actor: Option<Addr<EntityActor>>,
    /// Whether the store has the entity.
    is_there: bool,
}

/// Result of taking a new subscription into the tree of its topic.
#[derive(Message)]
#[rtype(result = "()")]
struct AdoptResult {
    id: EntityId,
    result: Result<Addr<EntityActor>, AdoptError>,
}

/// Reason why a new subscription has no actor.
enum AdoptError {
    /// Its topic has failed or is retired.
    NoHome,
    /// Its records cannot be used.
    Unusable(String),
}

impl NamespaceActor {
    /// Starts the actors of a tree on its arbiter, from the records in the store.
    pub(super) fn open(&mut self, root: EntityId, itself: Addr<Self>) {
        let Some(writer) = self.writer(root).map(Arc::clone) else { return };
        let mut members = Vec::new();
        for id in self.family_of(root) {
            let Some(entity) = self.entities.get_mut(&id) else { continue };
            let starts = match entity.state {
                State::Creating if entity.kind == EntityKind::Subscription => {
                    // Skipped because the topic has not been asked yet; opened if the topic's
                    // answer is unknown.
                    if !entity.is_outcome_unknown {
                        continue;
                    }
                    true
                }
                State::Creating | State::Opening | State::Open => true,
                State::Retiring | State::Deleting | State::Undoing | State::Closed => false,
            };
            if starts {
                entity.state = State::Opening;
                entity.transfer_claims = Arc::default();
            }
            members.push(OpenTask {
                id,
                kind: entity.kind,
                path: Arc::clone(&entity.path),
                starts,
                shared: Arc::clone(&self.shared),
                duplicate_key: self.duplicate_key,
                inlet: Arc::clone(&entity.inlet),
                claims: Arc::clone(&entity.transfer_claims),
                observed: Arc::clone(&entity.observed),
                namespace: itself.clone(),
            });
        }
        self.spawn_on_arbiter_of(root, move || async move {
            let result = catch_panic(open_tree(writer, members)).await.unwrap_or_else(Err);
            itself.do_send(OpenResult { root, result });
        });
    }

    /// Runs a future on the arbiter of a tree.
    fn spawn_on_arbiter_of<F: Future<Output = ()> + 'static>(
        &self,
        root: EntityId,
        work: impl FnOnce() -> F + Send + 'static,
    ) {
        let Some(path) = self.entities.get(&root).map(|root| &root.path) else { return };
        let index = usize::try_from(hash(path) % self.arbiters.len() as u64).unwrap_or(0);
        let spawn = || {
            actix_rt::spawn(work());
        };
        if !self.arbiters.get(index).is_some_and(|arbiter| arbiter.spawn_fn(spawn)) {
            tracing::error!(entity_id = root.0, "arbiter is gone");
        }
    }

    /// Starts the actor of a new subscription in the tree of its topic, which has written it.
    pub(super) fn adopt(&mut self, id: EntityId, itself: Addr<Self>) {
        let topic = self.root_of(id);
        let Some(entity) = self.entities.get_mut(&id) else { return };
        entity.state = State::Opening;
        entity.transfer_claims = Arc::default();
        let opening = OpenTask {
            id,
            kind: entity.kind,
            path: Arc::clone(&entity.path),
            starts: true,
            shared: Arc::clone(&self.shared),
            duplicate_key: self.duplicate_key,
            inlet: Arc::clone(&entity.inlet),
            claims: Arc::clone(&entity.transfer_claims),
            observed: Arc::clone(&entity.observed),
            namespace: itself.clone(),
        };
        let actor = self.entities.get(&topic).and_then(|topic| topic.actor.clone());
        let Some(actor) = actor else { return };
        self.spawn_on_arbiter_of(topic, move || async move {
            let own_records = opening.read_own_records().await;
            let start = move |home: Option<SharedTree>| {
                let adopt = |home: SharedTree| {
                    let own_records = own_records?;
                    catch_unwind(AssertUnwindSafe(|| opening.adopt(&home, &own_records)))
                        .unwrap_or_else(|_| Err(PANICKED.to_owned()))
                };
                let result = home.map_or(Err(AdoptError::NoHome), |home| {
                    adopt(home).map_err(AdoptError::Unusable)
                });
                itself.do_send(AdoptResult { id, result });
            };
            actor.do_send(Adopt(Box::new(start)));
        });
    }

    pub(super) fn note_opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        if self.opening == 0
            && let Some(opened) = self.opened.take()
        {
            self.shared.are_open.send_replace(true);
            opened.send(()).ok();
        }
    }

    /// Notes that the actor of an entity serves it, and answers its creation.
    fn started(&mut self, id: EntityId, actor: Addr<EntityActor>, itself: Addr<Self>) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        if self.stopping {
            let done = Box::new(move || itself.do_send(ActorRetired(id)));
            let reason = Rejection::cancelled("the broker is stopping");
            actor.do_send(Retire { when: RetireWhen::Now, reason, done });
        }
        entity.actor = Some(actor);
        entity.state = State::Open;
        let entry = entity.entry(id);
        let (key, answer) = (entity.key.clone(), entity.answer.take());
        self.directory().insert(key.clone(), entry);
        // Before the answer: its client may look the entity up at once, without waiting.
        self.directory().end_creation(&key);
        if let Some(answer) = answer {
            answer.send(Ok(()));
        }
        self.continue_parked(&key);
    }
}

impl Handler<OpenResult> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, OpenResult { root, result }: OpenResult, context: &mut Self::Context) {
        match result {
            Ok(opened) => {
                for OpenedEntity { id, actor, is_there } in opened {
                    match actor {
                        Some(actor) => self.started(id, actor, context.address()),
                        None => self.resolve_unknown_outcome(id, is_there, context.address()),
                    }
                }
            }
            Err(why) => {
                self.close_family(root, &why);
                if self.stopping {
                    self.end_if_retired();
                }
            }
        }
        self.note_opened();
    }
}

impl Handler<AdoptResult> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, AdoptResult { id, result }: AdoptResult, context: &mut Self::Context) {
        match result {
            Ok(actor) => self.started(id, actor, context.address()),
            Err(AdoptError::Unusable(why)) => self.close(id, &why),
            // A failed topic will be reopened together with it; a retiring topic takes it along.
            Err(AdoptError::NoHome) => {
                let topic = self.root_of(id);
                let goes = self.stopping
                    || self.entities.get(&topic).is_some_and(|topic| {
                        matches!(topic.state, State::Retiring | State::Closed)
                    });
                if let Some(entity) = self.entities.get_mut(&id).filter(|_| goes) {
                    entity.state = State::Retiring;
                    let reason = Rejection::entity_not_found(&entity.path);
                    super::refuse(entity.answer.take(), reason);
                    let key = entity.key.clone();
                    self.continue_parked(&key);
                }
                self.delete_if_retired(topic, context.address());
            }
        }
        if self.stopping {
            self.end_if_retired();
        }
    }
}

/// Data for opening an entity on another thread.
struct OpenTask {
    id: EntityId,
    kind: EntityKind,
    path: Arc<str>,
    /// Whether the entity gets an actor; an entity that is being removed is only read.
    starts: bool,
    shared: Arc<Shared>,
    duplicate_key: [u8; 16],
    inlet: Arc<Inlet>,
    claims: Arc<TransferClaims>,
    observed: Arc<crate::telemetry::LiveGauges>,
    namespace: Addr<NamespaceActor>,
}

thread_local! {
    static DESK: RefCell<Option<Rc<Desk>>> = const { RefCell::new(None) };
}

const PANICKED: &str = "the entity panicked while it was opened";

/// Time for which records are restored before other work on the arbiter gets a turn.
const RESTORE_TIME_MAX: Duration = Duration::from_millis(1);

/// Runs a future; a panic becomes an error.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or_else(|_| Poll::Ready(Err(PANICKED.to_owned())), |polled| polled.map(Ok))
    })
    .await
}

/// Restores the machines of a tree from the store, and starts their actors on this arbiter. The
/// first member is the root. Other work on the arbiter runs in between.
async fn open_tree(
    writer: Arc<ShardWriter>,
    members: Vec<OpenTask>,
) -> Result<Vec<OpenedEntity>, String> {
    let mut members = members.into_iter();
    let Some(root) = members.next() else { return Err("there is nothing to open".to_owned()) };
    let now = root.shared.clock.now();
    let desk = DESK.with(|desk| {
        let shared = &root.shared;
        let open = || {
            let tenure = Arc::clone(&shared.tenure);
            Desk::open(Arc::clone(&shared.clock), shared.pulses.add(), tenure)
        };
        Rc::clone(desk.borrow_mut().get_or_insert_with(open))
    });
    let (id, namespace) = (root.id, root.namespace.clone());
    let pulse = &desk.pulse;
    let add_tree = |tree: Tree| {
        let tree = Rc::new(RefCell::new(tree));
        let tree_number = desk.add_tree(id, &tree, namespace.recipient());
        SharedTree { tree, desk: Rc::clone(&desk), tree_number }
    };
    if root.kind != EntityKind::Topic {
        let queue = root.restore_queue(now, pulse).await?;
        let _turn = pulse.begin(id, root.shared.clock.now());
        let home = add_tree(Tree::new(writer, queue.size_bytes()));
        let actor = Some(root.start(AnyMachine::Queue(Box::new(queue)), &home));
        return Ok(vec![OpenedEntity { id, actor, is_there: true }]);
    }
    let mut topic = root.restore_topic(now, pulse).await?;
    let mut family = Family::new(Arc::clone(topic.description()));
    let mut stored_bytes = topic.size_bytes();
    let mut restored = Vec::new();
    for member in members {
        let subscription = member.restore_subscription(&topic, now, pulse).await?;
        if let Some((queue, rules)) = &subscription
            && let Some(description) = queue.subscription_description()
        {
            topic.adopt(member.id, description, queue.last_sequence(), rules.clone());
            family.add_subscription(member.id);
            queue.report_to_family(&mut family);
            stored_bytes += queue.size_bytes();
            if !member.starts {
                family.begin_removal(member.id);
            }
        }
        restored.push((member, subscription));
    }
    let _turn = pulse.begin(id, root.shared.clock.now());
    let home = add_tree(Tree::of_family(writer, stored_bytes, family));
    let actor = Some(root.start(AnyMachine::Topic(Box::new(topic)), &home));
    let mut opened = vec![OpenedEntity { id, actor, is_there: true }];
    for (member, subscription) in restored {
        let (id, is_there) = (member.id, subscription.is_some());
        let queue = subscription.map(|(queue, _)| queue).filter(|_| member.starts);
        let actor = queue.map(|queue| member.start(AnyMachine::Queue(Box::new(queue)), &home));
        opened.push(OpenedEntity { id, actor, is_there });
    }
    Ok(opened)
}

impl OpenTask {
    fn config(&self) -> QueueConfig {
        QueueConfig::of(&self.shared.settings, self.duplicate_key)
    }

    async fn restore_queue(&self, now: Timestamp, pulse: &Pulse) -> Result<Queue, String> {
        let description = self.shared.settings.new_queue(&*self.path);
        let mut queue = Queue::new(self.id, description, self.config(), now);
        self.restore(&mut queue, pulse, |_, _| Ok(false)).await?;
        Ok(queue)
    }

    async fn restore_topic(&self, now: Timestamp, pulse: &Pulse) -> Result<Topic, String> {
        let description = self.shared.settings.new_topic(&*self.path);
        let mut topic = Topic::new(self.id, description, self.config(), now);
        self.restore(&mut topic, pulse, |_, _| Ok(false)).await?;
        Ok(topic)
    }

    /// Restores a subscription with its rules, which the topic evaluates; none if the store does
    /// not have it.
    async fn restore_subscription(
        &self,
        topic: &Topic,
        now: Timestamp,
        pulse: &Pulse,
    ) -> Result<Option<(Queue, Vec<Rule>)>, String> {
        let mut queue = self.empty_subscription(topic.description(), now);
        let mut rules = Vec::new();
        let mut is_there = false;
        let mut rules_and_description = |key: &[u8], value: &[u8]| match codec::read_key(key)? {
            RecordKey::Rule => {
                let rule = Rule::restore(read_rule(value)?).map_err(|_| "rule is not readable")?;
                rules.push(rule);
                Ok(true)
            }
            RecordKey::Description => {
                is_there = true;
                Ok(false)
            }
            _ => Ok(false),
        };
        self.restore(&mut queue, pulse, &mut rules_and_description).await?;
        Ok(is_there.then_some((queue, rules)))
    }

    /// Returns a subscription without its records.
    fn empty_subscription(
        &self,
        topic: &Arc<crate::description::TopicDescription>,
        now: Timestamp,
    ) -> Queue {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let description = self.shared.settings.new_subscription(&*topic.path, name);
        Queue::subscription(self.id, description, Arc::clone(topic), self.config(), now)
    }

    /// Passes all records of an entity to its machine, except records that `other` takes.
    async fn restore(
        &self,
        machine: &mut impl Machine,
        pulse: &Pulse,
        mut other: impl FnMut(&[u8], &[u8]) -> Result<bool, &'static str>,
    ) -> Result<(), String> {
        let mut records = self.shared.store.scan(&codec::space_key(self.id));
        let mut slice = RecordSlice::default();
        let mut began = Instant::now();
        loop {
            let next = async || records.next(SLICE_BYTES, &mut slice).await;
            self.shared.outlast(next).await.map_err(|error| error.to_string())?;
            // The store and other trees may have taken their time.
            let now = self.shared.clock.now();
            let turn = pulse.begin(self.id, now);
            if slice.is_empty() {
                machine.restored(now);
                return Ok(());
            }
            for (key, value) in slice.iter() {
                let is_taken = other(key, value)
                    .map_err(|reason| format!("record {key:?} cannot be read: {reason}"))?;
                if !is_taken {
                    machine.restore(key, value).map_err(|error| error.to_string())?;
                }
            }
            drop(turn);
            if began.elapsed() >= RESTORE_TIME_MAX {
                tokio::task::yield_now().await;
                began = Instant::now();
            }
        }
    }

    /// Reads the description and the counters of a new subscription. Only its own actor changes
    /// them.
    async fn read_own_records(&self) -> Result<[RecordSlice; 2], String> {
        let mut own = <[RecordSlice; 2]>::default();
        let keys = [codec::description_key(self.id), codec::counters_key(self.id)];
        for (key, slice) in keys.iter().zip(&mut own) {
            let mut records = self.shared.store.scan(key);
            let next = async || records.next(SLICE_BYTES, slice).await;
            self.shared.outlast(next).await.map_err(|error| error.to_string())?;
        }
        Ok(own)
    }

    /// Starts the actor of a new subscription in the tree of its topic. Messages for it already
    /// wait in the tree, and are also in the store; so the machine gets only its description and
    /// counters.
    fn adopt(
        &self,
        home: &SharedTree,
        own_records: &[RecordSlice],
    ) -> Result<Addr<EntityActor>, String> {
        let now = self.shared.clock.now();
        let topic = home.tree.borrow_mut().family().map(|family| Arc::clone(family.topic()));
        let topic = topic.ok_or_else(|| "its topic is a queue".to_owned())?;
        let mut queue = self.empty_subscription(&topic, now);
        for (key, value) in own_records.iter().flat_map(RecordSlice::iter) {
            queue.restore(key, value).map_err(|error| error.to_string())?;
        }
        queue.restored(now);
        Ok(self.start(AnyMachine::Queue(Box::new(queue)), home))
    }

    /// Starts an actor that drives a machine.
    fn start(&self, machine: AnyMachine, home: &SharedTree) -> Addr<EntityActor> {
        let shared = &self.shared;
        let tokens = Arc::clone(shared);
        let actor_of_waker: Arc<Mutex<Option<Addr<EntityActor>>>> = Arc::default();
        let waker_actor = Arc::clone(&actor_of_waker);
        let shell = Shell::new(
            machine,
            Rc::clone(&home.tree),
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
        )
        .with_census(Arc::clone(&shared.census))
        .with_tenure(&shared.tenure)
        .with_loads(shared.loads.clone())
        .with_taps(self.id, Arc::clone(&shared.taps))
        .with_journeys((self.id, Arc::clone(&self.path)), shared.journeys.clone())
        .with_samples(self.id, shared.samples.clone())
        .with_observed(Arc::clone(&self.observed));
        home.tree.borrow_mut().join_family(self.id, shell.number());
        let claims = Arc::clone(&self.claims);
        let actor = EntityActor::new(Drive::new(DriveParts {
            id: self.id,
            shell,
            inlet: Arc::clone(&self.inlet),
            courier: Courier::new(self.id, Arc::clone(shared), claims),
            observed: Arc::clone(&self.observed),
            clock: Arc::clone(&shared.clock),
            desk: Rc::clone(&home.desk),
            tree_number: home.tree_number,
            namespace: self.namespace.clone().recipient(),
            queue_timeout: QueueTimeout {
                room: shared.budget.clone(),
                loads: shared.loads.clone(),
                wait_max: shared.settings.limits.send_wait_max,
            },
        }))
        .start();
        *actor_of_waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor.clone());
        actor
    }
}

/// Distributes paths over arbiters; a path always gets the same one.
fn hash(path: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new();
    PathKey::fold(path).hash(&mut hasher);
    hasher.finish()
}
