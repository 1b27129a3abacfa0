//! The actor of one entity: takes commands from its inlet, runs them through the shell, arms one timer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture,
};
use actix::{ActorFutureExt, Addr};

use super::desk::Desk;
use super::inlet::{Group, Inlet};
use super::namespace::{IdleElapsed, NamespaceActor};
use super::transfer::Courier;
use crate::broker::Shared;
use crate::clock::Clock;
use crate::entity::StageNumber;
use crate::entity::any::AnyMachine;
use crate::entity::family::MemberNumber;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::request::{Release, release_all};
use crate::shell::tree::Tree;
use crate::shell::{Failure, Shell, Turn};
use crate::telemetry::Observed;
use crate::time::Timestamp;
use crate::transfer::passage::Passages;

/// A turn takes at most this many commands, and at most about a millisecond (DESIGN D6).
const TURN_COMMANDS_MAX: usize = 256;
const TURN_COMMANDS_MIN: usize = 16;
const TURN_TIME: Duration = Duration::from_millis(1);
/// How often an idle queue takes what has come in before it is closed.
const IDLE_LOOKS_MAX: usize = 4;

/// There is something in the inlet.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Knock;

/// A stage is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Committed(pub(super) StageNumber);

/// An append failed; the tree ends.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct StoreFailed(pub(super) String);

/// The store may have room again.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct RoomAgain;

/// The entity ends its waits; receives that wait get nothing. Answered when everything is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct EndWaits;

/// When an actor is to be retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RetireWhen {
    /// Whatever it is doing.
    Now,
    /// Only if it is still idle and nothing has come in (TMP-07).
    Idle,
}

/// The parent retires the actor: everybody who waits gets the reason, what is staged is submitted,
/// and `done` is called when it is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Retire {
    pub(super) when: RetireWhen,
    pub(super) reason: Rejection,
    pub(super) done: Box<dyn FnOnce() + Send>,
}

/// The actor of one entity.
pub struct EntityActor {
    id: EntityId,
    /// `None` after a failure, until the parent has rebuilt the entity. The tree knows it too, weakly:
    /// a transaction over several machines is carried out by one of them (TXN-08).
    shell: Option<Rc<RefCell<Shell<AnyMachine>>>>,
    tree: Rc<RefCell<Tree>>,
    /// Its place among the actors of the tree.
    number: MemberNumber,
    inlet: Arc<Inlet>,
    observed: Arc<Observed>,
    clock: Arc<dyn Clock>,
    desk: Rc<Desk>,
    seat: u64,
    namespace: Addr<NamespaceActor>,
    /// Brings messages to other entities.
    courier: Courier,
    groups: VecDeque<Group>,
    turn_size: usize,
    armed: Option<(Timestamp, SpawnHandle)>,
    /// Who is told when the stage is durable that holds the last of a retired actor.
    retired: Option<(StageNumber, Box<dyn FnOnce() + Send>)>,
    /// Whether a knock of its own is on its way.
    knocking: Cell<bool>,
}

/// What an entity actor is made of.
pub(super) struct Parts {
    pub(super) id: EntityId,
    pub(super) shell: Shell<AnyMachine>,
    pub(super) inlet: Arc<Inlet>,
    pub(super) passages: Arc<Passages>,
    pub(super) shared: Arc<Shared>,
    pub(super) observed: Arc<Observed>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desk: Rc<Desk>,
    pub(super) seat: u64,
    pub(super) namespace: Addr<NamespaceActor>,
}

impl EntityActor {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { id, shell, inlet, passages, shared, observed, clock, desk, seat, namespace } =
            parts;
        observed.publish(&shell.machine().counts(), shell.machine().size_bytes());
        let (tree, number) = (Rc::clone(shell.tree()), shell.number());
        let shell = Rc::new(RefCell::new(shell));
        let participant = Rc::downgrade(&shell);
        tree.borrow_mut().enlist(id, participant);
        Self {
            id,
            tree,
            number,
            shell: Some(shell),
            inlet,
            observed,
            clock,
            desk,
            seat,
            namespace,
            courier: Courier::new(id, shared, passages),
            groups: VecDeque::new(),
            turn_size: TURN_COMMANDS_MAX,
            armed: None,
            retired: None,
            knocking: Cell::new(false),
        }
    }

    /// Runs one turn of the shell and lets out what may leave.
    pub(super) fn turn(
        &mut self,
        context: &mut Context<Self>,
        run: impl FnOnce(&mut Shell<AnyMachine>, Timestamp, &mut Vec<Release>) -> Result<Turn, Failure>,
    ) {
        let Some(shell) = self.shell.as_ref().map(Rc::clone) else { return };
        let now = self.clock.now();
        let mut releases = Vec::new();
        let result =
            catch_unwind(AssertUnwindSafe(|| run(&mut shell.borrow_mut(), now, &mut releases)));
        match result {
            Ok(Ok(turn)) => {
                let mut shell = shell.borrow_mut();
                let machine = shell.machine();
                self.observed.publish(&machine.counts(), machine.size_bytes());
                self.desk.telemetry.count(&turn);
                if turn.idle_elapsed {
                    self.namespace.do_send(IdleElapsed(self.id));
                }
                let to_wake = self.tree.borrow_mut().take_to_wake();
                if !to_wake.is_empty() {
                    self.desk.wake(self.seat, &to_wake);
                }
                release_all(&mut releases);
                let outgoing = shell.take_outgoing();
                drop(shell);
                for list in outgoing {
                    self.courier.carry(list, context.address());
                }
                if turn.wants_load {
                    self.load(context);
                }
                if self.tree.borrow().wants_submit(now) {
                    self.desk.mark_dirty(self.seat);
                }
                self.arm(context);
            }
            Ok(Err(failure)) => {
                release_all(&mut releases);
                self.fail(&failure.0);
            }
            Err(panic) => {
                let what = panic
                    .downcast_ref::<&str>()
                    .map(ToString::to_string)
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "panic".to_owned());
                self.fail(&format!("panic: {what}"));
            }
        }
    }

    /// Ends the tree: everybody who waits is told, nothing that is staged leaves. The parent
    /// rebuilds the entity from the store when nothing of its tree is on its way any more (DESIGN D3).
    fn fail(&mut self, why: &str) {
        let Some(shell) = self.shell.take() else { return };
        tracing::error!(entity_id = self.id.0, why, "entity failed and is rebuilt");
        self.inlet.detach();
        let reason = Rejection::internal("the entity failed and is being rebuilt");
        let mut releases = Vec::new();
        // A machine that panicked is asked for nothing more; its waiting calls and links are the shell's.
        shell.borrow_mut().close(&reason, &mut releases);
        self.tree.borrow_mut().abandon();
        drop(shell);
        release_all(&mut releases);
        self.desk.fail(self.seat, why);
    }

    /// Loads contents that the machine has asked for, away from this arbiter; it gets what could be
    /// read.
    fn load(&mut self, context: &mut Context<Self>) {
        let contents = self.shell.as_ref().and_then(|shell| shell.borrow_mut().take_load());
        let Some(contents) = contents else { return };
        let load = async move {
            let mut loaded = Vec::with_capacity(contents.len());
            for (sequence, content) in contents {
                let bytes = content.load().await;
                if let Err(error) = &bytes {
                    tracing::error!(sequence_number = sequence.0, %error, "content is not readable");
                }
                loaded.push((sequence, bytes.ok()));
            }
            loaded
        };
        context.spawn(load.into_actor(self).map(|loaded, actor, context| {
            actor.turn(context, |shell, now, out| shell.loaded(loaded, now, out));
        }));
    }

    /// Arms the one timer for the earliest deadline, if it is earlier than the armed one.
    fn arm(&mut self, context: &mut Context<Self>) {
        let Some(own) = self.shell.as_ref().map(|shell| shell.borrow().own_deadline()) else {
            return;
        };
        let now = self.clock.now();
        if own.is_some_and(|at| at <= now) {
            // What is due rests on a submission, whose completion is the next turn; or there is more
            // than one step does, and the rest waits until everything else that is ready has run. A
            // timer would be ready at once, within this very poll, and keep the desk from submitting.
            if self.tree.borrow().wants_submit(now) {
                self.tree.borrow_mut().mark_last(self.number);
            } else {
                self.knock_later(context);
            }
            return;
        }
        // What is staged and due is with the desk already.
        let flush = self.tree.borrow().flush_deadline().filter(|at| *at > now);
        let Some(deadline) = own.into_iter().chain(flush).min() else { return };
        if let Some((armed, handle)) = self.armed {
            if armed <= deadline {
                return;
            }
            context.cancel_future(handle);
        }
        let clock = Arc::clone(&self.clock);
        let sleep = async move { clock.sleep_until(deadline).await };
        let handle = context.spawn(sleep.into_actor(self).map(|(), actor, context| {
            actor.armed = None;
            actor.turn(context, |shell, now, out| shell.run([], now, out));
        }));
        self.armed = Some((deadline, handle));
    }

    /// Takes commands from the inlet, then yields to whatever else is ready on this arbiter.
    fn take_commands(&mut self, context: &mut Context<Self>) {
        if self.shell.is_none() {
            return;
        }
        if self.tree.borrow().is_lost() {
            // Its notice is still on its way; the commands wait for the rebuilt machine.
            self.fail("an append failed");
            return;
        }
        let mut groups = std::mem::take(&mut self.groups);
        let (count, more) = self.inlet.take(self.turn_size, &mut groups);
        let started = Instant::now();
        self.turn(context, |shell, now, out| shell.run(groups.drain(..).flatten(), now, out));
        self.groups = groups;
        if started.elapsed() > TURN_TIME {
            self.turn_size = (self.turn_size / 2).max(TURN_COMMANDS_MIN);
        } else if count == self.turn_size {
            self.turn_size = (self.turn_size * 2).min(TURN_COMMANDS_MAX);
        }
        if more {
            self.knock_later(context);
        }
    }

    /// Takes another turn after everything that is ready on this arbiter.
    fn knock_later(&self, context: &mut Context<Self>) {
        if self.knocking.replace(true) {
            return;
        }
        let itself = context.address();
        actix_rt::spawn(async move {
            tokio::task::yield_now().await;
            itself.do_send(Knock);
        });
    }

    /// Closes the inlet if the queue is still idle behind all that has come in meanwhile. If so much
    /// comes in that this takes long, the queue says again later that it is idle.
    fn close_if_idle(&mut self, reason: &Rejection, context: &mut Context<Self>) -> bool {
        for _ in 0..IDLE_LOOKS_MAX {
            let now = self.clock.now();
            let is_idle =
                |shell: &Rc<RefCell<Shell<AnyMachine>>>| shell.borrow().machine().is_idle_at(now);
            if !self.shell.as_ref().is_some_and(is_idle) {
                return false;
            }
            if self.inlet.close_if_empty(reason) {
                return true;
            }
            self.take_commands(context);
        }
        false
    }

    /// Calls back when what a retired actor has left is durable, or lost with its tree, and ends it.
    fn end_if_quiet(&mut self, context: &mut Context<Self>) {
        let Some((last, _)) = &self.retired else { return };
        let tree = self.tree.borrow();
        let is_quiet = tree.durable_stage() >= *last || (tree.is_lost() && tree.is_quiet());
        drop(tree);
        if !is_quiet {
            return;
        }
        if let Some((_, done)) = self.retired.take() {
            self.desk.leave(self.seat, self.number);
            done();
            context.stop();
        }
    }
}

impl Actor for EntityActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.desk.connect(self.seat, self.number, context.address());
        self.inlet.attach(context.address());
        self.turn(context, |shell, now, out| shell.run([], now, out));
    }
}

impl Handler<Knock> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: Knock, context: &mut Self::Context) {
        self.knocking.set(false);
        self.take_commands(context);
    }
}

impl Handler<Committed> for EntityActor {
    type Result = ();

    fn handle(&mut self, Committed(stage): Committed, context: &mut Self::Context) {
        self.turn(context, |shell, now, out| shell.committed(stage, now, out));
        self.end_if_quiet(context);
    }
}

impl Handler<StoreFailed> for EntityActor {
    type Result = ();

    fn handle(&mut self, StoreFailed(why): StoreFailed, context: &mut Self::Context) {
        self.fail(&why);
        self.end_if_quiet(context);
    }
}

impl Handler<RoomAgain> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: RoomAgain, context: &mut Self::Context) {
        self.turn(context, |shell, now, out| shell.run([], now, out));
    }
}

impl Handler<EndWaits> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: EndWaits, context: &mut Self::Context) {
        self.turn(context, Shell::end_waits);
    }
}

impl Handler<Retire> for EntityActor {
    type Result = ();

    fn handle(&mut self, Retire { when, reason, done }: Retire, context: &mut Self::Context) {
        if when == RetireWhen::Idle {
            // The others of its tree may have something to say.
            self.turn(context, |shell, now, out| shell.run([], now, out));
            if !self.close_if_idle(&reason, context) {
                return;
            }
        }
        self.inlet.close(&reason);
        self.turn(context, |shell, _, out| {
            shell.close(&reason, out);
            Ok(Turn::default())
        });
        let mut tree = self.tree.borrow_mut();
        tree.leave_family(self.id);
        let last = tree.mark_last(self.number);
        tree.flush();
        drop(tree);
        self.retired = Some((last, done));
        if self.shell.take().is_some() {
            self.desk.halt(self.seat);
            self.desk.mark_dirty(self.seat);
        }
        self.end_if_quiet(context);
    }
}

/// The topic takes a new subscription into its tree, on its arbiter; `None` if it cannot any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Adopt(pub(super) Box<dyn FnOnce(Option<Home>) + Send>);

/// The tree that actors share, and its seat.
pub(super) struct Home {
    pub(super) tree: Rc<RefCell<Tree>>,
    pub(super) desk: Rc<Desk>,
    pub(super) seat: u64,
}

impl Handler<Adopt> for EntityActor {
    type Result = ();

    fn handle(&mut self, Adopt(start): Adopt, _: &mut Self::Context) {
        let home = self.shell.is_some() && !self.tree.borrow().is_lost();
        start(home.then(|| Home {
            tree: Rc::clone(&self.tree),
            desk: Rc::clone(&self.desk),
            seat: self.seat,
        }));
    }
}
