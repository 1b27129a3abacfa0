//! The handle on one entity: where everything that is asked of it goes through. (Data path, step 1 to 2.)

use std::sync::{Arc, Mutex, PoisonError};

use super::Broker;
use crate::actor::directory::Entry;
use crate::actor::inlet::Inlet;
use crate::admission::Permit;
use crate::call::{Call, CallList};
use crate::command::{Command, Cost, Outcome};
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::grant::{GrantedEntity, Onward, Pass, Tracked};
use crate::ids::{EntityId, ReceiverId};
use crate::path::{EntityAddress, EntityName, PathKey, SubQueue};
use crate::request::{Outlet, Release, Reply, Request, Watch, Way, release_all};
use crate::time::Timestamp;
use crate::traced::Witness;

/// A handle on one entity or sub-queue. Cheap to clone; usable from any thread. This is what transports have; programs
/// that embed a broker have the handles of `peeklock-client`.
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
    way: Option<Way>,
    /// By which door it was got, and what is granted; none where everything is.
    pass: Option<Arc<Pass>>,
    /// Where messages may go by way of it (VIA-02).
    onward: Option<Onward>,
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
    /// The broker it belongs to.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.handle.broker
    }

    /// The identity.
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
        entry: Entry,
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
        Self { handle: Arc::new(handle), way: None, pass: None, onward: None }
    }

    pub(super) fn key(&self) -> &PathKey {
        &self.handle.key
    }

    /// The same for who came by a door.
    pub(crate) fn with_pass(self, pass: Option<Arc<Pass>>) -> Self {
        Self { pass, ..self }
    }

    /// The same as the way of messages to another entity.
    pub(crate) fn with_onward(self, onward: Onward) -> Self {
        Self { onward: Some(onward), ..self }
    }

    pub(crate) const fn onward(&self) -> Option<&Onward> {
        self.onward.as_ref()
    }

    pub(crate) const fn pass(&self) -> Option<&Arc<Pass>> {
        self.pass.as_ref()
    }

    /// The same without a question: for what the broker or a transport does on its own account, such as
    /// giving back what it could not deliver.
    #[must_use]
    pub fn as_the_broker(&self) -> Self {
        Self { pass: None, onward: None, ..self.clone() }
    }

    /// The queue or topic at the root of its tree: for a subscription its topic, for a sub-queue its parent;
    /// with what its holder is granted there. Not by way of a session: a transaction may be about several.
    pub(crate) async fn root(&self) -> Result<Self, Rejection> {
        let path = match EntityAddress::parse(&self.handle.path)?.entity {
            EntityName::Root(_) if self.handle.sub_queue == SubQueue::Main => {
                return Ok(self.by_way_of(None));
            }
            EntityName::Root(path) => path,
            EntityName::Subscription { topic, .. } => topic,
        };
        let pass = match &self.pass {
            Some(pass) => pass.issuer.pass_to_root(&path).await?,
            None => None,
        };
        Ok(self.handle.broker.found(&path).await?.with_pass(pass))
    }

    /// The same entity for the holder of a session, who asks everything by the way that came with the
    /// session: then it is carried out in the order in which it was asked, however busy the entity is
    /// with others. When the session is held no more, the entity answers.
    #[must_use]
    pub fn by_way_of(&self, way: Option<Way>) -> Self {
        Self { way, ..self.clone() }
    }

    /// The path in the case given at creation, with the suffix of the sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.handle.path
    }

    /// The sub-queue.
    #[must_use]
    pub fn sub_queue(&self) -> SubQueue {
        self.handle.sub_queue
    }

    /// Makes the error that a client sees; see [`Broker::refuse`].
    #[must_use]
    pub fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.handle.broker.refuse(rejection, &self.handle.path)
    }

    /// Asks something and waits for the answer. Dropping the future withdraws a receive that waits,
    /// and gives back what it had locked and nobody took (RCV-14); any other command takes its course.
    ///
    /// # Errors
    /// With the condition of the rejection.
    pub async fn call(&self, command: Command) -> Result<Outcome, BrokerError> {
        let permit = self.admit(std::slice::from_ref(&command)).await;
        self.call_admitted(permit, command).await
    }

    /// As [`Entity::call`], with room that was waited for before, by [`Entity::admit`].
    ///
    /// # Errors
    /// With the condition of the rejection.
    pub async fn call_admitted(
        &self,
        permit: Permit,
        command: Command,
    ) -> Result<Outcome, BrokerError> {
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
        let permit = self.admit(std::slice::from_ref(&command)).await;
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

    /// Waits for room of the budget for commands that are asked at once, however long that takes. For who has a
    /// deadline for it: nothing was asked yet.
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

    /// As [`Entity::call`], with room of the budget for management.
    pub(super) async fn manage(&self, command: Command) -> Result<Outcome, BrokerError> {
        let room = self.management_room(&command).await?;
        self.manage_in(&room, command).await
    }

    /// Room of the budget for management, for a command and what is asked behind it to tell what came of it.
    pub(super) async fn management_room(
        &self,
        command: &Command,
    ) -> Result<Arc<Permit>, BrokerError> {
        let Cost { count, bytes, .. } = command.cost();
        let room = self.handle.broker.management_room(count, bytes).await;
        room.map(Arc::new).map_err(|rejection| self.refuse(rejection))
    }

    /// As [`Entity::manage`], with room that there is already: who has changed something is not told that there is none
    /// to look at it.
    pub(super) async fn manage_in(
        &self,
        room: &Arc<Permit>,
        command: Command,
    ) -> Result<Outcome, BrokerError> {
        let called = Call::start_in(room, self.clone(), command).await;
        called.map_err(|rejection| self.refuse(rejection))
    }

    /// Asks several things at once, as one group; the answers come in the order of the commands.
    /// For commands that do not wait: sends, settlements, renewals, peeks.
    pub async fn call_many(&self, commands: Vec<Command>) -> Vec<Result<Outcome, BrokerError>> {
        let permit = self.admit(&commands).await;
        self.call_many_admitted(permit, commands).await
    }

    /// As [`Entity::call_many`], with room that was waited for before, by [`Entity::admit`].
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

    /// Hands requests to the entity, in order, and returns at once. Those of a closed entity are
    /// answered with the reason; those that are not granted with `Unauthorized`, and those that only the
    /// broker itself may give with `InvalidOperation` ([`Command::is_the_brokers_own`]).
    pub fn submit(&self, mut group: Vec<Request>) {
        self.trace(&mut group);
        self.refuse_forbidden(&mut group);
        let tracked = self.track(&mut group);
        self.hand_over(group);
        for tracked in tracked {
            tracked.opened();
        }
    }

    /// Has a link told, although nothing is pushed over it, when what it is for is not granted any more
    /// ([`crate::request::Released::Detached`]), up to the [`Command::Detach`] of that receiver; and when the entity
    /// is deleted ([`crate::request::Released::Closed`], ENT-15), as long as what is returned is kept. To be told
    /// is no use of the entity (TMP-17), which does not know of it, and no receive (RCV-22).
    #[must_use]
    pub fn watch(&self, purpose: Action, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch {
        let (is_told, now) = (Arc::default(), || self.handle.broker.now());
        if let Some(pass) = &self.pass {
            pass.held.watch(purpose, receiver, (outlet, &is_told), now);
        }
        if let Some(onward) = &self.onward {
            onward.watch(receiver, (outlet, &is_told), now);
        }
        self.inlet().watch(receiver, outlet)
    }

    fn inlet(&self) -> Arc<Inlet> {
        Arc::clone(&*self.handle.inlet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what is asked, if somebody is told of it.
    fn trace(&self, group: &mut [Request]) {
        let Some(tracer) = &self.handle.broker.shared.tracer else { return };
        let witness = Witness::new(tracer, &self.handle.path);
        for request in group {
            request.reply.trace(witness.begin(&request.command));
        }
    }

    /// Answers and takes out what may not be done.
    fn refuse_forbidden(&self, group: &mut Vec<Request>) {
        let held = self.pass.as_ref().map(|pass| &pass.held);
        let now = || self.handle.broker.now();
        let judged = held.map(|held| (held, held.judge(now)));
        let goes_on = |command: &Command| Onward::check(self.onward.as_ref(), command, now);
        let is_refused = |command: &Command| match &judged {
            Some((_, judgement)) => !judgement.allows(command) || goes_on(command).is_err(),
            None => command.is_the_brokers_own(),
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
                    Some((held, judgement)) => held.refuse_command(judgement, &request.command),
                    None => Rejection::invalid_operation(
                        "only the broker itself gives this command, to its own entities",
                    ),
                };
                request.reply.answer(Err(rejection))
            })
            .collect();
        release_all(&mut refused);
    }

    /// Sees that what the group leaves open ends with what is granted.
    fn track(&self, group: &mut [Request]) -> Vec<Arc<Tracked>> {
        let Some(pass) = &self.pass else { return Vec::new() };
        if let Some(onward) = &self.onward {
            for request in &*group {
                if let Command::Detach { receiver, .. } = &request.command {
                    onward.forget(*receiver);
                }
            }
        }
        group.iter_mut().filter_map(|request| pass.held.track(|| self.granted(), request)).collect()
    }

    /// The entity for its grant, which closes links and calls there. A handle by way of a session closes them by it.
    fn granted(&self) -> Arc<dyn GrantedEntity> {
        match self.way {
            None => Arc::clone(&self.handle) as Arc<dyn GrantedEntity>,
            Some(_) => Arc::new(self.as_the_broker()),
        }
    }

    fn submit_one(&self, command: Command, reply: Reply) {
        let (ticket, sub_queue) = (self.broker().ticket(), self.sub_queue());
        self.submit(vec![Request { ticket, sub_queue, command, reply }]);
    }

    fn hand_over(&self, group: Vec<Request>) {
        let group = match &self.way {
            Some(way) => match way.enter(group) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            None => group,
        };
        let (inlet, now) = (self.inlet(), self.handle.broker.now());
        let Err((group, reason)) = inlet.submit(group, now) else { return };
        // The entity may have been opened anew under the same identity: look once.
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
        let entity = Entity { handle: self, way: None, pass: None, onward: None };
        entity.submit_one(command, reply);
    }
}

impl GrantedEntity for Entity {
    fn now(&self) -> Timestamp {
        self.handle.broker.now()
    }

    fn submit_own(self: Arc<Self>, command: Command, reply: Reply) {
        self.as_the_broker().submit_one(command, reply);
    }
}
