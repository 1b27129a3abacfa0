//! The handle on a running broker, and on its entities. What transports and embedding code use.
//! (Data path, step 1 to 2.)

mod topics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::Addr;
use tokio::sync::{Notify, oneshot, watch};

use crate::actor::directory::Directory;
use crate::actor::inlet::Inlet;
use crate::actor::namespace::{Create, DeleteEntity, NamespaceActor, Root, Stop};
use crate::builder::BrokerBuilder;
use crate::call::{Call, CallList};
use crate::clock::Clock;
use crate::command::{Command, Described, InboundMessage, Outcome, RuleCommand, SessionCommand};
use crate::contract::{Authorizer, Principal, Right};
use crate::description::{Destination, EntityKind, QueueUpdate, Settings};
use crate::error::{BrokerError, Rejection};
use crate::forwarders::Forwarders;
use crate::ids::{EntityId, ReceiverId, Ticket, TrackingId};
use crate::inbound::Edge;
use crate::message::{Content, Message};
use crate::path::{EntityAddress, EntityName, Node, PathKey, SubQueue, validate_entity_path};
use crate::permits::Budget;
use crate::request::{Release, Request, Way, release_all};
use crate::store::Store;
use crate::telemetry::Observed;
use crate::time::Timestamp;
use crate::transaction::Room;

/// What all handles of one broker share.
pub struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) directory: Directory,
    pub(crate) edge: Edge,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) budget: Budget,
    pub(crate) parking: Budget,
    pub(crate) transactions: Room,
    pub(crate) health: Health,
    pub(crate) tickets: AtomicU64,
    pub(crate) receivers: AtomicU64,
    /// Whether every entity that the store has was opened.
    pub(crate) are_open: watch::Sender<bool>,
    pub(crate) forwarders: Forwarders,
}

impl Shared {
    /// A name for a command, never given before.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether the broker can do its work.
pub(crate) struct Health {
    failure: watch::Sender<Option<String>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { failure: watch::Sender::new(None) }
    }

    pub(crate) fn fail(&self, why: &str) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert_with(|| why.to_owned());
            first
        });
    }
}

/// A running broker. Cheap to clone; usable from any thread and any runtime. The broker ends when
/// [`Broker::stop`] is called, not when the last handle is dropped.
#[derive(Clone)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) namespace: Addr<NamespaceActor>,
    pub(crate) engine: Arc<Engine>,
}

/// The threads that the broker owns (DESIGN D10).
pub(crate) struct Engine {
    pub(crate) end: Notify,
    pub(crate) thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Broker {
    /// A broker with default settings, to be adjusted and started.
    #[must_use]
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// Name, tier and limits.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Names this broker among all others, for as long as its data exists: random, and the same after
    /// every start on the same data. What its forwarders tell others of its messages begins with it.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.shared.edge.broker_id()
    }

    /// The broker's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The name of the store, and whether what it keeps outlives the process.
    #[must_use]
    pub fn store(&self) -> (&'static str, bool) {
        (self.shared.store.name(), self.shared.store.is_durable())
    }

    /// Whether clients that have shown nothing are let in (SEC-17).
    #[must_use]
    pub fn allows_anonymous(&self) -> bool {
        self.shared.authorizer.allows_anonymous()
    }

    /// Asks the authorizer; to be asked before every operation, and before the entity is looked up
    /// (SEC-08). `resource` is a path, or empty for the namespace.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        resource: &str,
    ) -> Result<(), BrokerError> {
        self.shared
            .authorizer
            .authorize(principal, right, resource)
            .await
            .map_err(|rejection| self.refuse(rejection, resource))
    }

    /// Asks for the Manage right on every entity of this broker that another is to forward to, beside
    /// that on the other itself (FWD-05, SEC-07). A destination that can be no entity is judged later.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn authorize_destinations(
        &self,
        principal: &Principal,
        destinations: [Option<&str>; 2],
    ) -> Result<(), BrokerError> {
        for text in destinations.into_iter().flatten() {
            if let Ok(Destination::Entity(_)) = Destination::parse(text)
                && let Ok(address) = EntityAddress::parse(text)
            {
                self.authorize(principal, Right::Manage, &address.to_string()).await?;
            }
        }
        Ok(())
    }

    /// Makes the error that a client sees: gives it a tracking id and logs it under that id, once
    /// (SND-06).
    #[must_use]
    pub fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        let tracking_id = TrackingId(self.shared.edge.entropy().next_u128());
        crate::telemetry::count_rejection(rejection.condition());
        let error = BrokerError::new(rejection, tracking_id, entity, self.now());
        if error.condition() == crate::condition::Condition::InternalError {
            tracing::error!(%tracking_id, entity, detail = error.detail(), "operation failed");
        } else {
            tracing::debug!(
                %tracking_id,
                entity,
                condition = %error.condition(),
                detail = error.detail(),
                "operation rejected"
            );
        }
        error
    }

    /// An entity or sub-queue by its path (ADR-01 to ADR-15). The handle stays with the entity it
    /// found: if the path is deleted and created again, it answers `EntityNotFound` (DESIGN D4).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn entity(&self, path: &str) -> Result<Entity, BrokerError> {
        self.find(path).map_err(|rejection| self.refuse(rejection, path))
    }

    fn find(&self, path: &str) -> Result<Entity, Rejection> {
        let address = EntityAddress::parse(path)?;
        let absent = || Rejection::entity_not_found(path);
        let EntityAddress { sub_queue, node: Node::Entity, .. } = &address else {
            return Err(absent());
        };
        let key = address.entity.key();
        let entry = self.shared.directory.get(&key).ok_or_else(absent)?;
        // A topic has no dead-letter queue (ADR-14).
        if entry.kind == EntityKind::Topic && *sub_queue == SubQueue::DeadLetter {
            return Err(absent());
        }
        let path = format!("{}{}", entry.path, sub_queue.suffix());
        Ok(Entity(
            Arc::new(EntityHandle {
                broker: self.clone(),
                id: entry.id,
                kind: entry.kind,
                path: path.into(),
                key,
                sub_queue: *sub_queue,
                inlet: Mutex::new(entry.inlet),
            }),
            None,
        ))
    }

    /// Creates a queue with the properties named, the others at their defaults (ENT-03). Answers
    /// when it is durable and takes messages.
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`,
    /// `EntityNotFound` for a destination that does not exist (FWD-02), `InvalidOperation` for one that
    /// cannot be (FWD-03, FWD-04).
    pub async fn create_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        let refuse = |rejection| self.refuse(rejection, path);
        if EntityAddress::parse(path).is_ok_and(|address| address.sub_queue != SubQueue::Main) {
            let detail = format!("`{path}` is a sub-queue, it is there with its parent");
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        let name = validate_entity_path(path, &self.shared.settings.limits).map_err(refuse)?;
        let description = properties.create(name.path(), &self.shared.settings).map_err(refuse)?;
        self.check_destinations([
            &description.forward_to,
            &description.forward_dead_lettered_messages_to,
        ])
        .map_err(refuse)?;
        let (answer, answered) = oneshot::channel();
        self.namespace.do_send(Create { root: Root::Queue(description), answer });
        answered.await.unwrap_or_else(|_| Err(stopped())).map_err(refuse)?;
        self.describe_queue(path).await
    }

    /// The path of an entity that messages can be sent to by way of another, for
    /// [`Command::SendVia`] (VIA-02). The Send right on both is the transport's to ask for.
    ///
    /// # Errors
    /// `EntityNotFound`; `ArgumentError` for what is no queue or topic, `InvalidOperation` for `via`
    /// itself.
    pub fn transfer_destination(&self, path: &str, via: &Entity) -> Result<Arc<str>, BrokerError> {
        self.find_destination(path, via).map_err(|rejection| self.refuse(rejection, path))
    }

    /// As [`Broker::transfer_destination`], refused to nobody yet.
    pub(crate) fn find_destination(&self, path: &str, via: &Entity) -> Result<Arc<str>, Rejection> {
        Destination::parse(path).and_then(|destination| match destination {
            Destination::Entity(key) if key == via.0.key => Err(Rejection::invalid_operation(
                format!("`{path}` cannot be sent to by way of itself"),
            )),
            Destination::Entity(key) => match self.shared.directory.get(&key) {
                Some(entry) => Ok(entry.path),
                None => Err(Rejection::entity_not_found(path)),
            },
            Destination::Foreign(_) => Err(Rejection::entity_not_found(path)),
        })
    }

    /// What an entity forwards to must be there when it is created or updated (FWD-02).
    fn check_destinations(&self, destinations: [&Option<Box<str>>; 2]) -> Result<(), Rejection> {
        for text in destinations.into_iter().flatten() {
            match Destination::parse(text)? {
                Destination::Entity(key) if self.shared.directory.get(&key).is_none() => {
                    return Err(Rejection::entity_not_found(text));
                }
                Destination::Entity(_) => {}
                Destination::Foreign(scheme) => self.shared.forwarders.check(&scheme, text)?,
            }
        }
        Ok(())
    }

    /// Reads a queue's description and runtime part (ENT-31).
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue, which cannot be managed (DLQ-02).
    pub async fn describe_queue(&self, path: &str) -> Result<Described, BrokerError> {
        let entity = self.manageable(path, EntityKind::Queue)?;
        match entity.call(Command::Describe).await? {
            Outcome::Described(described) => Ok(*described),
            _ => Err(self.refuse(Rejection::internal("unexpected answer"), path)),
        }
    }

    /// Replaces the properties named (ENT-17). With `read_at`, only if the description is still of
    /// that instant.
    ///
    /// # Errors
    /// As for [`Broker::create_queue`], and `EntityNotFound`, `UpdateConflict`.
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        let entity = self.manageable(path, EntityKind::Queue)?;
        let refuse = |rejection| self.refuse(rejection, path);
        loop {
            let current = self.describe_queue(path).await?;
            let description = properties
                .clone()
                .apply_to(&current.description, &self.shared.settings.limits)
                .map_err(refuse)?;
            self.check_destinations([
                &description.forward_to,
                &description.forward_dead_lettered_messages_to,
            ])
            .map_err(refuse)?;
            let command = Command::Update {
                description: Box::new(description),
                read_at: read_at.or(Some(current.updated_at)),
            };
            match entity.call(command).await {
                Ok(_) => return self.describe_queue(path).await,
                // Somebody else was faster: without a version of the caller's, apply it to theirs.
                Err(error)
                    if read_at.is_none()
                        && error.condition() == crate::condition::Condition::UpdateConflict => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes a queue, topic or subscription with everything in it, a topic with its subscriptions
    /// (ENT-14). Answers when it is durably gone.
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue (DLQ-02); `UpdateConflict` while it is being
    /// created or opened again.
    pub async fn delete_entity(&self, path: &str) -> Result<(), BrokerError> {
        let kind = self.entity(path)?.kind();
        self.delete(path, kind).await
    }

    /// As [`Broker::delete_entity`], if the entity is of that kind.
    ///
    /// # Errors
    /// As for [`Broker::delete_entity`]; `EntityNotFound` for one of another kind.
    pub async fn delete(&self, path: &str, kind: EntityKind) -> Result<(), BrokerError> {
        let entity = self.manageable(path, kind)?;
        let (answer, answered) = oneshot::channel();
        self.namespace.do_send(DeleteEntity { key: entity.0.key.clone(), answer });
        answered
            .await
            .unwrap_or_else(|_| Err(stopped()))
            .map_err(|rejection| self.refuse(rejection, path))
    }

    /// The paths of all queues in case-insensitive order, `top` of them after `skip` (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.paths_of(EntityKind::Queue, "", skip, top)
    }

    fn paths_of(&self, kind: EntityKind, prefix: &str, skip: usize, top: usize) -> Vec<Arc<str>> {
        let all = self.shared.directory.sorted_of(kind, prefix);
        all.into_iter().skip(skip).take(top).map(|(_, entry)| entry.path).collect()
    }

    /// The gauges of all entities, for a metrics exporter.
    #[must_use]
    pub fn observed(&self) -> Vec<(Arc<str>, Arc<Observed>)> {
        let all = self.shared.directory.sorted();
        all.into_iter().map(|(_, entry)| (entry.path, entry.observed)).collect()
    }

    /// An entity of that kind; its sub-queues are managed with it (DLQ-02).
    fn manageable(&self, path: &str, kind: EntityKind) -> Result<Entity, BrokerError> {
        let entity = self.entity(path)?;
        if entity.kind() != kind {
            return Err(self.refuse(Rejection::entity_is_no(kind, path, entity.kind()), path));
        }
        if entity.sub_queue() == SubQueue::Main {
            return Ok(entity);
        }
        let detail = format!("`{path}` is a sub-queue, it is managed with its parent");
        Err(self.refuse(Rejection::invalid_operation(detail), path))
    }

    /// Makes a message ready to be sent: encodes it and gives it an id if it has none (MSG-07).
    #[must_use]
    pub fn inbound(&self, message: Message) -> InboundMessage {
        self.shared.edge.take(message)
    }

    /// Makes an encoded message ready to be sent.
    #[must_use]
    pub fn inbound_content(&self, content: Content) -> InboundMessage {
        self.shared.edge.take_content(content)
    }

    /// A name for a command, never given before.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.shared.ticket()
    }

    /// The first of so many consecutive names for commands.
    #[must_use]
    pub fn tickets(&self, count: u64) -> Ticket {
        Ticket(self.shared.tickets.fetch_add(count, Ordering::Relaxed))
    }

    /// Fresh bits that cannot be guessed, for tokens that a transport gives to its clients.
    #[must_use]
    pub fn random_bits(&self) -> u128 {
        self.shared.edge.entropy().next_u128()
    }

    /// A name for a receiver link or a holder of locks, never given before.
    #[must_use]
    pub fn receiver_id(&self) -> ReceiverId {
        ReceiverId(self.shared.receivers.fetch_add(1, Ordering::Relaxed))
    }

    /// What a new connection may have on its way in (DESIGN D6).
    #[must_use]
    pub fn connection_budget(&self) -> Budget {
        self.shared.budget.connection(self.shared.settings.limits.connection_inbound_bytes_max)
    }

    /// Why the broker can do its work no more, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.health.failure.borrow().clone()
    }

    /// Waits until the broker can do its work no more, and returns why.
    pub async fn failed(&self) -> String {
        let mut failure = self.shared.health.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops the broker: receives that wait end with nothing, settlements go on for `grace`, then
    /// every entity is closed with what it has made durable. No delivery count is raised (SET-31).
    /// Transports are to be stopped before. A second call does nothing.
    ///
    /// # Errors
    /// When the store could not finish.
    pub async fn stop(&self, grace: Duration) -> Result<(), crate::store::StoreError> {
        let thread = self.engine.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        self.namespace.do_send(Stop { grace, answer });
        answered.await.ok();
        let result = self.shared.store.close();
        self.engine.end.notify_one();
        // The threads end at once: nothing is left for them to do.
        tokio::task::spawn_blocking(move || thread.join()).await.ok();
        result
    }
}

fn stopped() -> Rejection {
    Rejection::cancelled("the broker is stopping")
}

/// A handle on one entity or sub-queue. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Entity(Arc<EntityHandle>, Option<Way>);

struct EntityHandle {
    broker: Broker,
    id: EntityId,
    kind: EntityKind,
    path: Arc<str>,
    key: PathKey,
    sub_queue: SubQueue,
    inlet: Mutex<Arc<Inlet>>,
}

impl Entity {
    /// The broker it belongs to.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.0.broker
    }

    /// The identity.
    #[must_use]
    pub fn id(&self) -> EntityId {
        self.0.id
    }

    /// Queue, topic or subscription.
    #[must_use]
    pub fn kind(&self) -> EntityKind {
        self.0.kind
    }

    /// The queue or topic at the root of its tree: for a subscription its topic, for a sub-queue its parent.
    /// Not by way of a session: a transaction may be about several.
    pub(crate) fn root(&self) -> Result<Self, Rejection> {
        match EntityAddress::parse(&self.0.path)?.entity {
            EntityName::Root(_) if self.0.sub_queue == SubQueue::Main => Ok(self.by_way_of(None)),
            EntityName::Root(path) => self.0.broker.find(&path),
            EntityName::Subscription { topic, .. } => self.0.broker.find(&topic),
        }
    }

    /// The same entity for the holder of a session, who asks everything by the way that came with the
    /// session: then it is carried out in the order in which it was asked, however busy the entity is
    /// with others. When the session is held no more, the entity answers.
    #[must_use]
    pub fn by_way_of(&self, way: Option<Way>) -> Self {
        Self(Arc::clone(&self.0), way)
    }

    /// The path in the case given at creation, with the suffix of the sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The sub-queue.
    #[must_use]
    pub fn sub_queue(&self) -> SubQueue {
        self.0.sub_queue
    }

    /// Makes the error that a client sees; see [`Broker::refuse`].
    #[must_use]
    pub fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.0.broker.refuse(rejection, &self.0.path)
    }

    /// Asks something and waits for the answer. Dropping the future withdraws a receive that waits,
    /// and gives back what it had locked and nobody took (RCV-14); any other command takes its course.
    ///
    /// # Errors
    /// With the condition of the rejection.
    pub async fn call(&self, command: Command) -> Result<Outcome, BrokerError> {
        let bytes = command_bytes(&command);
        let budget = &self.0.broker.shared.budget;
        let permit = match budget.try_acquire(bytes) {
            Some(permit) => permit,
            None => budget.acquire(bytes).await,
        };
        Call::start(self.clone(), command, permit).await.map_err(|rejection| self.refuse(rejection))
    }

    /// As [`Entity::call`], for a receive that is withdrawn when `stop` completes: what it had got by then
    /// is the answer (RCV-14).
    ///
    /// # Errors
    /// With the condition of the rejection.
    pub async fn call_until(
        &self,
        command: Command,
        stop: impl Future<Output = ()>,
    ) -> Result<Outcome, BrokerError> {
        let permit = self.0.broker.shared.budget.acquire(command_bytes(&command)).await;
        let mut call = std::pin::pin!(Call::start(self.clone(), command, permit));
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer,
            () = stop => {
                call.withdraw();
                call.await
            }
        };
        answer.map_err(|rejection| self.refuse(rejection))
    }

    /// Asks several things at once, as one group; the answers come in the order of the commands.
    /// For commands that do not wait: sends, settlements, renewals, peeks.
    pub async fn call_many(&self, commands: Vec<Command>) -> Vec<Result<Outcome, BrokerError>> {
        let cost = commands
            .iter()
            .map(|command| command_bytes(command).max(crate::permits::COMMAND_BYTES))
            .sum();
        let permit = self.0.broker.shared.budget.acquire_list(cost).await;
        let results = CallList::start(self, commands, permit).await;
        results
            .into_iter()
            .map(|result| result.map_err(|rejection| self.refuse(rejection)))
            .collect()
    }

    /// Hands requests to the entity, in order, and returns at once. Those of a closed entity are
    /// answered with the reason, and so are commands that only the broker itself may give
    /// ([`Command::is_the_brokers_own`]).
    pub fn submit(&self, mut group: Vec<Request>) {
        let mut refused: Vec<Release> = group
            .extract_if(.., |request| request.command.is_the_brokers_own())
            .filter_map(|request| {
                let detail = "this command is given by the broker itself, to its own entities";
                request.reply.answer(Err(Rejection::invalid_operation(detail)))
            })
            .collect();
        release_all(&mut refused);
        let group = match &self.1 {
            Some(way) => match way.enter(group) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            None => group,
        };
        let inlet = Arc::clone(&*self.0.inlet.lock().unwrap_or_else(PoisonError::into_inner));
        let Err((group, reason)) = inlet.submit(group) else { return };
        // The entity may have been opened anew under the same identity: look once.
        let reopened = self
            .0
            .broker
            .shared
            .directory
            .get(&self.0.key)
            .filter(|entry| entry.id == self.0.id && !Arc::ptr_eq(&entry.inlet, &inlet));
        let (group, reason) = match reopened {
            Some(entry) => {
                *self.0.inlet.lock().unwrap_or_else(PoisonError::into_inner) =
                    Arc::clone(&entry.inlet);
                match entry.inlet.submit(group) {
                    Ok(()) => return,
                    Err(refused) => refused,
                }
            }
            None => (group, reason),
        };
        let mut releases: Vec<Release> = group
            .into_iter()
            .filter_map(|request| request.reply.answer(Err(reason.clone())))
            .collect();
        release_all(&mut releases);
    }
}

/// What a command costs of a budget.
fn command_bytes(command: &Command) -> u64 {
    match command {
        Command::Send { message } => u64::from(message.envelope.size),
        Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
            messages.iter().map(|message| u64::from(message.envelope.size)).sum()
        }
        Command::TransferFromPeer { messages, .. } => {
            messages.iter().map(|arrival| u64::from(arrival.message.envelope.size)).sum()
        }
        Command::InSession { command: SessionCommand::SetState { state: Some(state) }, .. } => {
            state.len() as u64
        }
        Command::Commit { parts } => parts.iter().map(|part| part.operation.bytes()).sum(),
        Command::InSubscription { command: RuleCommand::Explain(message), .. } => {
            u64::from(message.envelope.size)
        }
        _ => 0,
    }
}
