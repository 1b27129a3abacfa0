//! Checks the rights of a principal for every way into the broker (SEC-05, SEC-08, SEC-15). Part of
//! the data path before step 1.
//!
//! ```text
//!  principal ─► Broker::access ─► Access ─► entity(path, action) ─► Entity ─► submit: granted?
//!                                   │             │                             │
//!                                   │        Authorizer, once per entity     links, waiting calls
//!                                   │             ▼                             ▼
//!                                   └─ manages, Entitlement: actions, end, epoch
//!                                      lists    ▲
//!                                               └ ExpiringGrants closes links and calls at the end
//! ```
//!
//! A transport has one [`Access`] for each principal, usually one for each connection. The access
//! provides handles on entities, and creates, changes, deletes and lists them. [`Action::needs`] is
//! the only table of the rights that an operation needs; the
//! [`Authorizer`](crate::contract::Authorizer) reports the rights of a principal. A handle checks
//! every command that is submitted through it, so a transport makes no check of its own before a
//! command.
//!
//! An access from [`Broker::full_access`], and the handles of a [`Broker`], check nothing: they are
//! for the program that embeds the broker (SEC-17).

mod audit;
mod declare;
mod filters;
mod inspect;
mod jobs;
mod journey;
mod list;
mod manage;
mod overview;
mod patch;
mod policies;
mod question;
mod remembered;
mod renew;
mod samples;
mod search;
mod sign_in;
mod tap;
mod turn;
mod unnamed;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) use self::audit::address_without_keys;
pub use self::audit::message_count;
pub use self::policies::ContainerKeys;
use self::remembered::GrantCache;
pub use self::search::Search;
pub use self::sign_in::{ConsoleToken, Standing};
pub use self::tap::Tap;
pub use self::turn::InTurn;
pub use crate::audited::Audited;
use crate::broker::{Broker, Entity};
use crate::condition::Condition;
use crate::contract::action::{Action, Actions};
use crate::contract::authorizer::Principal;
use crate::contract::rights::{Ceiling, Grant};
use crate::error::{BrokerError, Denial, Rejection};
use crate::grant::{Entitlement, Issuer, Pass, PassFuture, PresentedToken, ViaGrant};
use crate::path::EntityAddress;
use crate::time::Timestamp;

/// Maximum length in bytes of a path that the authorizer is asked about. It exceeds every path of
/// an entity with all parts of its address.
const PATH_BYTES_MAX: usize = 16 << 10;

/// Access of a principal to a broker. Cheap to clone; clones share the principal and its grants.
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
/// /// Allows clients without credentials to send.
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
    /// None if everything is allowed.
    check: Option<Arc<AccessCheck>>,
}

struct AccessCheck {
    state: Mutex<AccessState>,
    reads: ReadRule,
    /// Highest role of the client (CON-73).
    ceiling: Ceiling,
    /// Console token that the client presents (CON-71).
    console_token: PresentedToken,
    /// Whether an administrator with a console token is a viewer until it is unlocked (CON-73).
    needs_unlock: bool,
    /// Accesses of the credentials that were presented for the destinations of forwarding, in
    /// addition to the principal's own (FWD-05, HTP-18). Order: messages, dead-lettered messages.
    destination_accesses: [Option<Access>; 2],
}

struct AccessState {
    principal: Arc<Principal>,
    /// Counts principals, so that a grant requested for an earlier principal is discarded.
    version: u64,
    grants: GrantCache,
}

/// The rights that permit reading descriptions and counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadRule {
    /// Only Manage (SEC-05).
    ByManage,
    /// Listen also suffices (CON-73).
    ByListen,
}

impl Broker {
    /// Returns the access of a principal. Its authorizer decides about the rights.
    #[must_use]
    pub fn access(&self, principal: Principal) -> Access {
        let check = AccessCheck {
            state: Mutex::new(AccessState {
                principal: Arc::new(principal),
                version: 0,
                grants: GrantCache::default(),
            }),
            reads: ReadRule::ByManage,
            ceiling: Ceiling::Admin,
            console_token: PresentedToken::Absent,
            needs_unlock: false,
            destination_accesses: [None, None],
        };
        Access { broker: self.clone(), check: Some(Arc::new(check)) }
    }

    /// Returns an access with the rights of a policy, without a key and independent of the
    /// authorizer: for handles that the embedding program gives to its parts (SEC-17). `owner` is
    /// the queue or topic that has the policy; it is empty for the namespace. The access ends with
    /// the policy.
    #[must_use]
    pub fn access_of_policy(&self, owner: &str, name: &str) -> Access {
        let policy = Some((owner.into(), name.into()));
        self.access(Principal { policy, ..Principal::anonymous() })
    }

    /// Returns an access that allows everything without a check, for the program that embeds the
    /// broker (SEC-17).
    #[must_use]
    pub fn full_access(&self) -> Access {
        Access { broker: self.clone(), check: None }
    }
}

impl Access {
    /// Returns this access for a JSON API, where the right Listen also permits reading descriptions
    /// and counts: a client that only looks must not be able to destroy (SEC-05, CON-73). It takes
    /// over no grants.
    #[must_use]
    pub fn with_listen_reads(&self) -> Self {
        self.rebuilt(|check| check.reads = ReadRule::ByListen)
    }

    /// Returns this access after a change, without its grants.
    fn rebuilt(&self, change: impl FnOnce(&mut AccessCheck)) -> Self {
        let Some(check) = &self.check else { return self.clone() };
        let principal = Arc::clone(&check.lock().principal);
        let state = AccessState { principal, version: 0, grants: GrantCache::default() };
        let mut check = AccessCheck {
            state: Mutex::new(state),
            reads: check.reads,
            ceiling: check.ceiling,
            console_token: check.console_token.clone(),
            needs_unlock: check.needs_unlock,
            destination_accesses: check.destination_accesses.clone(),
        };
        change(&mut check);
        Self { broker: self.broker.clone(), check: Some(Arc::new(check)) }
    }

    /// Returns this access with the credentials that were presented for the destinations an entity
    /// will forward to: first messages, second dead-lettered messages (HTP-18). For a destination
    /// without them, the principal of this access decides. It takes over no grants.
    #[must_use]
    pub fn with_destination_credentials(&self, destination_accesses: [Option<Self>; 2]) -> Self {
        self.rebuilt(|check| check.destination_accesses = destination_accesses)
    }

    /// The broker. Calls on it directly, instead of through this access, are not checked.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The principal; none if everything is allowed.
    #[must_use]
    pub fn principal(&self) -> Option<Arc<Principal>> {
        Some(Arc::clone(&self.check.as_ref()?.lock().principal))
    }

    /// Refuses an action that is not granted. Returns the canonical address, so that the rights are
    /// checked for the same address that is looked up, in any spelling from the client.
    /// `path` is the path of an entity or sub-queue, whether it exists or not, or empty for the
    /// namespace.
    ///
    /// Call it before any other work for a request, such as reading its body. Security does not
    /// depend on this call: the operation checks the remembered grant again.
    ///
    /// While the broker is suspended, it waits, except for [`Action::End`]: connections present
    /// tokens, and their heartbeats go on (CLU-17).
    ///
    /// # Errors
    /// `Unauthorized`; `ServerBusy` if another broker serves the namespace now.
    pub async fn allow(&self, action: Action, path: &str) -> Result<String, BrokerError> {
        let resource = canonical(path);
        self.pass(&resource, action).await?;
        // Metrics are about the broker, and `End` only proves a token.
        if !matches!(action, Action::ReadMetrics | Action::End) {
            self.wait_for_tenure(&resource).await?;
        }
        Ok(resource)
    }

    /// Waits while the broker is suspended: answers rest on its memory (CLU-17).
    async fn wait_for_tenure(&self, resource: &str) -> Result<(), BrokerError> {
        let valid = self.broker.shared.tenure.valid().await;
        valid.map_err(|ending| self.broker.refuse(ending.refusal(), resource))
    }

    /// Whether an action is granted, for answers that contain more for a reader with more rights.
    /// Nothing is refused, but an invalid token is still a failed attempt: it is counted and logged
    /// like others (SEC-22). A valid token with too few rights, or no token, is not an attempt.
    pub async fn is_allowed(&self, action: Action, path: &str) -> bool {
        let resource = canonical(path);
        let asked = self.check_action(action, &resource).await;
        asked.map_err(|rejection| self.log_attempt(rejection, &resource)).is_ok()
    }

    /// Counts and logs an invalid token.
    fn log_attempt(&self, rejection: Rejection, resource: &str) {
        let cause = rejection.denial().map_or(Denial::OTHER, |denial| denial.cause);
        let is_bad = rejection.condition() == Condition::Unauthorized && cause != Denial::RIGHT;
        if is_bad && self.principal().is_some_and(|principal| principal.has_credentials()) {
            drop(self.broker.refuse(rejection, resource));
        }
    }

    /// Whether an action is granted, for a principal whose other credentials are checked next. A
    /// refusal here is no failed attempt of the principal, so its answer is not delayed (SEC-26).
    /// The grant is not remembered.
    async fn is_allowed_without_delay(&self, action: Action, path: &str) -> bool {
        let Some(check) = &self.check else { return true };
        let resource: Arc<str> = canonical(path).into();
        if resource.len() > PATH_BYTES_MAX {
            return false;
        }
        let principal = Arc::clone(&check.lock().principal);
        let asked = std::slice::from_ref(&resource);
        let grants = question::ask_all(&self.broker, &principal, asked).await;
        grants.iter().any(|grant| {
            let lasts = grant.until.is_none_or(|until| self.broker.now() < until);
            lasts && check.actions(grant, self.broker.now()).contains(action)
        })
    }

    /// Refuses a principal whose credentials are invalid, independent of its rights: for transports
    /// whose clients present credentials before they name an entity (AMQP-08).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn require_valid_credentials(&self) -> Result<(), BrokerError> {
        let Some(check) = &self.check else { return Ok(()) };
        let asked = self.entitlement_for(check, "").await;
        asked.map(|_| ()).map_err(|rejection| self.broker.refuse(rejection, ""))
    }

    /// Whether the credentials of the principal are valid, independent of its rights. Nothing is
    /// refused or counted: for clients that may still present better credentials.
    pub async fn has_valid_credentials(&self) -> bool {
        match &self.check {
            Some(check) => self.entitlement_for(check, "").await.is_ok(),
            None => true,
        }
    }

    /// Whether the credentials of the principal are valid, for clients that present no others. An
    /// invalid token is a failed attempt, as with [`Self::is_allowed`].
    pub async fn verify_credentials(&self) -> bool {
        let Some(check) = &self.check else { return true };
        let asked = self.entitlement_for(check, "").await;
        asked.map_err(|rejection| self.log_attempt(rejection, "")).is_ok()
    }

    /// Whether any remembered grant is still in force. The authorizer is not asked (SEC-16).
    #[must_use]
    pub fn holds(&self) -> bool {
        let Some(check) = &self.check else { return true };
        let lasts = |entitlement: &Arc<Entitlement>| {
            entitlement.end_reason(|| self.broker.now()).is_none() && !entitlement.is_refused()
        };
        check.lock().grants.iter().any(|(_, entitlement)| lasts(entitlement))
    }

    /// Returns a handle on an entity or sub-queue for a purpose. A missing right is refused before
    /// the entity is looked up, so the answer does not reveal whether it exists (SEC-08). Each
    /// command on the handle is checked again, against the rights at that time. Waits for the
    /// authorizer and for an entity that is being created.
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`; `ServerBusy` for an unknown entity while the broker is
    /// suspended.
    pub async fn entity(&self, path: &str, purpose: Action) -> Result<Entity, BrokerError> {
        let resource = canonical(path);
        let pass = self.pass(&resource, purpose).await?;
        Ok(self.known_entity(&resource).await?.with_pass(pass))
    }

    async fn known_entity(&self, resource: &str) -> Result<Entity, BrokerError> {
        let found = self.broker.find_at_once(resource).await;
        found.map_err(|rejection| self.broker.refuse(rejection, resource))
    }

    /// As [`Access::entity`], for callers that cannot wait.
    ///
    /// # Errors
    /// As for [`Access::entity`]; `ServerBusy` if the authorizer does not answer at once, or the
    /// entity is being created.
    pub fn entity_now(&self, path: &str, purpose: Action) -> Result<Entity, BrokerError> {
        self.now(path, self.entity(path, purpose))
    }

    /// Polls once, and refuses an answer that needs waiting.
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

    /// Returns a handle on `via` through which messages are sent to another entity (VIA-02), and
    /// the path of that destination. The principal needs the right to send to both. The end of
    /// either grant ends the handle (SEC-15). No other handle sends there.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound`; `ArgumentError` if the destination is neither a queue nor
    /// a topic; `InvalidOperation` if it is `via` itself.
    pub async fn transfer_destination(
        &self,
        path: &str,
        via: &Entity,
    ) -> Result<(Entity, Arc<str>), BrokerError> {
        let pass = self.pass(&canonical(path), Action::BeSentTo).await?;
        if !self.broker.is_suspended() {
            self.broker.wait_for_creation(path).await;
        }
        let found = self.broker.find_destination(path, via);
        let found = found.map_err(|reason| self.broker.unless_suspended(reason));
        let destination = found.map_err(|rejection| self.broker.refuse(rejection, path))?;
        let entitlement = pass.map(|pass| Arc::clone(&pass.entitlement));
        let via_grant = ViaGrant::new(Arc::clone(&destination), entitlement);
        Ok((via.clone().with_via_grant(via_grant), destination))
    }

    /// As [`Access::transfer_destination`], for callers that cannot wait.
    ///
    /// # Errors
    /// As for [`Access::transfer_destination`]; `ServerBusy` if the authorizer does not answer at
    /// once.
    pub fn transfer_destination_now(
        &self,
        path: &str,
        via: &Entity,
    ) -> Result<(Entity, Arc<str>), BrokerError> {
        self.now(path, self.transfer_destination(path, via))
    }

    /// Forgets grants for entities without a handle; they are requested again when needed. For
    /// transports with many accesses for one connection.
    pub fn forget_unused(&self) {
        if let Some(check) = &self.check {
            check.lock().grants.forget_unused();
        }
    }

    /// Returns a handle on the queue or topic of a transaction, without a purpose: each operation
    /// is checked separately.
    ///
    /// # Errors
    /// `EntityNotFound`; `Unauthorized` for a principal whose credentials are refused.
    pub async fn entity_of_a_transaction(&self, path: &str) -> Result<Entity, Rejection> {
        let pass = self.pass_to_root(path).await?;
        Ok(self.broker.find_at_once(path).await?.with_pass(pass))
    }

    /// Returns a handle on an entity or sub-queue for the first of several purposes that is
    /// granted. If none is granted, it is refused for the first purpose.
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
            match self.check_action(*purpose, &resource).await {
                Ok(pass) => {
                    return Ok(self.known_entity(&resource).await?.with_pass(pass));
                }
                Err(rejection) => refused = refused.or(Some(rejection)),
            }
        }
        let refused = refused
            .unwrap_or_else(|| Rejection::internal("the access was created without a purpose"));
        Err(self.broker.refuse(refused, &resource))
    }

    async fn pass(&self, resource: &str, action: Action) -> Result<Option<Arc<Pass>>, BrokerError> {
        let asked = self.check_action(action, resource).await;
        asked.map_err(|rejection| self.broker.refuse(rejection, resource))
    }

    async fn check_action(
        &self,
        action: Action,
        resource: &str,
    ) -> Result<Option<Arc<Pass>>, Rejection> {
        let Some(check) = &self.check else { return Ok(None) };
        let entitlement = self.entitlement_for(check, resource).await?;
        entitlement.check_purpose(action, || self.broker.now())?;
        Ok(Some(self.pass_with(entitlement)))
    }

    fn pass_with(&self, entitlement: Arc<Entitlement>) -> Arc<Pass> {
        Arc::new(Pass { entitlement, issuer: Box::new(self.clone()) })
    }

    /// Returns the remembered grant on a resource if it is still in force, else asks the
    /// authorizer.
    async fn entitlement_for(
        &self,
        check: &AccessCheck,
        resource: &str,
    ) -> Result<Arc<Entitlement>, Rejection> {
        if resource.len() > PATH_BYTES_MAX {
            // No entity has such a path, so this reason reveals nothing.
            let detail = format!(
                "a path of {} bytes is longer than the limit of {PATH_BYTES_MAX}",
                resource.len()
            );
            return Err(Rejection::argument(detail));
        }
        let known = check.lock().grants.get(resource);
        match known {
            Some(entitlement)
                if entitlement.end_reason(|| self.broker.now()).is_none()
                    && !entitlement.is_refused() =>
            {
                Ok(entitlement)
            }
            known => self.ask(check, resource, known.as_ref()).await,
        }
    }

    /// Asks the authorizer and remembers its answer.
    async fn ask(
        &self,
        check: &AccessCheck,
        resource: &str,
        known: Option<&Arc<Entitlement>>,
    ) -> Result<Arc<Entitlement>, Rejection> {
        loop {
            let (principal, version) = {
                let state = check.lock();
                (Arc::clone(&state.principal), state.version)
            };
            let shared = &self.broker.shared;
            check.console_token.require(&shared.sign_ins, &*shared.clock, &principal).await?;
            let grant = question::ask(&self.broker, &principal, resource).await?;
            let now = self.broker.now();
            let grant = check.limit(grant, now);
            let actions = check.actions(&grant, now);
            let mut state = check.lock();
            if state.version != version {
                // The client presented new credentials meanwhile.
                continue;
            }
            let entitlement = known.cloned().or_else(|| state.grants.get(resource));
            let entitlement = entitlement
                .unwrap_or_else(|| Arc::new(Entitlement::new(&self.broker.shared.expiring_grants)));
            state.grants.insert(resource, &entitlement);
            // Still under the lock: after it, a newer answer could arrive first and be overwritten
            // by this one.
            entitlement.replace_grant(&grant, actions, principal.peer);
            drop(state);
            entitlement.enforce(|| self.broker.now());
            return Ok(entitlement);
        }
    }
}

impl Issuer for Access {
    fn pass_to_root<'a>(&'a self, path: &'a str) -> PassFuture<'a> {
        Box::pin(async move {
            let Some(check) = &self.check else { return Ok(None) };
            let entitlement = self.entitlement_for(check, path).await?;
            Ok(Some(self.pass_with(entitlement)))
        })
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("principal", &self.principal()).finish_non_exhaustive()
    }
}

impl AccessCheck {
    fn lock(&self) -> MutexGuard<'_, AccessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits a grant to the ceiling and the console token of this access.
    fn limit(&self, grant: Grant, now: Timestamp) -> Grant {
        let ceiling = grant.ceiling.min(self.ceiling);
        self.console_token.limit(grant.with_ceiling(ceiling), self.needs_unlock, now)
    }

    /// The actions that a grant allows through this access.
    fn actions(&self, grant: &Grant, now: Timestamp) -> Actions {
        let actions = self.limit(grant.clone(), now).actions();
        if self.reads == ReadRule::ByListen && actions.contains(Action::Overview) {
            return actions.with(Action::Describe);
        }
        actions
    }
}

/// Returns an address in the spelling that is looked up.
fn canonical(path: &str) -> String {
    EntityAddress::parse(path).map_or_else(|_| path.to_owned(), |address| address.to_string())
}
