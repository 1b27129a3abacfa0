//! Wakeups of an actor: its own knocks, its one timer, and the budget of its turns. Entity and
//! session actors use them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture,
};

use crate::clock::Clock;
use crate::time::Timestamp;

/// A turn takes at most 256 commands and aims at one millisecond (DESIGN D6).
const TURN_COMMANDS_MAX: usize = 256;
const TURN_COMMANDS_MIN: usize = 16;
const TURN_TIME: Duration = Duration::from_millis(1);

/// There is work: in the inlet, or left by another actor of the tree.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Knock;

/// An actor that takes turns.
pub(super) trait TurnActor: Actor<Context = Context<Self>> + Handler<Knock> {
    fn wakeups(&mut self) -> &mut Wakeups;

    /// Called when the timer fires.
    fn alarm(&mut self, context: &mut Context<Self>);
}

/// Timer and knock of an actor, and the budget of its turns.
pub(super) struct Wakeups {
    clock: Arc<dyn Clock>,
    turn_size: usize,
    armed: Option<(Timestamp, SpawnHandle)>,
    /// Whether a knock from the actor itself is on its way.
    knocking: Cell<bool>,
}

impl Wakeups {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, turn_size: TURN_COMMANDS_MAX, armed: None, knocking: Cell::new(false) }
    }

    /// Maximum number of commands in the next turn.
    pub(super) const fn turn_size(&self) -> usize {
        self.turn_size
    }

    /// Adapts the turn size to the duration of a turn with `count` commands.
    pub(super) fn adapt_turn_size(&mut self, count: usize, started: Instant) {
        if started.elapsed() > TURN_TIME {
            self.turn_size = (self.turn_size / 2).max(TURN_COMMANDS_MIN);
        } else if count == self.turn_size {
            self.turn_size = (self.turn_size * 2).min(TURN_COMMANDS_MAX);
        }
    }

    /// Notes that a knock has arrived.
    pub(super) fn note_knock(&self) {
        self.knocking.set(false);
    }

    /// Whether no knock of its own is on its way and the timer is not due at `now`.
    pub(super) fn is_quiet(&self, now: Timestamp) -> bool {
        !self.knocking.get() && self.armed().is_none_or(|at| at > now)
    }

    /// Instant for which the timer is armed.
    pub(super) fn armed(&self) -> Option<Timestamp> {
        self.armed.map(|(at, _)| at)
    }
}

/// Takes another turn after all ready work on this arbiter.
pub(super) fn knock_later<A: TurnActor>(actor: &mut A, context: &Context<A>) {
    if actor.wakeups().knocking.replace(true) {
        return;
    }
    let itself = context.address();
    actix_rt::spawn(async move {
        tokio::task::yield_now().await;
        itself.do_send(Knock);
    });
}

/// Arms the timer, unless it is armed for an earlier instant.
pub(super) fn arm<A: TurnActor>(actor: &mut A, at: Timestamp, context: &mut Context<A>) {
    if let Some((armed, handle)) = actor.wakeups().armed {
        if armed <= at {
            return;
        }
        context.cancel_future(handle);
    }
    let clock = Arc::clone(&actor.wakeups().clock);
    let sleep = async move { clock.sleep_until(at).await };
    let handle = context.spawn(sleep.into_actor(actor).map(|(), actor: &mut A, context| {
        actor.wakeups().armed = None;
        actor.alarm(context);
    }));
    actor.wakeups().armed = Some((at, handle));
}

/// Disarms the timer. An actor without references ends when it waits for nothing.
pub(super) fn disarm<A: TurnActor>(actor: &mut A, context: &mut Context<A>) {
    if let Some((_, handle)) = actor.wakeups().armed.take() {
        context.cancel_future(handle);
    }
}
