//! Grant of a connection for one entity: checked at every command. It also ends the links and
//! waiting calls that were opened under it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::expiring::ExpiringGrants;
use crate::command::{Command, LinkEnd, Opens, Outcome};
use crate::condition::Condition;
use crate::contract::action::{Action, Actions, Requirement};
use crate::contract::epoch::Mark;
use crate::contract::rights::{self, Ceiling, Grant, Rights};
use crate::error::Rejection;
use crate::ids::{ReceiverId, Ticket};
use crate::request::{AnswerObserver, Outlet, Released, Reply, Request};
use crate::time::Timestamp;

/// End of a grant without a time limit, in ticks.
const NO_END: i64 = i64::MAX;

/// An entity with links or calls that are open under a grant.
pub(crate) trait GrantedEntity: Send + Sync {
    /// Current time on the broker's clock.
    fn now(&self) -> Timestamp;

    /// Submits a command on the broker's own account, without a check of rights.
    fn submit_own(self: Arc<Self>, command: Command, reply: Reply);
}

/// Rights of a connection on one entity. Handles share it, so that a newer token replaces the
/// older one under open links (SEC-15).
pub struct Entitlement {
    /// Key of this grant in [`ExpiringGrants`].
    pub(super) key: u64,
    expiring_grants: Arc<ExpiringGrants>,
    /// Checked without a lock: the actions, the end in ticks, and the count of raised epochs at the
    /// last successful check.
    actions: AtomicU64,
    until: AtomicI64,
    seen: AtomicU64,
    /// Whether the grant can end.
    is_limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    epoch: Option<Mark>,
    rights: Rights,
    ceiling: Ceiling,
    /// Name of the policy behind the grant, if there is one.
    policy: Option<Arc<str>>,
    /// Reason of the authorizer for refusing everything.
    refusal: Option<Rejection>,
    /// Network address of the client.
    peer: Option<SocketAddr>,
    links: HashMap<ReceiverId, OpenLink>,
    waits: HashMap<Ticket, Arc<dyn GrantedEntity>>,
    /// Whether [`ExpiringGrants`] watches its end.
    is_registered: bool,
}

/// A link that was opened under a grant.
struct OpenLink {
    purpose: Action,
    /// Entity of the link; none if nothing is pushed over the link, so that its entity does not
    /// know it.
    entity: Option<Arc<dyn GrantedEntity>>,
    outlet: Weak<dyn Outlet>,
    /// Whether the link must not be notified of its end: it was never opened, or it has already got
    /// the notification.
    needs_no_notice: Arc<AtomicBool>,
}

/// Rights for a group of commands.
pub(crate) struct Judgement {
    actions: Actions,
    /// Reason for refusals, if the grant is over.
    reason: Option<Rejection>,
}

/// A command that opens a link or waits.
pub(crate) struct TrackedCommand {
    entitlement: Arc<Entitlement>,
    ticket: Ticket,
    receiver: Option<ReceiverId>,
    waits: bool,
    entity: Arc<dyn GrantedEntity>,
    outlet: Option<Weak<dyn Outlet>>,
    /// Set when the command is answered, so that it no longer waits.
    is_answered: AtomicBool,
    /// As for [`OpenLink`]. Set if the command fails, since its link was then never opened.
    needs_no_notice: Arc<AtomicBool>,
}

impl Entitlement {
    pub(crate) fn new(expiring_grants: &Arc<ExpiringGrants>) -> Self {
        Self {
            key: expiring_grants.next_key(),
            expiring_grants: Arc::clone(expiring_grants),
            actions: AtomicU64::new(0),
            until: AtomicI64::new(NO_END),
            seen: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the grant by a newer one. [`Entitlement::enforce`] then ends open links and calls
    /// that it does not cover.
    pub(crate) fn replace_grant(&self, grant: &Grant, widened: Actions, peer: Option<SocketAddr>) {
        if let Some(epoch) = &grant.epoch {
            epoch.register_notifier(&self.expiring_grants.notifier);
        }
        let seen = self.expiring_grants.notifier.count();
        let mut state = self.lock();
        state.epoch.clone_from(&grant.epoch);
        (state.rights, state.ceiling) = (grant.rights, grant.ceiling);
        state.policy.clone_from(&grant.policy);
        state.peer = peer;
        state.refusal = None;
        // Links unknown to their entity continue and can be notified again.
        for link in state.links.values().filter(|link| link.entity.is_none()) {
            link.needs_no_notice.store(false, Ordering::Release);
        }
        let is_limited = grant.until.is_some() || grant.epoch.is_some();
        self.is_limited.store(is_limited, Ordering::Relaxed);
        self.until.store(grant.until.map_or(NO_END, Timestamp::ticks), Ordering::Relaxed);
        // The next check must find an epoch that was raised meanwhile.
        let seen = match &grant.epoch {
            Some(epoch) if !epoch.is_current() => seen.wrapping_sub(1),
            Some(_) | None => seen,
        };
        self.seen.store(seen, Ordering::Release);
        self.actions.store(widened.bits(), Ordering::Release);
    }

    /// Ends links and calls that are no longer granted, and registers the end of the others.
    pub(crate) fn enforce(self: &Arc<Self>, now: impl Fn() -> Timestamp) {
        let mut state = self.lock();
        let has_open = !state.links.is_empty() || !state.waits.is_empty();
        let registers = has_open && self.is_limited.load(Ordering::Relaxed);
        let was_registered = std::mem::replace(&mut state.is_registered, registers);
        if was_registered && !registers {
            self.expiring_grants.forget(self.key);
        }
        drop(state);
        if registers {
            self.expiring_grants.register(self);
        }
        if has_open {
            self.close_ungranted(now);
        }
    }

    /// Withdraws everything, for the reason given by the authorizer.
    pub(crate) fn refuse(&self, reason: Rejection) {
        self.actions.store(Grant::nothing().actions().bits(), Ordering::Release);
        self.lock().refusal = Some(reason.clone());
        self.close(&reason);
    }

    /// Instant at which the grant ends; none without a limit.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        match self.until.load(Ordering::Relaxed) {
            NO_END => None,
            until => Some(Timestamp::from_ticks(until)),
        }
    }

    /// Reason why the grant is over, if it is. Costs two or three loads if no epoch was raised and
    /// it has no end.
    pub(crate) fn end_reason(&self, now: impl FnOnce() -> Timestamp) -> Option<Rejection> {
        if self.end().is_some_and(|until| now() >= until) {
            let reason = Rejection::unauthorized(
                "the presented credentials have expired; connect with a new token",
            );
            return Some(self.lock().with_origin(reason.with_cause("expired")));
        }
        self.withdrawal()
    }

    /// Reason why the grant was withdrawn by a raised epoch, if it was.
    pub(super) fn withdrawal(&self) -> Option<Rejection> {
        let count = self.expiring_grants.notifier.count();
        if self.seen.load(Ordering::Acquire) == count {
            return None;
        }
        let state = self.lock();
        if state.epoch.as_ref().is_some_and(|epoch| !epoch.is_current()) {
            let detail = "the key or policy of the presented credentials has changed; connect with \
                a new token";
            return Some(
                state.with_origin(Rejection::unauthorized(detail).with_cause("withdrawn")),
            );
        }
        self.seen.store(count, Ordering::Release);
        None
    }

    /// Name of the policy behind the grant, if there is one.
    pub(crate) fn policy(&self) -> Option<Arc<str>> {
        self.lock().policy.clone()
    }

    /// Highest role that the rights allow; none without the right to look.
    pub(crate) fn role(&self, now: impl FnOnce() -> Timestamp) -> Option<Ceiling> {
        let Judgement { actions, .. } = self.judge(now);
        let allows = |action| actions.contains(action);
        [
            (Ceiling::Admin, allows(Action::Update)),
            (Ceiling::Operator, allows(Action::Send) && allows(Action::Receive)),
            (Ceiling::Viewer, allows(Action::Inspect)),
        ]
        .into_iter()
        .find_map(|(role, is_allowed)| is_allowed.then_some(role))
    }

    /// Whether the authorizer refused everything, so that it must be asked again.
    pub(crate) fn is_refused(&self) -> bool {
        self.lock().refusal.is_some()
    }

    /// Returns the rights that commands have now.
    pub(crate) fn judge(&self, now: impl FnOnce() -> Timestamp) -> Judgement {
        match self.end_reason(now) {
            None => {
                let actions = Actions::from_bits(self.actions.load(Ordering::Acquire));
                Judgement { actions, reason: None }
            }
            reason => Judgement { actions: Grant::nothing().actions(), reason },
        }
    }

    /// Refuses an action that is not granted now.
    pub(crate) fn check(
        &self,
        action: Action,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), Rejection> {
        let judgement = self.judge(now);
        if judgement.actions.contains(action) {
            return Ok(());
        }
        Err(self.refusal(judgement, action))
    }

    /// As [`Entitlement::check`], for a handle. An action that needs no right is refused to a
    /// principal without any rights, since the lookup would reveal whether the entity exists
    /// (SEC-08).
    pub(crate) fn check_purpose(
        &self,
        purpose: Action,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), Rejection> {
        let judgement = self.judge(now);
        let is_known = judgement.actions != Grant::nothing().actions();
        if is_known && judgement.actions.contains(purpose) {
            return Ok(());
        }
        Err(self.refusal(judgement, purpose))
    }

    fn refusal(&self, judgement: Judgement, action: Action) -> Rejection {
        if matches!(action.needs(), Requirement::BrokerItself) {
            let detail = "only the broker itself gives this command, to its own entities";
            return Rejection::invalid_operation(detail);
        }
        let state = self.lock();
        let missing = || match action.needs() {
            Requirement::OneOf(one_of, least)
                if one_of.intersects(state.rights) && state.ceiling < least =>
            {
                rights::missing_role(least, state.ceiling)
            }
            Requirement::AllOf(all, least)
                if state.rights.include(all) && state.ceiling < least =>
            {
                rights::missing_role(least, state.ceiling)
            }
            _ => rights::missing_right(action, state.policy.as_deref()),
        };
        judgement
            .reason
            .or_else(|| state.refusal.clone())
            .unwrap_or_else(|| state.with_origin(missing()))
    }

    /// Returns the reason for refusing a command; for a commit, the reason for one of its
    /// operations.
    pub(crate) fn refuse_command(&self, judgement: &Judgement, command: &Command) -> Rejection {
        let action = match command {
            Command::Commit { parts } => parts
                .iter()
                .map(|part| Action::of_operation(&part.operation))
                .find(|action| !judgement.actions.contains(*action))
                .unwrap_or(Action::Commit),
            _ => Action::of(command),
        };
        let reason = judgement.reason.clone();
        self.refusal(Judgement { actions: judgement.actions, reason }, action)
    }

    /// Registers the link or wait of a command, so that it ends with the grant. Returns none for
    /// other commands.
    pub(crate) fn track(
        self: &Arc<Self>,
        entity: impl FnOnce() -> Arc<dyn GrantedEntity>,
        request: &mut Request,
    ) -> Option<Arc<TrackedCommand>> {
        if let Command::Detach { receiver, .. } = &request.command {
            self.forget(*receiver);
            return None;
        }
        // Also under a grant without an end: a newer grant with fewer rights may replace it.
        let Opens { link: receiver, waits } = request.command.opens();
        if receiver.is_none() && !waits {
            return None;
        }
        let tracked = Arc::new(TrackedCommand {
            entitlement: Arc::clone(self),
            ticket: request.ticket,
            receiver,
            waits,
            entity: entity(),
            outlet: request.reply.outlet().map(Arc::downgrade),
            is_answered: AtomicBool::new(false),
            needs_no_notice: Arc::default(),
        });
        request.reply.watch(Arc::clone(&tracked) as Arc<dyn AnswerObserver>);
        Some(tracked)
    }

    /// Forgets a link that has ended.
    pub(super) fn forget(&self, receiver: ReceiverId) {
        self.lock().links.remove(&receiver);
    }

    /// Watches a link over which nothing is pushed, so that `outlet` is notified when its purpose
    /// is no longer granted. All grants of the link share the flag, which is set with the first
    /// notification, so that the link gets only one.
    pub(crate) fn watch(
        self: &Arc<Self>,
        purpose: Action,
        receiver: ReceiverId,
        (outlet, needs_no_notice): (&Arc<dyn Outlet>, &Arc<AtomicBool>),
        now: impl Fn() -> Timestamp,
    ) {
        let (outlet, needs_no_notice) = (Arc::downgrade(outlet), Arc::clone(needs_no_notice));
        let mut state = self.lock();
        state.add_link(receiver, OpenLink { purpose, entity: None, outlet, needs_no_notice });
        self.watch_end(state, now);
    }

    /// Watches the end of a link or call that was just opened.
    fn watch_end(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: impl Fn() -> Timestamp) {
        let registers = self.is_limited.load(Ordering::Relaxed) && !state.is_registered;
        state.is_registered |= registers;
        drop(state);
        if registers {
            self.expiring_grants.register(self);
        }
        // The grant may have ended since the command was checked.
        self.close_ungranted(now);
    }

    fn close_ungranted(&self, now: impl Fn() -> Timestamp) {
        let Judgement { actions, reason } = self.judge(now);
        self.close_ungranted_by(actions, |action| {
            self.refusal(Judgement { actions, reason: reason.clone() }, action)
        });
    }

    /// Ends all links and calls under this grant.
    pub(super) fn close(&self, reason: &Rejection) {
        self.close_ungranted_by(Grant::nothing().actions(), |_| reason.clone());
    }

    /// Ends links and calls that are not granted. Waiting calls are answered with the reason. Links
    /// are closed with it after the entity has made its last delivery. Links unknown to the entity
    /// are notified, and continue under later grants.
    fn close_ungranted_by(&self, granted: Actions, reason: impl Fn(Action) -> Rejection) {
        let mut state = self.lock();
        let mut waits = HashMap::new();
        if !granted.contains(Action::Receive) {
            waits = std::mem::take(&mut state.waits);
        }
        let mut closed = Vec::new();
        state.links.retain(|receiver, link| {
            let is_over = !granted.contains(link.purpose);
            if is_over {
                let (outlet, needs_no_notice) =
                    (Weak::clone(&link.outlet), Arc::clone(&link.needs_no_notice));
                closed.push((
                    *receiver,
                    link.purpose,
                    link.entity.clone(),
                    outlet,
                    needs_no_notice,
                ));
            }
            !is_over || link.entity.is_none()
        });
        let is_over = granted == Grant::nothing().actions();
        let was_registered = is_over && std::mem::take(&mut state.is_registered);
        drop(state);
        if was_registered {
            self.expiring_grants.forget(self.key);
        }
        for (call, entity) in waits {
            entity.submit_own(Command::CancelReceive { call }, Reply::without_receiver());
        }
        for (receiver, purpose, entity, outlet, needs_no_notice) in closed {
            // Calling `reason` takes the lock that was released above.
            let closing = Closing { outlet, receiver, reason: reason(purpose), needs_no_notice };
            let detach = Command::Detach { receiver: closing.receiver, end: LinkEnd::ByBroker };
            match entity {
                Some(entity) => {
                    entity.submit_own(detach, Reply::new(Arc::new(closing), 0, None));
                }
                None => {
                    closing.release(Vec::new());
                    closing.needs_no_notice.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Drop for Entitlement {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.is_registered {
            self.expiring_grants.forget(self.key);
        }
    }
}

impl State {
    /// Adds the peer and policy of the grant to a reason.
    fn with_origin(&self, reason: Rejection) -> Rejection {
        let reason = reason.with_peer(self.peer);
        match &self.policy {
            Some(policy) => reason.with_policy(policy),
            None => reason,
        }
    }

    fn add_link(&mut self, receiver: ReceiverId, link: OpenLink) {
        if self.links.len() == self.links.capacity() {
            // Removes links that their entity closed and whose connection has ended.
            self.links.retain(|_, link| link.outlet.strong_count() > 0);
        }
        self.links.insert(receiver, link);
    }
}

impl Judgement {
    /// Whether a command may be carried out.
    pub(crate) fn allows(&self, command: &Command) -> bool {
        match command {
            Command::Commit { parts } => parts
                .iter()
                .all(|part| self.actions.contains(Action::of_operation(&part.operation))),
            _ => self.actions.contains(Action::of(command)),
        }
    }
}

impl TrackedCommand {
    /// Marks the link or wait of a submitted command as open, unless it was already answered.
    pub(crate) fn opened(self: Arc<Self>) {
        let entitlement = &self.entitlement;
        let mut state = entitlement.lock();
        if let (Some(receiver), Some(outlet)) = (self.receiver, &self.outlet)
            && !self.needs_no_notice.load(Ordering::Acquire)
        {
            let link = OpenLink {
                purpose: Action::Receive,
                entity: Some(self.entity.clone()),
                outlet: Weak::clone(outlet),
                needs_no_notice: Arc::clone(&self.needs_no_notice),
            };
            state.add_link(receiver, link);
        }
        if self.waits && !self.is_answered.load(Ordering::Acquire) {
            state.waits.insert(self.ticket, self.entity.clone());
        }
        entitlement.watch_end(state, || self.entity.now());
    }

    /// Ends the wait of a command. A failed command has opened no link.
    fn close(&self, has_failed: bool) {
        self.is_answered.store(true, Ordering::Release);
        self.needs_no_notice.store(has_failed, Ordering::Release);
        let mut state = self.entitlement.lock();
        if self.waits {
            state.waits.remove(&self.ticket);
        }
        if let Some(receiver) = self.receiver.filter(|_| has_failed) {
            state.links.remove(&receiver);
        }
    }
}

impl AnswerObserver for TrackedCommand {
    /// Ends the wait. If a call was withdrawn because its grant is over, replaces its answer by
    /// that reason.
    fn answered(&self, result: Result<Outcome, Rejection>) -> Result<Outcome, Rejection> {
        self.close(result.is_err());
        let is_taken_back = self.waits
            && match &result {
                Ok(Outcome::Received(messages)) => messages.is_empty(),
                Ok(_) => false,
                Err(rejection) => rejection.condition() == Condition::OperationCancelled,
            };
        if !is_taken_back {
            return result;
        }
        let judgement = self.entitlement.judge(|| self.entity.now());
        if judgement.actions.contains(Action::Receive) {
            return result;
        }
        Err(self.entitlement.refusal(judgement, Action::Receive))
    }

    fn unanswered(&self) {
        self.close(true);
    }
}

/// Notifies a link that it was closed, after its entity has made its last delivery.
struct Closing {
    outlet: Weak<dyn Outlet>,
    receiver: ReceiverId,
    reason: Rejection,
    needs_no_notice: Arc<AtomicBool>,
}

impl Outlet for Closing {
    fn release(&self, _: Vec<Released>) {
        if self.needs_no_notice.load(Ordering::Acquire) {
            return;
        }
        if let Some(outlet) = self.outlet.upgrade() {
            let detached =
                Released::Detached { receiver: self.receiver, reason: self.reason.clone() };
            outlet.release(vec![detached]);
        }
    }
}
