//! Handle on a running broker, for transports and embedding programs. Part of the data path between
//! step 1 and step 2.

mod declare;
mod entity;
mod fork;
mod idle;
mod looking;
mod policies;
mod queues;
mod topics;
mod update;

pub use self::entity::Entity;
pub use self::update::Update;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::Addr;
use tokio::sync::{Notify, oneshot};

use crate::actor::namespace::{AnswerTo, DeleteEntity, NamespaceActor, StopNamespace};
use crate::admission::{Budget, Permit, Pool};
use crate::cluster::tenure::Ending;
use crate::command::InboundMessage;
use crate::condition::Condition;
use crate::description::{Destination, EntityKind, Settings};
use crate::error::{BrokerError, Rejection};
use crate::ids::{ReceiverId, Ticket, TrackingId};
use crate::message::{Content, Message};
use crate::path::{EntityAddress, Node, SubQueue};
use crate::shared::{Namespace, Shared};
use crate::store::{Shortage, StoreError};
use crate::telemetry::LiveGauges;
use crate::time::{TimeSpan, Timestamp};

/// Maximum time that a management request waits for room while others hold it for busy entities.
const MANAGEMENT_WAIT_MAX: TimeSpan = TimeSpan::from_seconds(5);

/// A turn of an entity that takes too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StalledTurn {
    /// Path of the entity; none while it is being opened.
    pub path: Option<Arc<str>>,
    /// Duration of the turn until now.
    pub duration: TimeSpan,
}

/// A running broker. Cheap to clone; usable from any thread and any runtime. The broker ends when
/// [`Broker::stop`] is called, not when the last handle is dropped.
///
/// A program manages its entities through the `Admin` of a client (`peeklock-client`), in the same
/// way in process and over a network. [`Broker::create_queue`] and similar methods, and
/// [`Access`](crate::Access), are the interface for transports and for code that runs with the
/// broker.
#[derive(Clone)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) namespace: Addr<NamespaceActor>,
    pub(crate) engine: Arc<Engine>,
    /// Management budget of a connection; the shared default place is used if none.
    pub(crate) management_place: Option<Arc<Budget>>,
}

/// Threads that the broker owns (DESIGN D10).
pub(crate) struct Engine {
    pub(crate) end: Notify,
    pub(crate) thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Broker {
    /// Name, tier and limits.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Name, tier and instants of the namespace (CNT-10).
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.shared.namespace
    }

    /// Random identity of this broker, unique among all brokers. It stays the same after every
    /// start on the same data. Forwarders identify the messages of this broker with it at their
    /// destinations.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.shared.edge.broker_id()
    }

    /// The broker's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Waits until the broker's clock shows an instant.
    pub async fn sleep_until(&self, at: Timestamp) {
        self.shared.clock.sleep_until(at).await;
    }

    /// Name of the store, and whether its data survives the process.
    #[must_use]
    pub fn store(&self) -> (&'static str, bool) {
        (self.shared.store.name(), self.shared.store.is_durable())
    }

    /// Whether clients without credentials are admitted (SEC-17).
    #[must_use]
    pub fn allows_anonymous(&self) -> bool {
        self.shared.allows_anonymous()
    }

    /// Creates the error that a client sees: gives it a tracking id and logs it once under that id
    /// (SND-06).
    #[must_use]
    pub fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        let tracking_id = TrackingId(self.shared.edge.entropy().next_u128());
        crate::telemetry::count_rejection(rejection.condition());
        let error = BrokerError::new(rejection, tracking_id, entity, self.now());
        match error.condition() {
            Condition::InternalError => {
                tracing::error!(%tracking_id, entity, detail = error.detail(), "operation failed");
            }
            Condition::Unauthorized => self.shared.refusals.record(&error),
            condition => {
                tracing::debug!(
                    %tracking_id,
                    entity,
                    %condition,
                    detail = error.detail(),
                    "operation rejected"
                );
            }
        }
        error
    }

    /// Returns a handle on an entity or sub-queue by its path (ADR-01 to ADR-15). The handle keeps
    /// the entity that it found: if the path is deleted and created again, the handle answers
    /// `EntityNotFound` (DESIGN D4). An entity exists when its creation was answered; this method
    /// does not wait for a creation that is still being stored.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn entity(&self, path: &str) -> Result<Entity, BrokerError> {
        self.find(path).map_err(|rejection| self.refuse(rejection, path))
    }

    /// Whether entities have paths below this one: `orders/eu` is below `orders`.
    #[must_use]
    pub fn has_entities_below(&self, path: &str) -> bool {
        let prefix = format!("{}/", path.to_lowercase());
        let kinds = [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription];
        kinds.iter().any(|kind| !self.shared.directory.list(*kind, &prefix, 0, 1).is_empty())
    }

    /// Returns the entity or sub-queue of a management node, for example `orders/$management` for
    /// `orders` (ADR-13).
    ///
    /// # Errors
    /// `EntityNotFound`, also for a path that is not a management node.
    pub fn entity_of_management_node(&self, path: &str) -> Result<Entity, BrokerError> {
        self.find_at(&Node::Management, path).map_err(|rejection| self.refuse(rejection, path))
    }

    pub(crate) fn find(&self, path: &str) -> Result<Entity, Rejection> {
        self.find_at(&Node::Entity, path)
    }

    /// As [`Broker::find`], but waits for a creation that is being stored (ENT-32). A suspended
    /// broker waits before it reports that there is no entity (CLU-17).
    pub(crate) async fn find_created(&self, path: &str) -> Result<Entity, Rejection> {
        let found = self.find_stored(path).await;
        if !is_absent(&found) || self.shared.tenure.is_valid() {
            return found;
        }
        self.shared.tenure.valid().await.map_err(Ending::refusal)?;
        self.find_stored(path).await
    }

    /// As [`Broker::find_created`], but a suspended broker refuses to report that there is no
    /// entity: a connection that asks goes on with its heartbeats (CLU-17).
    pub(crate) async fn find_at_once(&self, path: &str) -> Result<Entity, Rejection> {
        // A creation is not stored before the lease is renewed.
        let found = match self.is_suspended() {
            true => self.find(path),
            false => self.find_stored(path).await,
        };
        found.map_err(|reason| self.unless_suspended(reason))
    }

    async fn find_stored(&self, path: &str) -> Result<Entity, Rejection> {
        let found = self.find(path);
        if !is_absent(&found) {
            return found;
        }
        self.wait_for_creation(path).await;
        self.find(path)
    }

    /// Replaces the reason that there is no entity while the broker is suspended: another broker
    /// may have created it.
    pub(crate) fn unless_suspended(&self, reason: Rejection) -> Rejection {
        let tenure = &self.shared.tenure;
        if reason.condition() != Condition::EntityNotFound || tenure.is_valid() {
            return reason;
        }
        tenure.ending().map_or_else(
            || {
                Rejection::server_busy(
                    "the broker cannot renew its lease in the database, and does not know at \
                     present whether the entity exists; try again",
                )
            },
            Ending::refusal,
        )
    }

    /// As [`Broker::entity`], but waits for a creation that is being stored (ENT-32).
    pub(crate) async fn created_entity(&self, path: &str) -> Result<Entity, BrokerError> {
        self.find_created(path).await.map_err(|rejection| self.refuse(rejection, path))
    }

    /// Waits until the creation of the entity at a path is stored or has failed; returns at once if
    /// there is none.
    pub(crate) async fn wait_for_creation(&self, path: &str) {
        if let Ok(address) = EntityAddress::parse(path) {
            self.shared.directory.wait_for_creation(&address.entity.key()).await;
        }
    }

    fn find_at(&self, wanted: &Node, path: &str) -> Result<Entity, Rejection> {
        let address = EntityAddress::parse(path)?;
        let absent = || Rejection::entity_not_found(path);
        let EntityAddress { sub_queue, node, .. } = &address;
        if node != wanted {
            return Err(absent());
        }
        let key = address.entity.key();
        let entry = self.shared.directory.get(&key).ok_or_else(absent)?;
        // A topic has no dead-letter queue (ADR-14).
        if entry.kind == EntityKind::Topic && *sub_queue == SubQueue::DeadLetter {
            return Err(absent());
        }
        let path = format!("{}{}", entry.path, sub_queue.suffix());
        Ok(Entity::new(self, entry, path, key, *sub_queue))
    }

    /// Returns the path of an entity to which messages can be sent through `via` (VIA-02).
    pub(crate) fn find_destination(&self, path: &str, via: &Entity) -> Result<Arc<str>, Rejection> {
        Destination::parse(path).and_then(|destination| match destination {
            Destination::Entity(key) if key == *via.key() => {
                Err(Rejection::invalid_operation(format!(
                    "`{path}` cannot be both the destination and the via entity; send to it \
                     directly"
                )))
            }
            Destination::Entity(key) => match self.shared.directory.get(&key) {
                Some(entry) => Ok(entry.path),
                None => Err(Rejection::entity_not_found(path)),
            },
            Destination::Foreign(_) => Err(Rejection::entity_not_found(path)),
        })
    }

    /// Checks that new destinations exist (FWD-02): first ForwardTo, second
    /// ForwardDeadLetteredMessagesTo.
    pub(crate) async fn check_destinations(
        &self,
        destinations: [Option<&str>; 2],
    ) -> Result<(), Rejection> {
        for (text, property) in destinations.into_iter().zip(Destination::PROPERTIES) {
            let Some(text) = text else { continue };
            match Destination::parse(text)? {
                Destination::Entity(key) => {
                    let directory = &self.shared.directory;
                    if directory.get(&key).is_none() {
                        directory.wait_for_creation(&key).await;
                    }
                    if directory.get(&key).is_none() {
                        return Err(Rejection::destination_not_found(property, text));
                    }
                }
                Destination::Foreign(scheme) => self.shared.forwarders.check(&scheme, text)?,
            }
        }
        Ok(())
    }

    /// Deletes a queue, topic or subscription with all its messages, and a topic with its
    /// subscriptions (ENT-14). Returns when the deletion is durable.
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_entity(&self, path: &str) -> Result<(), BrokerError> {
        let kind = self.created_entity(path).await?.kind();
        self.delete(path, kind).await
    }

    /// As [`Broker::delete_entity`], if the entity is of the given kind.
    ///
    /// # Errors
    /// As for [`Broker::delete_entity`]; `EntityNotFound` for an entity of another kind.
    pub async fn delete(&self, path: &str, kind: EntityKind) -> Result<(), BrokerError> {
        let entity = self.manageable_entity(path, kind).await?;
        let key = entity.key().clone();
        self.ask_namespace((1, 0), |answer| DeleteEntity { key, answer })
            .await
            .map(drop)
            .map_err(|rejection| self.refuse(rejection, path))
    }

    /// Waits for room for `count` management operations that bring `bytes` bytes, for at most
    /// [`MANAGEMENT_WAIT_MAX`].
    pub(crate) async fn management_room(
        &self,
        count: u64,
        bytes: u64,
    ) -> Result<Permit, Rejection> {
        let room = self.management_place.as_deref().unwrap_or(&self.shared.management);
        if let Some(permit) = room.try_take_list(count, bytes) {
            return Ok(permit);
        }
        let until = self.now().plus(MANAGEMENT_WAIT_MAX);
        tokio::select! {
            biased;
            permit = room.wait_list(count, bytes) => Ok(permit),
            () = self.shared.clock.sleep_until(until) => Err(Rejection::server_busy(
                "too many management requests wait for busy entities: they hold half of \
                 `broker_inbound_bytes_max`; try again later",
            )),
        }
    }

    /// Sends a request with `count` operations and `bytes` bytes to the namespace when there is
    /// room. Returns the room, which also covers reading the result.
    async fn ask_namespace<M>(
        &self,
        (count, bytes): (usize, u64),
        mail: impl FnOnce(AnswerTo) -> M,
    ) -> Result<Arc<Permit>, Rejection>
    where
        M: actix::Message<Result = ()> + Send + 'static,
        NamespaceActor: actix::Handler<M>,
    {
        self.shared.tenure.valid().await.map_err(Ending::refusal)?;
        let room = Arc::new(self.management_room(count as u64, bytes).await?);
        let (answer, answered) = AnswerTo::new(&room);
        self.namespace.do_send(mail(answer));
        answered.await.unwrap_or_else(|_| Err(stopped()))?;
        Ok(room)
    }

    /// Returns the paths of a kind in list order: up to `top` after the first `skip`.
    pub(crate) fn paths_of(
        &self,
        kind: EntityKind,
        prefix: &str,
        skip: usize,
        top: usize,
    ) -> Vec<Arc<str>> {
        self.shared.directory.list(kind, prefix, skip, top)
    }

    /// Number of queues, topics and subscriptions.
    #[must_use]
    pub fn entity_count(&self) -> usize {
        self.shared.directory.len()
    }

    /// Gauges of all entities, for a metrics exporter.
    #[must_use]
    pub fn observed(&self) -> Vec<(Arc<str>, Arc<LiveGauges>)> {
        let all = self.shared.directory.sorted();
        all.into_iter().map(|(_, entry)| (entry.path, entry.observed)).collect()
    }

    /// Bytes that the store currently uses on its medium; none if unknown. For a metrics exporter.
    #[must_use]
    pub fn store_bytes(&self) -> Option<u64> {
        self.shared.store.stored_bytes()
    }

    /// Reason why the store currently refuses new messages, if it does (QUO-05); for probes and
    /// metrics exporters.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        let shortage = self.shared.store.shortage(Shortage::PROBE_BYTES);
        shortage.filter(|one| !matches!(one, Shortage::DatabaseAway { .. }))
    }

    /// Reason why the database of the store cannot be used at present, if so: requests wait until
    /// it can. For probes and metrics exporters.
    #[must_use]
    pub fn outage(&self) -> Option<Shortage> {
        let shortage = self.shared.store.shortage(Shortage::PROBE_BYTES);
        shortage.filter(|one| matches!(one, Shortage::DatabaseAway { .. }))
    }

    /// Returns the entity if it has the given kind. Its sub-queues are managed with it (DLQ-02).
    async fn manageable_entity(&self, path: &str, kind: EntityKind) -> Result<Entity, BrokerError> {
        let entity = self.created_entity(path).await?;
        self.require_kind(entity, path, kind)
    }

    /// Returns the entity if it has the given kind and is not a sub-queue.
    pub(crate) fn require_kind(
        &self,
        entity: Entity,
        path: &str,
        kind: EntityKind,
    ) -> Result<Entity, BrokerError> {
        if entity.kind() != kind {
            return Err(self.refuse(Rejection::wrong_entity_kind(kind, path, entity.kind()), path));
        }
        if entity.sub_queue() == SubQueue::Main {
            return Ok(entity);
        }
        let detail = format!("`{path}` is a sub-queue; manage its parent instead");
        Err(self.refuse(Rejection::invalid_operation(detail), path))
    }

    /// Prepares a message for sending: encodes it, and gives it an id if it has none (MSG-07).
    #[must_use]
    pub fn inbound(&self, message: Message) -> InboundMessage {
        self.shared.edge.take(message)
    }

    /// Prepares an encoded message for sending.
    #[must_use]
    pub fn inbound_content(&self, content: Content) -> InboundMessage {
        self.shared.edge.take_content(content)
    }

    /// Prepares an encoded message whose id another broker created: it is never a duplicate
    /// (DUP-14).
    #[must_use]
    pub fn inbound_with_assigned_id(&self, content: Content) -> InboundMessage {
        self.shared.edge.take_with_assigned_id(content)
    }

    /// Returns a new unique name for a command.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.shared.ticket()
    }

    /// Returns the first of `count` consecutive unique names for commands.
    #[must_use]
    pub fn tickets(&self, count: u64) -> Ticket {
        Ticket(self.shared.tickets.fetch_add(count, Ordering::Relaxed))
    }

    /// Returns 128 unpredictable random bits, for tokens that a transport gives to its clients.
    #[must_use]
    pub fn random_bits(&self) -> u128 {
        self.shared.edge.entropy().next_u128()
    }

    /// Returns a new unique name for a receiver link or a holder of locks.
    #[must_use]
    pub fn receiver_id(&self) -> ReceiverId {
        self.shared.clients.receiver_id()
    }

    /// Returns the inbound budget of a new connection, in bytes (DESIGN D6).
    #[must_use]
    pub fn connection_budget(&self) -> Budget {
        self.shared.budget.connection(self.shared.settings.limits.connection_inbound_bytes_max)
    }

    /// Returns a handle for one connection: management requests through it wait in turn with
    /// other connections; connections with less in progress go first. Clones share its place.
    #[must_use]
    pub fn with_connection_place(&self) -> Self {
        let place = self.shared.management.connection(u64::MAX);
        Self { management_place: Some(Arc::new(place)), ..self.clone() }
    }

    /// Pool for data that all connections together hold for clients that have not yet taken it.
    #[must_use]
    pub fn outbound_pool(&self) -> Arc<Pool> {
        Arc::clone(&self.shared.outbound)
    }

    /// Reason why the broker can no longer work, if it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.health.failure()
    }

    /// Whether the broker waits until its lease is renewed, and meanwhile lets nothing out (CLU-17).
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        !self.shared.tenure.is_valid()
    }

    /// Time that is left of the lease of this broker, which is zero while it is suspended; none if
    /// no other broker can use the store.
    #[must_use]
    pub fn lease_left(&self) -> Option<TimeSpan> {
        self.shared.tenure.left()
    }

    /// Number of shards of the store, all of which this broker owns.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.shared.store.shard_count()
    }

    /// Time by which the time of the store is ahead of the clock of the broker, which follows it
    /// slowly (CLU-14). Without a lease, the wall clock of the machine is meant.
    #[must_use]
    pub fn clock_offset(&self) -> TimeSpan {
        self.shared.clock.offset()
    }

    /// Waits until the lease of this broker has ended permanently, and returns the reason.
    pub async fn lease_ended(&self) -> Ending {
        self.shared.tenure.ended().await
    }

    /// The turn of an entity that has taken a second or more, if there is one: all other entities
    /// of its arbiter wait.
    #[must_use]
    pub fn stalled(&self) -> Option<StalledTurn> {
        let (id, duration) = self.shared.pulses.stalled(self.shared.clock.now())?;
        let path = self.shared.directory.path_of(id);
        Some(StalledTurn { path, duration })
    }

    /// Waits until the broker can no longer work, and returns the reason.
    pub async fn failed(&self) -> String {
        self.shared.health.failed().await
    }

    /// Announces that the broker stops soon: a suspension, now or later, ends its lease, and
    /// requests that wait for its end are refused. Call it before the transports are stopped, which
    /// may wait for these requests.
    pub fn begin_stop(&self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.begin_stop();
        }
    }

    /// Stops the broker. Waiting receives end without messages. Settlements continue until no
    /// message or session is locked and no send waits for room, for at most `grace`. Then every
    /// entity is closed with its durable state. No delivery count is raised (SET-31). Stop the
    /// transports first. A second call does nothing.
    ///
    /// # Errors
    /// The error of a store that could not finish.
    pub async fn stop(&self, grace: impl Into<Duration>) -> Result<(), StoreError> {
        let grace = grace.into();
        let thread = self.engine.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        self.begin_stop();
        if let Some(jobs) = &self.shared.jobs {
            jobs.end().await;
        }
        let (answer, answered) = oneshot::channel();
        self.namespace.do_send(StopNamespace { grace, answer });
        answered.await.ok();
        let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(&self.engine));
        // A thread of its own: the caller may be in any runtime or in none.
        let (done, ended) = oneshot::channel();
        let closing = std::thread::Builder::new().name("peeklock-stop".to_owned());
        let closing = closing.spawn(move || {
            // The store ends the lease last: until then nobody takes the shards.
            if let Some(keeper) = &shared.keeper {
                keeper.end();
            }
            let result = shared.store.close();
            engine.end.notify_one();
            // The threads have no work left and end at once.
            thread.join().ok();
            done.send(result).ok();
        });
        let failed =
            |why: &str| StoreError::Failed(format!("the store did not close: {why}").into());
        closing.map_err(|error| failed(&error.to_string()))?;
        ended.await.unwrap_or_else(|_| Err(failed("its thread panicked")))
    }
}

impl Broker {
    /// Ends the threads of the broker without any closing work, like the end of its process: for
    /// callers that cannot wait, such as a finished test. Acknowledged data is in the store.
    /// Callers that wait for an answer never get one.
    pub fn abandon(&self) {
        let thread = self.engine.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some() {
            if let Some(keeper) = &self.shared.keeper {
                keeper.abandon();
            }
            self.engine.end.notify_one();
        }
    }
}

fn is_absent(found: &Result<Entity, Rejection>) -> bool {
    found.as_ref().is_err_and(|reason| reason.condition() == Condition::EntityNotFound)
}

fn stopped() -> Rejection {
    Rejection::cancelled("the broker is stopping")
}
