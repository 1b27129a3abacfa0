//! A grant as one connection holds it for one entity: what is checked at every command, and what was begun
//! under it and ends with it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::lapse::Lapses;
use crate::command::{Command, LinkEnd, Opens, Outcome};
use crate::condition::Condition;
use crate::contract::action::{Action, Actions, Needs};
use crate::contract::epoch::Mark;
use crate::contract::rights::{self, Grant};
use crate::error::Rejection;
use crate::ids::{ReceiverId, Ticket};
use crate::request::{AnswerObserver, Outlet, Released, Reply, Request};
use crate::time::Timestamp;

/// The instant of a grant that has no end.
const NO_END: i64 = i64::MAX;

/// An entity at which something is open under a grant.
pub(crate) trait GrantedEntity: Send + Sync {
    /// Time on the clock of its broker.
    fn now(&self) -> Timestamp;

    /// Submits a command on the broker's own account, whatever is granted.
    fn submit_own(self: Arc<Self>, command: Command, reply: Reply);
}

/// What one connection may do to one entity. Handles share it, so that a newer token replaces the older
/// one under links that are open (SEC-15).
pub struct Entitlement {
    /// Names it among those that may lapse.
    pub(super) key: u64,
    lapses: Arc<Lapses>,
    /// What is checked without a lock: the actions, the end in ticks, and the count of raised epochs up to which
    /// it is known to be good.
    actions: AtomicU64,
    until: AtomicI64,
    seen: AtomicU64,
    /// Whether it can end at all.
    is_limited: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    epoch: Option<Mark>,
    /// The policy that it rests on, if there is one.
    policy: Option<Arc<str>>,
    /// Why nothing is granted, if an authorizer said so.
    refusal: Option<Rejection>,
    /// Where who holds it comes from.
    peer: Option<SocketAddr>,
    links: HashMap<ReceiverId, OpenLink>,
    waits: HashMap<Ticket, Arc<dyn GrantedEntity>>,
    /// Whether somebody looks after its end.
    is_registered: bool,
}

/// A link that was opened under a grant.
struct OpenLink {
    purpose: Action,
    /// Where it is attached; none if nothing is pushed over it, so that its entity does not know it.
    entity: Option<Arc<dyn GrantedEntity>>,
    outlet: Weak<dyn Outlet>,
    /// It never came to be; or it was told that it is over.
    has_failed: Arc<AtomicBool>,
}

/// What a group of commands may do.
pub(crate) struct Judgement {
    actions: Actions,
    /// Why that is little, if there is a reason besides the rights.
    reason: Option<Rejection>,
}

/// A command that leaves something open: a link, or a call that waits.
pub(crate) struct Tracked {
    held: Arc<Entitlement>,
    ticket: Ticket,
    receiver: Option<ReceiverId>,
    waits: bool,
    entity: Arc<dyn GrantedEntity>,
    outlet: Option<Weak<dyn Outlet>>,
    /// Nothing is open by it any more.
    is_answered: AtomicBool,
    has_failed: Arc<AtomicBool>,
}

impl Entitlement {
    pub(crate) fn new(lapses: &Arc<Lapses>) -> Self {
        Self {
            key: lapses.next_key(),
            lapses: Arc::clone(lapses),
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

    /// Holds a newer grant from now on. What was begun is looked at by [`Entitlement::enforce`].
    pub(crate) fn take(&self, grant: &Grant, widened: Actions, peer: Option<SocketAddr>) {
        if let Some(epoch) = &grant.epoch {
            epoch.ring(&self.lapses.bell);
        }
        let seen = self.lapses.bell.count();
        let mut state = self.lock();
        state.epoch.clone_from(&grant.epoch);
        state.policy.clone_from(&grant.by);
        state.peer = peer;
        state.refusal = None;
        // Links that their entity does not know go on.
        for link in state.links.values().filter(|link| link.entity.is_none()) {
            link.has_failed.store(false, Ordering::Release);
        }
        let is_limited = grant.until.is_some() || grant.epoch.is_some();
        self.is_limited.store(is_limited, Ordering::Relaxed);
        self.until.store(grant.until.map_or(NO_END, Timestamp::ticks), Ordering::Relaxed);
        // An epoch that was raised meanwhile is found by the next look.
        let seen = match &grant.epoch {
            Some(epoch) if !epoch.is_current() => seen.wrapping_sub(1),
            Some(_) | None => seen,
        };
        self.seen.store(seen, Ordering::Release);
        self.actions.store(widened.bits(), Ordering::Release);
    }

    /// Ends what was begun and is not granted any more, and sees to the end of the rest.
    pub(crate) fn enforce(self: &Arc<Self>, now: impl Fn() -> Timestamp) {
        let mut state = self.lock();
        let has_open = !state.links.is_empty() || !state.waits.is_empty();
        let registers = has_open && self.is_limited.load(Ordering::Relaxed);
        let was_registered = std::mem::replace(&mut state.is_registered, registers);
        if was_registered && !registers {
            self.lapses.forget(self.key);
        }
        drop(state);
        if registers {
            self.lapses.register(self);
        }
        if has_open {
            self.close_what_is_not_granted(now);
        }
    }

    /// Nothing is granted any more, for the reason that the authorizer gave.
    pub(crate) fn refuse(&self, reason: Rejection) {
        self.actions.store(Grant::nothing().actions().bits(), Ordering::Release);
        self.lock().refusal = Some(reason.clone());
        self.close(&reason);
    }

    /// When it ends.
    pub(super) fn end(&self) -> Option<Timestamp> {
        match self.until.load(Ordering::Relaxed) {
            NO_END => None,
            until => Some(Timestamp::from_ticks(until)),
        }
    }

    /// Why it is over, if it is. A couple of loads if nothing was raised and it has no end.
    pub(crate) fn lapse(&self, now: impl FnOnce() -> Timestamp) -> Option<Rejection> {
        if self.end().is_some_and(|until| now() >= until) {
            let reason = Rejection::unauthorized(
                "the presented credentials have expired; connect with a new token",
            );
            return Some(self.lock().denied(reason.because("expired")));
        }
        self.withdrawal()
    }

    /// Why it is over before its end, if its epoch was raised.
    pub(super) fn withdrawal(&self) -> Option<Rejection> {
        let count = self.lapses.bell.count();
        if self.seen.load(Ordering::Acquire) == count {
            return None;
        }
        let state = self.lock();
        if state.epoch.as_ref().is_some_and(|epoch| !epoch.is_current()) {
            let detail = "the key or policy of the presented credentials has changed; connect with \
                a new token";
            return Some(state.denied(Rejection::unauthorized(detail).because("withdrawn")));
        }
        self.seen.store(count, Ordering::Release);
        None
    }

    /// Whether it was refused altogether, so that asking again is worth it.
    pub(crate) fn is_refused(&self) -> bool {
        self.lock().refusal.is_some()
    }

    /// What commands may do now.
    pub(crate) fn judge(&self, now: impl FnOnce() -> Timestamp) -> Judgement {
        match self.lapse(now) {
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

    /// As [`Entitlement::check`], for a handle. What takes no right is no reason to tell who has none what there is
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
        if matches!(action.needs(), Needs::BrokerItself) {
            let detail = "only the broker itself gives this command, to its own entities";
            return Rejection::invalid_operation(detail);
        }
        let state = self.lock();
        let missing = || rights::missing(action, state.policy.as_deref());
        judgement
            .reason
            .or_else(|| state.refusal.clone())
            .unwrap_or_else(|| state.denied(missing()))
    }

    /// Why a command is refused; of a commit, why one of its operations is.
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

    /// Sees that what a command leaves open ends with the grant; none if it leaves nothing.
    pub(crate) fn track(
        self: &Arc<Self>,
        entity: impl FnOnce() -> Arc<dyn GrantedEntity>,
        request: &mut Request,
    ) -> Option<Arc<Tracked>> {
        if let Command::Detach { receiver, .. } = &request.command {
            self.forget(*receiver);
            return None;
        }
        // Also under a grant without an end, which a newer one may replace that gives less.
        let Opens { link: receiver, waits } = request.command.opens();
        if receiver.is_none() && !waits {
            return None;
        }
        let tracked = Arc::new(Tracked {
            held: Arc::clone(self),
            ticket: request.ticket,
            receiver,
            waits,
            entity: entity(),
            outlet: request.reply.outlet().map(Arc::downgrade),
            is_answered: AtomicBool::new(false),
            has_failed: Arc::default(),
        });
        request.reply.watch(Arc::clone(&tracked) as Arc<dyn AnswerObserver>);
        Some(tracked)
    }

    /// A link is over.
    pub(super) fn forget(&self, receiver: ReceiverId) {
        self.lock().links.remove(&receiver);
    }

    /// Sees that a link is told when what it is for is not granted any more, although nothing is pushed over
    /// it. `is_told` is one for all that are looked at for it, so that one end is told once.
    pub(crate) fn watch(
        self: &Arc<Self>,
        purpose: Action,
        receiver: ReceiverId,
        (outlet, is_told): (&Arc<dyn Outlet>, &Arc<AtomicBool>),
        now: impl Fn() -> Timestamp,
    ) {
        let (outlet, has_failed) = (Arc::downgrade(outlet), Arc::clone(is_told));
        let mut state = self.lock();
        state.keep(receiver, OpenLink { purpose, entity: None, outlet, has_failed });
        self.look_after(state, now);
    }

    /// Something was opened: its end is looked after.
    fn look_after(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: impl Fn() -> Timestamp) {
        let registers = self.is_limited.load(Ordering::Relaxed) && !state.is_registered;
        state.is_registered |= registers;
        drop(state);
        if registers {
            self.lapses.register(self);
        }
        // What was granted when it was asked may be so no more.
        self.close_what_is_not_granted(now);
    }

    fn close_what_is_not_granted(&self, now: impl Fn() -> Timestamp) {
        let Judgement { actions, reason } = self.judge(now);
        self.close_beyond(actions, |action| {
            self.refusal(Judgement { actions, reason: reason.clone() }, action)
        });
    }

    /// Ends what was begun under it.
    pub(super) fn close(&self, reason: &Rejection) {
        self.close_beyond(Grant::nothing().actions(), |_| reason.clone());
    }

    /// Ends what was begun and is not granted: calls that wait are answered with the reason, links are closed
    /// with it once the entity delivers nothing more. Those that it does not know are told, and go on with
    /// what is granted later.
    fn close_beyond(&self, granted: Actions, reason: impl Fn(Action) -> Rejection) {
        let mut state = self.lock();
        let mut waits = HashMap::new();
        if !granted.contains(Action::Receive) {
            waits = std::mem::take(&mut state.waits);
        }
        let mut closed = Vec::new();
        state.links.retain(|receiver, link| {
            let is_over = !granted.contains(link.purpose);
            if is_over {
                let (outlet, has_failed) =
                    (Weak::clone(&link.outlet), Arc::clone(&link.has_failed));
                closed.push((*receiver, link.purpose, link.entity.clone(), outlet, has_failed));
            }
            !is_over || link.entity.is_none()
        });
        let is_over = granted == Grant::nothing().actions();
        let was_registered = is_over && std::mem::take(&mut state.is_registered);
        drop(state);
        if was_registered {
            self.lapses.forget(self.key);
        }
        for (call, entity) in waits {
            entity.submit_own(Command::CancelReceive { call }, Reply::nobody());
        }
        for (receiver, purpose, entity, outlet, has_failed) in closed {
            // The reason is read under the lock that was held above.
            let closing = Closing { outlet, receiver, reason: reason(purpose), has_failed };
            let detach = Command::Detach { receiver: closing.receiver, end: LinkEnd::ByBroker };
            match entity {
                Some(entity) => {
                    entity.submit_own(detach, Reply::new(Arc::new(closing), 0, None));
                }
                None => {
                    closing.release(Vec::new());
                    closing.has_failed.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Drop for Entitlement {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.is_registered {
            self.lapses.forget(self.key);
        }
    }
}

impl State {
    /// A reason, with whose grant it is about.
    fn denied(&self, reason: Rejection) -> Rejection {
        let reason = reason.of_peer(self.peer);
        match &self.policy {
            Some(policy) => reason.by_policy(policy),
            None => reason,
        }
    }

    fn keep(&mut self, receiver: ReceiverId, link: OpenLink) {
        if self.links.len() == self.links.capacity() {
            // Links that their entity has closed, and whose connection is gone.
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

impl Tracked {
    /// The command was handed over: what it opens is open from now on, unless it was answered already.
    pub(crate) fn opened(self: Arc<Self>) {
        let held = &self.held;
        let mut state = held.lock();
        if let (Some(receiver), Some(outlet)) = (self.receiver, &self.outlet)
            && !self.has_failed.load(Ordering::Acquire)
        {
            let link = OpenLink {
                purpose: Action::Receive,
                entity: Some(self.entity.clone()),
                outlet: Weak::clone(outlet),
                has_failed: Arc::clone(&self.has_failed),
            };
            state.keep(receiver, link);
        }
        if self.waits && !self.is_answered.load(Ordering::Acquire) {
            state.waits.insert(self.ticket, self.entity.clone());
        }
        held.look_after(state, || self.entity.now());
    }

    /// Closes the wait of a command; one that failed has opened no link.
    fn close(&self, has_failed: bool) {
        self.is_answered.store(true, Ordering::Release);
        self.has_failed.store(has_failed, Ordering::Release);
        let mut state = self.held.lock();
        if self.waits {
            state.waits.remove(&self.ticket);
        }
        if let Some(receiver) = self.receiver.filter(|_| has_failed) {
            state.links.remove(&receiver);
        }
    }
}

impl AnswerObserver for Tracked {
    /// Closes the wait. A call that was withdrawn because its grant is over gets that as its answer.
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
        let judgement = self.held.judge(|| self.entity.now());
        if judgement.actions.contains(Action::Receive) {
            return result;
        }
        Err(self.held.refusal(judgement, Action::Receive))
    }

    fn unanswered(&self) {
        self.close(true);
    }
}

/// Tells a link that it was closed, when its entity has said that it delivers nothing more.
struct Closing {
    outlet: Weak<dyn Outlet>,
    receiver: ReceiverId,
    reason: Rejection,
    has_failed: Arc<AtomicBool>,
}

impl Outlet for Closing {
    fn release(&self, _: Vec<Released>) {
        if self.has_failed.load(Ordering::Acquire) {
            return;
        }
        if let Some(outlet) = self.outlet.upgrade() {
            let detached =
                Released::Detached { receiver: self.receiver, reason: self.reason.clone() };
            outlet.release(vec![detached]);
        }
    }
}
