//! The actor of a session that is held: it runs what the holder asks, in turns of its own, and knocks when
//! the lock or a waiting call of the holder ends (DESIGN D3). (Data path, step 2.)
//!
//! ```text
//!            granted                       closed, lost, receiver gone, entity gone
//!  (nothing) ───────► inlet, turns, timer ─────────────────────────────────────────► (nothing)
//!                                             what waits in the inlet: to the entity's
//! ```
//!
//! It owns what `Held` has in the machine: the locks on messages, the link, the calls and their ends.
//! The actor of the entity reaches in for what comes to the session from elsewhere, and lets go of it, in its
//! own order and behind what the holder has asked before: who asks for the session afterwards finds it free.
//! An unlocked session has no actor: nobody can ask it anything.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use super::drive::Drive;
use super::inlet::{Group, Inlet};
use super::messages::{End, Look};
use super::wakeups::{self, Knock, Wakeups, Woken};
use crate::ids::ReceiverId;
use crate::telemetry::{Observed, SessionRunning};

/// A session that is held, as its actor and that of its entity know it.
pub(super) struct HeldSession {
    pub(super) holder: ReceiverId,
    pub(super) inlet: Arc<Inlet>,
    /// What was taken from the inlet and waits until the state of the session is stored.
    pub(super) groups: RefCell<VecDeque<Group>>,
    _running: SessionRunning,
}

impl HeldSession {
    pub(super) fn new(holder: ReceiverId, inlet: Arc<Inlet>, observed: &Arc<Observed>) -> Self {
        let _running = SessionRunning::count(observed);
        Self { holder, inlet, groups: RefCell::default(), _running }
    }

    /// Whether something waits.
    pub(super) fn has_some(&self) -> bool {
        !self.groups.borrow().is_empty() || !self.inlet.is_empty()
    }

    /// Takes nothing more; what waits goes to the inlet of the entity, in its order.
    pub(super) fn empty_into(&self, entity: &Inlet) {
        self.inlet.empty_into(self.groups.take(), entity);
    }
}

/// The actor of one session, as long as it is held.
pub(super) struct SessionActor {
    drive: Rc<Drive>,
    session: Rc<HeldSession>,
    wakeups: Wakeups,
}

impl SessionActor {
    pub(super) fn new(drive: Rc<Drive>, session: Rc<HeldSession>) -> Self {
        let wakeups = Wakeups::new(Arc::clone(&drive.clock));
        Self { drive, session, wakeups }
    }

    /// Takes what the holder asks from the inlet, then yields to whatever else is ready on this arbiter.
    fn take_commands(&mut self, context: &mut Context<Self>) {
        if !self.drive.can_go_on() {
            return;
        }
        let started = Instant::now();
        let (count, more) = self.drive.session_turn(&self.session, self.wakeups.turn_size());
        self.wakeups.took(count, started);
        if more {
            wakeups::knock_later(self, context);
        }
        self.drive.see_to_entity();
        self.arm(context);
    }

    /// Whether nothing is to be done before time passes.
    pub(super) fn is_quiet(&self) -> bool {
        let now = self.drive.clock.now();
        let is_due =
            self.drive.deadline_of(self.session.holder).is_some_and(|deadline| deadline <= now);
        !self.session.has_some() && self.wakeups.is_quiet(now) && !is_due
    }

    /// Arms the one timer for what is due first in the session.
    fn arm(&mut self, context: &mut Context<Self>) {
        let Some(deadline) = self.drive.deadline_of(self.session.holder) else { return };
        if deadline <= self.drive.clock.now() {
            // So much is due in the queue that this session's turn has not come.
            wakeups::knock_later(self, context);
            return;
        }
        wakeups::arm(self, deadline, context);
    }
}

impl Woken for SessionActor {
    fn wakeups(&mut self) -> &mut Wakeups {
        &mut self.wakeups
    }

    fn alarm(&mut self, context: &mut Context<Self>) {
        self.take_commands(context);
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.session.inlet.attach(context.address().recipient());
        self.arm(context);
    }
}

impl Handler<Knock> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Knock, context: &mut Self::Context) {
        self.wakeups.knocked();
        self.take_commands(context);
    }
}

impl Handler<End> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: End, context: &mut Self::Context) {
        // After a failure; else it was done when the hold ended.
        self.session.empty_into(&self.drive.inlet);
        context.stop();
    }
}

impl Handler<Look> for SessionActor {
    type Result = ();

    fn handle(&mut self, Look(round): Look, _: &mut Context<Self>) {
        round.says(self.is_quiet());
    }
}
