//! Inlet of an entity or of a held session: queues commands, and knocks for the actor once per
//! group.
//!
//! The inlet of an entity outlives the actor: while an entity is rebuilt, commands wait here. The
//! inlet of a session ends with its actor; its waiting requests and all later ones go to the
//! entity. The permits of the requests bound the number that wait (DESIGN D6).

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use actix::Recipient;

use super::wakeups::Knock;
use crate::command::Command;
use crate::error::Rejection;
use crate::ids::ReceiverId;
use crate::request::{Entrance, Outlet, Released, Request, Watch, WatchRegistry, release_all};
use crate::time::Timestamp;

/// Requests that were submitted together, or the rest of the group. A group moves as a whole
/// because a request is large.
pub(super) struct RequestGroup {
    requests: std::vec::IntoIter<Request>,
    /// Instant of submission.
    at: Timestamp,
}

impl RequestGroup {
    fn has_kind(&self, kind: StaleKind) -> bool {
        let first = self.requests.as_slice().first();
        let is_list = first.is_some_and(|request| request.reply.transfer_claim().is_some());
        is_list == (kind == StaleKind::Lists)
    }
}

/// Refuses requests that are not carried out.
fn refuse(groups: VecDeque<RequestGroup>, reason: &Rejection) {
    let mut releases = Vec::new();
    for request in groups.into_iter().flat_map(|group| group.requests) {
        releases.extend(request.reply.answer(Err(reason.clone())));
    }
    release_all(&mut releases);
}

/// Returns the next request of several groups without taking it.
pub(super) fn first(groups: &VecDeque<RequestGroup>) -> Option<&Request> {
    groups.iter().find_map(|group| group.requests.as_slice().first())
}

/// Takes the next request of several groups.
pub(super) fn next(groups: &mut VecDeque<RequestGroup>) -> Option<Request> {
    while let Some(group) = groups.front_mut() {
        if let Some(request) = group.requests.next() {
            return Some(request);
        }
        groups.pop_front();
    }
    None
}

/// Kinds of requests that are refused when they wait too long; each kind uses other room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StaleKind {
    /// Sends of clients.
    Sends,
    /// Lists from other entities; each is a group of its own.
    Lists,
}

/// Takes requests of a kind out that were submitted at or before `at` and have not begun. Others
/// keep their order.
pub(super) fn take_stale(
    groups: &mut VecDeque<RequestGroup>,
    kind: StaleKind,
    at: Timestamp,
) -> Vec<Request> {
    let mut late = Vec::new();
    for group in groups.iter_mut().filter(|group| group.at <= at && group.has_kind(kind)) {
        let requests = mem::take(&mut group.requests);
        if kind == StaleKind::Lists {
            late.extend(requests);
            continue;
        }
        let (sends, others): (Vec<_>, Vec<_>) =
            requests.partition(|request| request.command.cost().stored.is_some());
        late.extend(sends);
        group.requests = others.into_iter();
        // Later searches skip this group.
        group.at = Timestamp::NEVER;
    }
    late
}

/// Queue of requests that wait for their actor.
#[derive(Default)]
pub struct Inlet {
    state: Mutex<State>,
    /// Holder of the session, for the inlet of a session.
    holder: Option<ReceiverId>,
}

#[derive(Default)]
struct State {
    groups: VecDeque<RequestGroup>,
    actor: Option<Recipient<Knock>>,
    /// Whether the actor already knows of waiting requests.
    knocked: bool,
    closed: Option<Rejection>,
    /// Links to notify when the inlet is closed.
    watchers: HashMap<ReceiverId, Weak<dyn Outlet>>,
    /// Whether the holder of the session requested its end: that request and all later ones go to
    /// the entity.
    has_ended: bool,
}

impl Inlet {
    /// Creates the inlet of a held session.
    pub(super) fn of_session(holder: ReceiverId) -> Self {
        Self { state: Mutex::default(), holder: Some(holder) }
    }

    /// Queues requests for the entity, in order. `at` is the current time on its clock. A closed
    /// inlet returns them with the reason.
    pub fn submit(
        &self,
        group: Vec<Request>,
        at: Timestamp,
    ) -> Result<(), (Vec<Request>, Rejection)> {
        let mut state = self.lock();
        if let Some(reason) = &state.closed {
            return Err((group, reason.clone()));
        }
        state.push(group, at);
        Ok(())
    }

    /// Takes up to `count_max` requests. Returns their number, and whether more are left. If none
    /// are left, the next request knocks again.
    pub(super) fn take(
        &self,
        count_max: usize,
        groups: &mut VecDeque<RequestGroup>,
    ) -> (usize, bool) {
        let mut state = self.lock();
        let mut count = 0;
        while let Some(group) = state.groups.front_mut() {
            let room = count_max - count;
            let (waiting, at) = (group.requests.len(), group.at);
            if waiting <= room {
                count += waiting;
                groups.extend(state.groups.pop_front());
                continue;
            }
            if room > 0 {
                count += room;
                let part: Vec<Request> = group.requests.by_ref().take(room).collect();
                groups.push_back(RequestGroup { requests: part.into_iter(), at });
            }
            break;
        }
        state.knocked = !state.groups.is_empty();
        (count, state.knocked)
    }

    /// Notifies a link when this inlet is closed; at once if it already is.
    pub fn watch(self: &Arc<Self>, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch {
        let mut state = self.lock();
        if let Some(reason) = state.closed.clone() {
            drop(state);
            outlet.release(vec![Released::Closed { receiver, reason }]);
            return Watch::default();
        }
        state.watchers.insert(receiver, Arc::downgrade(outlet));
        Watch::new(Arc::downgrade(self), receiver)
    }

    /// Takes requests of a kind out that were submitted at or before `at`, to be refused.
    pub(super) fn take_stale(&self, kind: StaleKind, at: Timestamp) -> Vec<Request> {
        take_stale(&mut self.lock().groups, kind, at)
    }

    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().groups.is_empty()
    }

    /// Accepts no more requests from the holder of the session; waiting ones stay.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
    }

    /// Returns requests that were taken but not carried out, before all waiting ones.
    pub(super) fn give_back(&self, mut groups: VecDeque<RequestGroup>) {
        let mut state = self.lock();
        if let Some(reason) = state.closed.clone() {
            drop(state);
            return refuse(groups, &reason);
        }
        groups.append(&mut state.groups);
        state.groups = groups;
        if !state.groups.is_empty() {
            state.knock();
        }
    }

    /// Connects the actor that serves from now on.
    pub(super) fn attach(&self, actor: Recipient<Knock>) {
        let mut state = self.lock();
        state.actor = Some(actor);
        state.knocked = false;
        if !state.groups.is_empty() {
            state.knock();
        }
    }

    /// Lets requests wait for the next actor.
    pub(super) fn detach(&self) {
        self.lock().actor = None;
    }

    /// Refuses all requests from now on, unless some wait. Returns whether the inlet is now closed.
    pub(super) fn close_if_empty(&self, reason: &Rejection) -> bool {
        let mut state = self.lock();
        if !state.groups.is_empty() {
            return false;
        }
        state.closed = Some(reason.clone());
        true
    }

    /// Refuses all requests from now on, including waiting ones.
    pub(super) fn close(&self, reason: &Rejection) {
        let mut state = self.lock();
        state.closed = Some(reason.clone());
        state.actor = None;
        let refused = mem::take(&mut state.groups);
        let watchers = mem::take(&mut state.watchers);
        drop(state);
        for (receiver, outlet) in watchers {
            if let Some(outlet) = outlet.upgrade() {
                outlet.release(vec![Released::Closed { receiver, reason: reason.clone() }]);
            }
        }
        refuse(refused, reason);
    }

    /// Accepts no more. Moves `taken` and all waiting requests to the inlet of the entity, in order
    /// and before any later request.
    pub(super) fn move_into(&self, taken: VecDeque<RequestGroup>, entity: &Self) {
        let mut refused = Vec::new();
        let mut state = self.lock();
        state.actor = None;
        state.closed = Some(Rejection::internal("the session is no longer held"));
        let left = mem::take(&mut state.groups);
        for group in taken.into_iter().chain(left) {
            refused.extend(entity.submit(group.requests.collect(), group.at).err());
        }
        drop(state);
        let mut releases = Vec::new();
        for (group, reason) in refused {
            let answers =
                group.into_iter().map(|request| request.reply.answer(Err(reason.clone())));
            releases.extend(answers.flatten());
        }
        release_all(&mut releases);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchRegistry for Inlet {
    fn unwatch(&self, receiver: ReceiverId) {
        self.lock().watchers.remove(&receiver);
    }
}

impl Entrance for Inlet {
    fn enter(&self, mut group: Vec<Request>) -> Result<(), Vec<Request>> {
        let mut state = self.lock();
        if state.has_ended || state.closed.is_some() {
            return Err(group);
        }
        let ends = |request: &Request| match &request.command {
            Command::Detach { receiver, .. } => Some(*receiver) == self.holder,
            _ => false,
        };
        let rest = match group.iter().position(ends) {
            Some(place) => {
                state.has_ended = true;
                group.split_off(place)
            }
            None => Vec::new(),
        };
        // Requests in the inlet of a session never expire, since they do not wait for long.
        state.push(group, Timestamp::NEVER);
        if rest.is_empty() { Ok(()) } else { Err(rest) }
    }
}

impl State {
    fn push(&mut self, group: Vec<Request>, at: Timestamp) {
        if !group.is_empty() {
            self.groups.push_back(RequestGroup { requests: group.into_iter(), at });
            self.knock();
        }
    }

    fn knock(&mut self) {
        if !self.knocked
            && let Some(actor) = &self.actor
        {
            self.knocked = true;
            actor.do_send(Knock);
        }
    }
}
