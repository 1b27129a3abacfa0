//! Actor of a held session: runs the holder's requests in turns of its own, and has a timer for the
//! end of the lock and of the holder's waiting calls (DESIGN D3). Part of step 2 of the data path.
//!
//! ```text
//!            granted                       closed, lost, receiver gone, entity gone
//!  (nothing) ───────► inlet, turns, timer ─────────────────────────────────────────► (nothing)
//!                                             waiting requests move to the entity's inlet
//! ```
//!
//! It owns the content of `SessionHold` in the machine: the locks on messages, the link, the calls
//! and their ends. The actor of the entity drives requests that reach the session on other ways. It
//! also ends the hold, in its own order and after the holder's earlier requests, so that a later
//! accept finds the session free. An unlocked session has no actor, since it gets no requests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use super::drive::Drive;
use super::inlet::{Inlet, RequestGroup};
use super::messages::{HoldEnded, RoundQuestion};
use super::wakeups::{self, Knock, TurnActor, Wakeups};
use crate::ids::ReceiverId;
use crate::telemetry::{LiveGauges, SessionActorCount};

/// A held session, shared by its actor and the actor of its entity.
pub(super) struct HeldSession {
    pub(super) holder: ReceiverId,
    pub(super) inlet: Arc<Inlet>,
    /// Requests taken from the inlet that wait until the state of the session is stored.
    pub(super) groups: RefCell<VecDeque<RequestGroup>>,
    _running: SessionActorCount,
}

impl HeldSession {
    pub(super) fn new(holder: ReceiverId, inlet: Arc<Inlet>, observed: &Arc<LiveGauges>) -> Self {
        let _running = SessionActorCount::count(observed);
        Self { holder, inlet, groups: RefCell::default(), _running }
    }

    /// Whether requests wait.
    pub(super) fn has_requests(&self) -> bool {
        !self.groups.borrow().is_empty() || !self.inlet.is_empty()
    }

    /// Accepts no more. Moves waiting requests to the inlet of the entity, in order.
    pub(super) fn move_requests_into(&self, entity: &Inlet) {
        self.inlet.move_into(self.groups.take(), entity);
    }
}

/// Actor of a session while it is held.
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

    /// Takes the holder's requests from the inlet, then yields to other ready work on this arbiter.
    fn take_commands(&mut self, context: &mut Context<Self>) {
        if !self.drive.check_tree() {
            return;
        }
        let started = Instant::now();
        let (count, more) = self.drive.session_turn(&self.session, self.wakeups.turn_size());
        self.wakeups.adapt_turn_size(count, started);
        if more {
            wakeups::knock_later(self, context);
        }
        self.drive.wake_entity();
        self.arm(context);
    }

    /// Whether no work is left that proceeds without the passage of time.
    pub(super) fn is_quiet(&self) -> bool {
        let now = self.drive.clock.now();
        let is_due =
            self.drive.deadline_of(self.session.holder).is_some_and(|deadline| deadline <= now);
        !self.session.has_requests() && self.wakeups.is_quiet(now) && !is_due
    }

    /// Arms the timer for the earliest deadline of the session.
    fn arm(&mut self, context: &mut Context<Self>) {
        let Some(deadline) = self.drive.deadline_of(self.session.holder) else { return };
        if deadline <= self.drive.clock.now() {
            // Other due work of the queue used up the turn before this session's.
            wakeups::knock_later(self, context);
            return;
        }
        wakeups::arm(self, deadline, context);
    }
}

impl TurnActor for SessionActor {
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
        self.wakeups.note_knock();
        self.take_commands(context);
    }
}

impl Handler<HoldEnded> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: HoldEnded, context: &mut Self::Context) {
        // Moves requests only after a failure; otherwise the end of the hold has moved them.
        self.session.move_requests_into(&self.drive.inlet);
        context.stop();
    }
}

impl Handler<RoundQuestion> for SessionActor {
    type Result = ();

    fn handle(&mut self, RoundQuestion(round): RoundQuestion, _: &mut Context<Self>) {
        round.record(self.is_quiet());
    }
}
