//! The one door: who may do what, for every way in (SEC-05, SEC-08, SEC-15). (Data path, before step 1.)
//!
//! ```text
//!  principal ──► Broker::access ──► Access ──► entity(path, action) ──► Entity ──► submit: is it granted still?
//!                                     │               │                              │
//!                                     │          Authorizer, once per entity      links, calls that wait
//!                                     │               ▼                              ▼
//!                                     └─ manages,   Entitlement: actions, end, epoch ◄── Lapses: closes them when it is over
//!                                        lists
//! ```
//!
//! A transport has one [`Access`] for each principal, mostly one for each connection. By it, it gets handles on
//! entities, creates, changes, deletes and lists. What an operation takes is said by one table
//! ([`Action::needs`]), what a principal has by the [`Authorizer`](crate::contract::Authorizer); nobody else
//! decides. A handle checks every command that is submitted by it, so that no transport asks before a
//! command.
//!
//! An access that [`Broker::full_access`] gives, and the handles of a [`Broker`], are not asked anything: they
//! are for the program that has the broker in it (SEC-17).

mod declare;
mod list;
mod manage;
mod patch;
mod policies;
mod question;
mod remembered;
mod renew;
mod turn;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub use self::policies::KeysIn;
use self::remembered::Remembered;
pub use self::turn::InTurn;
use crate::broker::{Broker, Entity};
use crate::condition::Condition;
use crate::contract::action::{Action, Actions};
use crate::contract::authorizer::Principal;
use crate::contract::rights::Grant;
use crate::error::{BrokerError, Denial, Rejection};
use crate::grant::{Entitlement, Issuer, Onward, Pass, PassFuture};
use crate::path::EntityAddress;

/// The longest path that anything is asked of the authorizer for: any that an entity can have is shorter, with all that
/// an address puts around it.
const PATH_BYTES_MAX: usize = 16 << 10;

/// What one principal may do with a broker. Cheap to clone; clones are one.
///
/// ```
/// # use peeklock_core as peeklock;
/// use std::sync::Arc;
///
/// use peeklock::Broker;
/// use peeklock::condition::Condition;
/// use peeklock::contract::{Action, Authorizer, Grant, Principal, Right, Rights};
/// use peeklock::description::QueueProperties;
/// use peeklock::error::Rejection;
///
/// /// Who shows nothing may send.
/// struct Senders;
///
/// #[async_trait::async_trait]
/// impl Authorizer for Senders {
///     async fn authorize(&self, _: &Principal, _: &str) -> Result<Grant, Rejection> {
///         Ok(Grant::of(Rights::of(Right::Send)))
///     }
///
///     fn allows_anonymous(&self) -> bool {
///         true
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().authorizer(Arc::new(Senders)).start().await?;
/// broker.create_queue("orders", QueueProperties::new()).await?;
/// let access = broker.access(Principal::anonymous());
/// assert!(access.entity("orders", Action::Send).await.is_ok());
/// let refused = access.entity("orders", Action::Receive).await.err().unwrap();
/// assert_eq!(refused.condition(), Condition::Unauthorized);
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Access {
    broker: Broker,
    /// None where everything is allowed.
    door: Option<Arc<Door>>,
}

struct Door {
    state: Mutex<DoorState>,
    reads: Reads,
    /// What was shown for the destinations of forwarding beside the principal's own (FWD-05, HTP-18).
    shown_for: [Option<Access>; 2],
}

struct DoorState {
    principal: Arc<Principal>,
    /// Counts principals: what was granted to an earlier one is worth nothing.
    version: u64,
    held: Remembered,
}

/// By which right descriptions and counts are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Manage (SEC-05).
    ByManage,
    /// Listen alone, too (CON-73).
    ByListen,
}

impl Broker {
    /// What a principal may do with this broker, as its authorizer says.
    #[must_use]
    pub fn access(&self, principal: Principal) -> Access {
        let door = Door {
            state: Mutex::new(DoorState {
                principal: Arc::new(principal),
                version: 0,
                held: Remembered::default(),
            }),
            reads: Reads::ByManage,
            shown_for: [None, None],
        };
        Access { broker: self.clone(), door: Some(Arc::new(door)) }
    }

    /// What a policy allows, without a key and whatever the authorizer is: for handles that the program that has the
    /// broker in it gives to its parts (SEC-17). `owner` is the queue or topic that has the policy, empty
    /// for the namespace. It ends with the policy.
    #[must_use]
    pub fn access_of_policy(&self, owner: &str, name: &str) -> Access {
        let policy = Some((owner.into(), name.into()));
        self.access(Principal { policy, ..Principal::anonymous() })
    }

    /// Everything, without a question: for the program that has the broker in it (SEC-17).
    #[must_use]
    pub fn full_access(&self) -> Access {
        Access { broker: self.clone(), door: None }
    }
}

impl Access {
    /// The same for a JSON API, by which descriptions and counts are read with the right Listen, too, since
    /// who looks must not be able to destroy (SEC-05, CON-73). Nothing that was granted before goes with it.
    #[must_use]
    pub fn reading_by_listen(&self) -> Self {
        let Some(door) = &self.door else { return self.clone() };
        let principal = Arc::clone(&door.lock().principal);
        let state = DoorState { principal, version: 0, held: Remembered::default() };
        let shown_for = door.shown_for.clone();
        let door = Door { state: Mutex::new(state), reads: Reads::ByListen, shown_for };
        Self { broker: self.broker.clone(), door: Some(Arc::new(door)) }
    }

    /// The same with what was shown for the destinations that an entity is to forward to, messages first and
    /// dead-lettered messages second (HTP-18). What is not granted by that is asked of this one's own principal.
    /// Nothing that was granted before goes with it.
    #[must_use]
    pub fn showing_for_destinations(&self, shown_for: [Option<Self>; 2]) -> Self {
        let Some(door) = &self.door else { return self.clone() };
        let principal = Arc::clone(&door.lock().principal);
        let state = DoorState { principal, version: 0, held: Remembered::default() };
        let door = Door { state: Mutex::new(state), reads: door.reads, shown_for };
        Self { broker: self.broker.clone(), door: Some(Arc::new(door)) }
    }

    /// The broker. What is asked of it, and not by way of this, is asked by nobody in particular.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The principal; none where everything is allowed.
    #[must_use]
    pub fn principal(&self) -> Option<Arc<Principal>> {
        Some(Arc::clone(&self.door.as_ref()?.lock().principal))
    }

    /// Refuses what is not granted, and returns the address as it is looked up: what is granted and what is
    /// looked up is the same, whatever spelling was sent. `path` is that of an entity or
    /// sub-queue, whether there is one or not, or empty for the namespace.
    ///
    /// To be asked before anything else is done for a request, such as reading its body. Nothing rests on
    /// it: the operation itself asks again, of what is remembered.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn allow(&self, action: Action, path: &str) -> Result<String, BrokerError> {
        let resource = canonical(path);
        self.pass(&resource, action).await?;
        Ok(resource)
    }

    /// Whether something is granted, for answers that tell more to who may see more, and the rest to everybody. A token
    /// that is not good is an attempt although nobody is refused anything, and is counted and told in the log as any
    /// other (SEC-22). That a good one gives too little, or that there is none, is neither.
    pub async fn is_allowed(&self, action: Action, path: &str) -> bool {
        let resource = canonical(path);
        let asked = self.ask_for(action, &resource).await;
        asked.map_err(|rejection| self.tell_attempt(rejection, &resource)).is_ok()
    }

    /// Counts a token that is not good, and tells it in the log.
    fn tell_attempt(&self, rejection: Rejection, resource: &str) {
        let cause = rejection.denial().map_or(Denial::OTHER, |denial| denial.cause);
        let is_bad = rejection.condition() == Condition::Unauthorized && cause != Denial::RIGHT;
        if is_bad && self.principal().is_some_and(|principal| principal.shows_something()) {
            drop(self.broker.refuse(rejection, resource));
        }
    }

    /// The same for who has shown something else besides, which is asked next: that he has not got it by this is no attempt of
    /// his, whose answer would wait (SEC-26). Nothing is remembered of it.
    async fn is_allowed_at_once(&self, action: Action, path: &str) -> bool {
        let Some(door) = &self.door else { return true };
        let resource: Arc<str> = canonical(path).into();
        if resource.len() > PATH_BYTES_MAX {
            return false;
        }
        let principal = Arc::clone(&door.lock().principal);
        let asked = std::slice::from_ref(&resource);
        let grants = question::ask_all(&self.broker, &principal, asked).await;
        grants.iter().any(|grant| {
            let lasts = grant.until.is_none_or(|until| self.broker.now() < until);
            lasts && door.actions(grant).contains(action)
        })
    }

    /// Refuses a principal that is not who it says, whatever it may do and wherever: for transports whose clients show
    /// something before they name an entity (AMQP-08).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn identify(&self) -> Result<(), BrokerError> {
        let Some(door) = &self.door else { return Ok(()) };
        let asked = self.held(door, "").await;
        asked.map(|_| ()).map_err(|rejection| self.broker.refuse(rejection, ""))
    }

    /// Whether its principal is who it says, whatever it may do; nobody is refused anything. For who may show something better.
    pub async fn is_identified(&self) -> bool {
        match &self.door {
            Some(door) => self.held(door, "").await.is_ok(),
            None => true,
        }
    }

    /// The same for who shows nothing better: a token that is not good is an attempt, as with [`Self::is_allowed`].
    pub async fn is_identified_by_what_it_shows(&self) -> bool {
        let Some(door) = &self.door else { return true };
        let asked = self.held(door, "").await;
        asked.map_err(|rejection| self.tell_attempt(rejection, "")).is_ok()
    }

    /// Whether anything that was granted lasts still, as far as it is remembered: nobody is asked (SEC-16).
    #[must_use]
    pub fn holds(&self) -> bool {
        let Some(door) = &self.door else { return true };
        let lasts = |held: &Arc<Entitlement>| {
            held.lapse(|| self.broker.now()).is_none() && !held.is_refused()
        };
        door.lock().held.iter().any(|(_, held)| lasts(held))
    }

    /// An entity or sub-queue by its path, for a purpose. Refused before it is known whether there is one
    /// (SEC-08). Whatever is asked by the handle is checked again, against what is granted then.
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`.
    pub async fn entity(&self, path: &str, purpose: Action) -> Result<Entity, BrokerError> {
        let resource = canonical(path);
        let pass = self.pass(&resource, purpose).await?;
        Ok(self.broker.formed_entity(&resource).await?.with_pass(pass))
    }

    /// As [`Access::entity`], for callers that cannot wait.
    ///
    /// # Errors
    /// As for [`Access::entity`]; `ServerBusy` if the authorizer has to be waited for, or the outcome of a creation.
    pub fn entity_now(&self, path: &str, purpose: Action) -> Result<Entity, BrokerError> {
        self.now(path, self.entity(path, purpose))
    }

    /// What is known without waiting.
    fn now<T>(
        &self,
        path: &str,
        asked: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let mut asked = pin!(asked);
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => Err(self.broker.refuse(
                Rejection::server_busy(
                    "the rights for this are not decided yet, or the entity is being created; wait \
                     for the answer, or try again",
                ),
                path,
            )),
        }
    }

    /// The way to an entity by way of another (VIA-02), for who may send to it: `via` with what is granted there, and the path
    /// of the destination. What ends at either ends the way (SEC-15); by no other handle messages go there.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound`; `ArgumentError` for what is no queue or topic, `InvalidOperation` for `via`
    /// itself.
    pub async fn transfer_destination(
        &self,
        path: &str,
        via: &Entity,
    ) -> Result<(Entity, Arc<str>), BrokerError> {
        let pass = self.pass(&canonical(path), Action::BeSentTo).await?;
        self.broker.formed(path).await;
        let found = self.broker.find_destination(path, via);
        let destination = found.map_err(|rejection| self.broker.refuse(rejection, path))?;
        let held = pass.map(|pass| Arc::clone(&pass.held));
        let way = Onward::new(Arc::clone(&destination), held);
        Ok((via.clone().with_onward(way), destination))
    }

    /// As [`Access::transfer_destination`], for callers that cannot wait.
    ///
    /// # Errors
    /// As for [`Access::transfer_destination`]; `ServerBusy` if the authorizer has to be waited for.
    pub fn transfer_destination_now(
        &self,
        path: &str,
        via: &Entity,
    ) -> Result<(Entity, Arc<str>), BrokerError> {
        self.now(path, self.transfer_destination(path, via))
    }

    /// Forgets what was granted for entities that no handle is on; it is asked for again when it is needed. For
    /// transports with many accesses for one connection.
    pub fn forget_unused(&self) {
        if let Some(door) = &self.door {
            door.lock().held.forget_unused();
        }
    }

    /// The queue or topic that a transaction covers, for no purpose yet: each operation is checked by itself.
    ///
    /// # Errors
    /// `EntityNotFound`; `Unauthorized` for a principal that is refused altogether.
    pub async fn entity_of_a_transaction(&self, path: &str) -> Result<Entity, Rejection> {
        let pass = self.pass_to_root(path).await?;
        Ok(self.broker.found(path).await?.with_pass(pass))
    }

    /// An entity or sub-queue by its path, for any of some purposes; who has none is refused the first.
    ///
    /// # Errors
    /// As for [`Access::entity`].
    pub async fn entity_for_any(
        &self,
        path: &str,
        purposes: &[Action],
    ) -> Result<Entity, BrokerError> {
        let resource = canonical(path);
        let mut refused = None;
        for purpose in purposes {
            match self.ask_for(*purpose, &resource).await {
                Ok(pass) => {
                    return Ok(self.broker.formed_entity(&resource).await?.with_pass(pass));
                }
                Err(rejection) => refused = refused.or(Some(rejection)),
            }
        }
        let refused = refused
            .unwrap_or_else(|| Rejection::internal("the access was created without a purpose"));
        Err(self.broker.refuse(refused, &resource))
    }

    async fn pass(&self, resource: &str, action: Action) -> Result<Option<Arc<Pass>>, BrokerError> {
        let asked = self.ask_for(action, resource).await;
        asked.map_err(|rejection| self.broker.refuse(rejection, resource))
    }

    async fn ask_for(
        &self,
        action: Action,
        resource: &str,
    ) -> Result<Option<Arc<Pass>>, Rejection> {
        let Some(door) = &self.door else { return Ok(None) };
        let held = self.held(door, resource).await?;
        held.check_purpose(action, || self.broker.now())?;
        Ok(Some(self.pass_with(held)))
    }

    fn pass_with(&self, held: Arc<Entitlement>) -> Arc<Pass> {
        Arc::new(Pass { held, issuer: Box::new(self.clone()) })
    }

    /// What is granted on a resource, as long as it lasts; asked for if it is not known.
    async fn held(&self, door: &Door, resource: &str) -> Result<Arc<Entitlement>, Rejection> {
        if resource.len() > PATH_BYTES_MAX {
            // There is no such entity, so that nothing is told by saying why.
            let detail = format!(
                "a path of {} bytes is longer than the limit of {PATH_BYTES_MAX}",
                resource.len()
            );
            return Err(Rejection::argument(detail));
        }
        let known = door.lock().held.get(resource);
        match known {
            Some(held) if held.lapse(|| self.broker.now()).is_none() && !held.is_refused() => {
                Ok(held)
            }
            known => self.ask(door, resource, known.as_ref()).await,
        }
    }

    /// Asks the authorizer, and remembers what it says.
    async fn ask(
        &self,
        door: &Door,
        resource: &str,
        known: Option<&Arc<Entitlement>>,
    ) -> Result<Arc<Entitlement>, Rejection> {
        loop {
            let (principal, version) = {
                let state = door.lock();
                (Arc::clone(&state.principal), state.version)
            };
            let grant = question::ask(&self.broker, &principal, resource).await?;
            let actions = door.actions(&grant);
            let mut state = door.lock();
            if state.version != version {
                // It has shown something else meanwhile.
                continue;
            }
            let held = known.cloned().or_else(|| state.held.get(resource));
            let held =
                held.unwrap_or_else(|| Arc::new(Entitlement::new(&self.broker.shared.lapses)));
            state.held.insert(resource, &held);
            // Before anything newer can be shown, whose place it would take otherwise.
            held.take(&grant, actions, principal.peer);
            drop(state);
            held.enforce(|| self.broker.now());
            return Ok(held);
        }
    }
}

impl Issuer for Access {
    fn pass_to_root<'a>(&'a self, path: &'a str) -> PassFuture<'a> {
        Box::pin(async move {
            let Some(door) = &self.door else { return Ok(None) };
            let held = self.held(door, path).await?;
            Ok(Some(self.pass_with(held)))
        })
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("principal", &self.principal()).finish_non_exhaustive()
    }
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, DoorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a grant allows by this door.
    fn actions(&self, grant: &Grant) -> Actions {
        let actions = grant.actions();
        if self.reads == Reads::ByListen && actions.contains(Action::Overview) {
            return actions.with(Action::Describe);
        }
        actions
    }
}

/// An address as it is looked up.
fn canonical(path: &str) -> String {
    EntityAddress::parse(path).map_or_else(|_| path.to_owned(), |address| address.to_string())
}
