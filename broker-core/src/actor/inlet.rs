//! The way in to one entity: commands queue up here, the actor is knocked for once per group.
//!
//! It outlives the actor: while an entity is rebuilt, commands wait here. What may wait is bounded
//! by the permits that the requests hold (DESIGN D6).

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use actix::Addr;

use super::entity::{EntityActor, Knock};
use crate::error::Rejection;
use crate::request::{Request, release_all};

/// Requests that were handed in together, or what is left of them. They are moved as a group: a request
/// is large.
pub(super) type Group = std::vec::IntoIter<Request>;

/// Where requests of one entity wait for its actor.
#[derive(Default)]
pub struct Inlet {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: VecDeque<Group>,
    actor: Option<Addr<EntityActor>>,
    /// Whether the actor knows that there is something.
    knocked: bool,
    closed: Option<Rejection>,
}

impl Inlet {
    /// Hands requests to the entity, in order. If the inlet is closed they come back with the reason.
    pub fn submit(&self, group: Vec<Request>) -> Result<(), (Vec<Request>, Rejection)> {
        let mut state = self.lock();
        if let Some(reason) = &state.closed {
            return Err((group, reason.clone()));
        }
        if !group.is_empty() {
            state.groups.push_back(group.into_iter());
            state.knock();
        }
        Ok(())
    }

    /// Takes up to `count_max` requests; returns how many, and whether more are left. If not, the next
    /// request knocks again.
    pub(super) fn take(&self, count_max: usize, groups: &mut VecDeque<Group>) -> (usize, bool) {
        let mut state = self.lock();
        let mut count = 0;
        while let Some(group) = state.groups.front_mut() {
            let room = count_max - count;
            if group.len() <= room {
                count += group.len();
                groups.extend(state.groups.pop_front());
                continue;
            }
            if room > 0 {
                count += room;
                let part: Vec<Request> = group.take(room).collect();
                groups.push_back(part.into_iter());
            }
            break;
        }
        state.knocked = !state.groups.is_empty();
        (count, state.knocked)
    }

    /// Connects the actor that serves from now on.
    pub(super) fn attach(&self, actor: Addr<EntityActor>) {
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

    /// Refuses all requests from now on, unless some wait; returns whether it does.
    pub(super) fn close_if_empty(&self, reason: &Rejection) -> bool {
        let mut state = self.lock();
        if !state.groups.is_empty() {
            return false;
        }
        state.closed = Some(reason.clone());
        true
    }

    /// Refuses all requests from now on, those that wait too.
    pub(super) fn close(&self, reason: &Rejection) {
        let mut state = self.lock();
        state.closed = Some(reason.clone());
        state.actor = None;
        let refused = mem::take(&mut state.groups);
        drop(state);
        let mut releases = Vec::new();
        for request in refused.into_iter().flatten() {
            releases.extend(request.reply.answer(Err(reason.clone())));
        }
        release_all(&mut releases);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn knock(&mut self) {
        if !self.knocked
            && let Some(actor) = &self.actor
        {
            self.knocked = true;
            actor.do_send(Knock);
        }
    }
}
