//! Handle on one entity. Every command to an entity passes through it. Part of the data path
//! between step 1 and step 2.

use std::sync::{Arc, Mutex, PoisonError};

use super::Broker;
use crate::actor::directory::DirectoryEntry;
use crate::actor::inlet::Inlet;
use crate::admission::Permit;
use crate::call::{CallList, SubmittedCall};
use crate::command::{Command, Cost, Outcome};
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::grant::{GrantedEntity, Pass, TrackedCommand, ViaGrant};
use crate::ids::{EntityId, ReceiverId};
use crate::path::{EntityAddress, EntityName, PathKey, SubQueue};
use crate::request::{Outlet, Release, Reply, Request, SessionEntrance, Watch, release_all};
use crate::time::Timestamp;
use crate::traced::TraceRecorder;

/// Handle on one entity or sub-queue. Cheap to clone; usable from any thread. It is for transports;
/// embedding programs use the handles of `peeklock-client`.
///
/// ```
/// # use peeklock_core as peeklock;
/// use peeklock::Broker;
/// use peeklock::command::{Command, Outcome};
/// use peeklock::description::QueueProperties;
/// use peeklock::ids::SequenceNumber;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// broker.create_queue("orders", QueueProperties::new()).await?;
/// let orders = broker.entity("orders")?;
/// let peek = Command::Peek { from: SequenceNumber(0), count_max: 10 };
/// assert!(matches!(orders.call(peek).await?, Outcome::Peeked(messages) if messages.is_empty()));
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Entity {
    handle: Arc<EntityHandle>,
    session_entrance: Option<SessionEntrance>,
    /// The grant and the access that gave it; none if everything is allowed.
    pass: Option<Arc<Pass>>,
    /// The destination of messages that are sent through this handle (VIA-02).
    via_grant: Option<ViaGrant>,
}

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
    /// The broker of this entity.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.handle.broker
    }

    /// The identity of the entity.
    #[must_use]
    pub fn id(&self) -> EntityId {
        self.handle.id
    }

    /// Queue, topic or subscription.
    #[must_use]
    pub fn kind(&self) -> EntityKind {
        self.handle.kind
    }

    pub(super) fn new(
        broker: &Broker,
        entry: DirectoryEntry,
        path: String,
        key: PathKey,
        sub_queue: SubQueue,
    ) -> Self {
        let handle = EntityHandle {
            broker: broker.clone(),
            id: entry.id,
            kind: entry.kind,
            path: path.into(),
            key,
            sub_queue,
            inlet: Mutex::new(entry.inlet),
        };
        Self { handle: Arc::new(handle), session_entrance: None, pass: None, via_grant: None }
    }

    pub(super) fn key(&self) -> &PathKey {
        &self.handle.key
    }

    /// Returns this handle with the grant of an access.
    pub(crate) fn with_pass(self, pass: Option<Arc<Pass>>) -> Self {
        Self { pass, ..self }
    }

    /// Returns this handle with a destination to which messages may be sent through it.
    pub(crate) fn with_via_grant(self, onward: ViaGrant) -> Self {
        Self { via_grant: Some(onward), ..self }
    }

    pub(crate) const fn via_grant(&self) -> Option<&ViaGrant> {
        self.via_grant.as_ref()
    }

    pub(crate) const fn pass(&self) -> Option<&Arc<Pass>> {
        self.pass.as_ref()
    }

    /// Returns this handle without checks of rights: for work that the broker or a transport does
    /// on its own account, such as returning an undelivered message.
    #[must_use]
    pub fn as_broker(&self) -> Self {
        Self { pass: None, via_grant: None, ..self.clone() }
    }

    /// Returns the queue or topic at the root of the tree: the topic of a subscription, the parent
    /// of a sub-queue. The handle has the rights of its holder there. It drops the entrance of a
    /// session, since a transaction may cover several sessions.
    pub(crate) async fn root(&self) -> Result<Self, Rejection> {
        let path = match EntityAddress::parse(&self.handle.path)?.entity {
            EntityName::Root(_) if self.handle.sub_queue == SubQueue::Main => {
                return Ok(self.with_session_entrance(None));
            }
            EntityName::Root(path) => path,
            EntityName::Subscription { topic, .. } => topic,
        };
        let pass = match &self.pass {
            Some(pass) => pass.issuer.pass_to_root(&path).await?,
            None => None,
        };
        Ok(self.handle.broker.find_at_once(&path).await?.with_pass(pass))
    }

    /// Returns this handle for the holder of a session. `session_entrance` came with the session:
    /// requests through it are carried out in order, however busy the entity is with others. After
    /// the hold, the entity answers them.
    #[must_use]
    pub fn with_session_entrance(&self, session_entrance: Option<SessionEntrance>) -> Self {
        Self { session_entrance, ..self.clone() }
    }

    /// The path in the case given at creation, with the suffix of the sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.handle.path
    }

    /// The addressed sub-queue.
    #[must_use]
    pub fn sub_queue(&self) -> SubQueue {
        self.handle.sub_queue
    }

    /// Creates the error that a client sees; see [`Broker::refuse`].
    #[must_use]
    pub fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.handle.broker.refuse(rejection, &self.handle.path)
    }

    /// Submits a command and waits for the answer. Dropping the future withdraws a waiting receive
    /// and returns messages that it locked but nobody took (RCV-14). Any other command continues.
    ///
    /// # Errors
    /// The condition of the rejection.
    pub async fn call(&self, command: Command) -> Result<Outcome, BrokerError> {
        let permit = self.admit(std::slice::from_ref(&command)).await;
        self.call_admitted(permit, command).await
    }

    /// As [`Entity::call`], with a permit from [`Entity::admit`].
    ///
    /// # Errors
    /// The condition of the rejection.
    pub async fn call_admitted(
        &self,
        permit: Permit,
        command: Command,
    ) -> Result<Outcome, BrokerError> {
        SubmittedCall::start(self.clone(), command, permit)
            .await
            .map_err(|rejection| self.refuse(rejection))
    }

    /// As [`Entity::call`], for a receive that is withdrawn when `stop` completes. The answer then
    /// has the messages that arrived before (RCV-14).
    ///
    /// # Errors
    /// The condition of the rejection.
    pub async fn call_until(
        &self,
        command: Command,
        stop: impl Future<Output = ()>,
    ) -> Result<Outcome, BrokerError> {
        let permit = self.admit(std::slice::from_ref(&command)).await;
        let mut call = std::pin::pin!(SubmittedCall::start(self.clone(), command, permit));
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

    /// Waits without a time limit for room in the budget for commands that are submitted together.
    /// For callers with a deadline: no command was submitted before this returns.
    pub async fn admit(&self, commands: &[Command]) -> Permit {
        let (count, bytes) =
            commands.iter().map(Command::cost).fold((0, 0), |(count, bytes), cost| {
                (cost.count.saturating_add(count), cost.bytes.saturating_add(bytes))
            });
        let budget = &self.handle.broker.shared.budget;
        match budget.try_take_list(count, bytes) {
            Some(permit) => permit,
            None => budget.wait_list(count, bytes).await,
        }
    }

    /// As [`Entity::call`], with room from the management budget.
    pub(crate) async fn manage(&self, command: Command) -> Result<Outcome, BrokerError> {
        let room = self.management_room(&command).await?;
        self.manage_in(&room, command).await
    }

    /// Waits for room in the management budget, for a command and the request that reads its
    /// result.
    pub(super) async fn management_room(
        &self,
        command: &Command,
    ) -> Result<Arc<Permit>, BrokerError> {
        let Cost { count, bytes, .. } = command.cost();
        let room = self.handle.broker.management_room(count, bytes).await;
        room.map(Arc::new).map_err(|rejection| self.refuse(rejection))
    }

    /// As [`Entity::manage`], with existing room: a client that has changed something must not be
    /// refused room to read the result.
    pub(super) async fn manage_in(
        &self,
        room: &Arc<Permit>,
        command: Command,
    ) -> Result<Outcome, BrokerError> {
        let called = SubmittedCall::start_in(room, self.clone(), command).await;
        called.map_err(|rejection| self.refuse(rejection))
    }

    /// Submits several commands as one group; the answers have the order of the commands. For
    /// commands that do not wait: sends, settlements, renewals, peeks.
    pub async fn call_many(&self, commands: Vec<Command>) -> Vec<Result<Outcome, BrokerError>> {
        let permit = self.admit(&commands).await;
        self.call_many_admitted(permit, commands).await
    }

    /// As [`Entity::call_many`], with a permit from [`Entity::admit`].
    pub async fn call_many_admitted(
        &self,
        permit: Permit,
        commands: Vec<Command>,
    ) -> Vec<Result<Outcome, BrokerError>> {
        let results = CallList::start(self, commands, permit).await;
        results
            .into_iter()
            .map(|result| result.map_err(|rejection| self.refuse(rejection)))
            .collect()
    }

    /// Hands requests to the entity, in order, and returns at once. Requests to a closed entity are
    /// answered with the reason. Requests without a grant get `Unauthorized`; commands that only
    /// the broker may give ([`Command::is_internal`]) get `InvalidOperation`.
    pub fn submit(&self, mut group: Vec<Request>) {
        self.trace(&mut group);
        self.refuse_forbidden(&mut group);
        let tracked = self.track(&mut group);
        self.hand_over(group);
        for tracked in tracked {
            tracked.opened();
        }
    }

    /// Watches a link over which nothing is pushed. When its purpose is no longer granted, the link
    /// gets [`crate::request::Released::Detached`], until the [`Command::Detach`] of its receiver.
    /// When the entity is deleted, it gets [`crate::request::Released::Closed`] (ENT-15), while the
    /// returned watch exists. Watching is no use of the entity (TMP-17), which does not know the
    /// link, and no receive (RCV-22).
    #[must_use]
    pub fn watch(&self, purpose: Action, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch {
        let (is_notified, now) = (Arc::default(), || self.handle.broker.now());
        if let Some(pass) = &self.pass {
            pass.entitlement.watch(purpose, receiver, (outlet, &is_notified), now);
        }
        if let Some(onward) = &self.via_grant {
            onward.watch(receiver, (outlet, &is_notified), now);
        }
        self.inlet().watch(receiver, outlet)
    }

    fn inlet(&self) -> Arc<Inlet> {
        Arc::clone(&*self.handle.inlet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the traces of the commands if there is a tracer.
    fn trace(&self, group: &mut [Request]) {
        let Some(tracer) = &self.handle.broker.shared.tracer else { return };
        let witness = TraceRecorder::new(tracer, &self.handle.path);
        for request in group {
            request.reply.trace(witness.begin(&request.command));
        }
    }

    /// Removes and answers commands that are not allowed.
    fn refuse_forbidden(&self, group: &mut Vec<Request>) {
        let entitlement = self.pass.as_ref().map(|pass| &pass.entitlement);
        let now = || self.handle.broker.now();
        let judged = entitlement.map(|entitlement| (entitlement, entitlement.judge(now)));
        let goes_on = |command: &Command| ViaGrant::check(self.via_grant.as_ref(), command, now);
        let is_refused = |command: &Command| match &judged {
            Some((_, judgement)) => !judgement.allows(command) || goes_on(command).is_err(),
            None => command.is_internal(),
        };
        if !group.iter().any(|request| is_refused(&request.command)) {
            return;
        }
        let mut refused: Vec<Release> = group
            .extract_if(.., |request| is_refused(&request.command))
            .filter_map(|request| {
                let rejection = match &judged {
                    Some((_, judgement)) if judgement.allows(&request.command) => {
                        goes_on(&request.command).err()?
                    }
                    Some((entitlement, judgement)) => {
                        entitlement.refuse_command(judgement, &request.command)
                    }
                    None => Rejection::invalid_operation(
                        "only the broker itself gives this command, to its own entities",
                    ),
                };
                request.reply.answer(Err(rejection))
            })
            .collect();
        release_all(&mut refused);
    }

    /// Registers links and waiting calls of the group, so that they end with the grant.
    fn track(&self, group: &mut [Request]) -> Vec<Arc<TrackedCommand>> {
        let Some(pass) = &self.pass else { return Vec::new() };
        if let Some(onward) = &self.via_grant {
            for request in &*group {
                if let Command::Detach { receiver, .. } = &request.command {
                    onward.forget(*receiver);
                }
            }
        }
        group
            .iter_mut()
            .filter_map(|request| pass.entitlement.track(|| self.granted(), request))
            .collect()
    }

    /// Returns the entity through which the grant closes links and calls. A handle with the
    /// entrance of a session closes them through it.
    fn granted(&self) -> Arc<dyn GrantedEntity> {
        match self.session_entrance {
            None => Arc::clone(&self.handle) as Arc<dyn GrantedEntity>,
            Some(_) => Arc::new(self.as_broker()),
        }
    }

    fn submit_one(&self, command: Command, reply: Reply) {
        let (ticket, sub_queue) = (self.broker().ticket(), self.sub_queue());
        self.submit(vec![Request { ticket, sub_queue, command, reply }]);
    }

    fn hand_over(&self, group: Vec<Request>) {
        let group = match &self.session_entrance {
            Some(entrance) => match entrance.enter(group) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            None => group,
        };
        let (inlet, now) = (self.inlet(), self.handle.broker.now());
        let Err((group, reason)) = inlet.submit(group, now) else { return };
        // The entity may have been reopened under the same identity: look it up once.
        let reopened = self
            .handle
            .broker
            .shared
            .directory
            .get(&self.handle.key)
            .filter(|entry| entry.id == self.handle.id && !Arc::ptr_eq(&entry.inlet, &inlet));
        let (group, reason) = match reopened {
            Some(entry) => {
                *self.handle.inlet.lock().unwrap_or_else(PoisonError::into_inner) =
                    Arc::clone(&entry.inlet);
                match entry.inlet.submit(group, now) {
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

impl GrantedEntity for EntityHandle {
    fn now(&self) -> Timestamp {
        self.broker.now()
    }

    fn submit_own(self: Arc<Self>, command: Command, reply: Reply) {
        let entity = Entity { handle: self, session_entrance: None, pass: None, via_grant: None };
        entity.submit_one(command, reply);
    }
}

impl GrantedEntity for Entity {
    fn now(&self) -> Timestamp {
        self.handle.broker.now()
    }

    fn submit_own(self: Arc<Self>, command: Command, reply: Reply) {
        self.as_broker().submit_one(command, reply);
    }
}
