//! The driver of a run: it drives a world from a seed, step by step.
//!
//! ```text
//!  handlers and scenario run until all of them wait ─► the broker does what it was asked ─► invariants ─► one of
//!     a mishap │ something asked goes to the broker │ an answer or a message comes │ time passes
//! ```
//!
//! Every event is one of these, so the numbers drawn from the seed determine the whole run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use peeklock_core::command::MessageState;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use super::Mishap;
use super::broker::House;
use super::mishaps::Weather;
use super::runtime::Runtime;
use super::shared::{Shared, Step, lock};
use crate::FIRST_INSTANT;
use peeklock_client::Client;

/// Maximum time per step while a handler runs, so that locks are renewed meanwhile.
const SPAN_AT_WORK_MAX: TimeSpan = TimeSpan::from_seconds(1);
/// Maximum time per step otherwise.
const SPAN_MAX: TimeSpan = TimeSpan::from_minutes(10);
/// Time by which a world must be at rest.
const REST_WITHIN: TimeSpan = TimeSpan::from_days(30);
/// Number of messages per peek.
const PEEKED: u32 = 100;

/// Result of a scenario.
pub(super) type Ended = Result<(), String>;
type Main = Pin<Box<dyn Future<Output = Ended>>>;

/// State of a run.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) house: House,
    pub(super) random: Random,
    pub(super) weather: Weather,
    pub(super) mishaps: BTreeMap<Mishap, u64>,
    runtime: Runtime,
    stall: Arc<Stall>,
    /// End of the time for which the store is slow.
    pub(super) weather_until: Option<Timestamp>,
    /// Number of steps in which only time passed since the last other event.
    idle_steps: u32,
}

/// Signal that no task of the runtime can continue.
#[derive(Default)]
struct Stall {
    is_stalled: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// An event that can happen next.
enum Event {
    Start(u64),
    Give(u64),
    HandOver(u64),
    Settle(u64),
}

impl Run {
    pub(super) fn new(seed: u64, weather: Weather, random: Random) -> Result<Self, String> {
        let stall = Arc::<Stall>::default();
        let stalled = Arc::clone(&stall);
        let runtime = Runtime::build(move || {
            stalled.is_stalled.store(true, Ordering::Release);
            // Waking a waiter prevents the paused clock from advancing by itself.
            if let Some(waker) = &*lock(&stalled.waker) {
                waker.wake_by_ref();
            }
        });
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (shared, house) = (Shared::new(), House::build(seed, FIRST_INSTANT)?);
        shared.state().way = Some(house.port());
        Ok(Self {
            shared,
            house,
            random,
            weather,
            mishaps: BTreeMap::new(),
            runtime,
            stall,
            weather_until: None,
            idle_steps: 0,
        })
    }

    /// Drives the run to its end. A run of more steps counts as endless.
    pub(super) fn drive(&mut self, mut main: Main, steps_max: u32) -> Ended {
        for _ in 0..steps_max {
            if let Poll::Ready(ended) = self.run_until_stalled(&mut main) {
                return ended;
            }
            self.take_in();
            self.look_at_invariants()?;
            if self.is_resting() && self.have_mishap()? {
                self.idle_steps = 0;
                self.shared.touch();
                continue;
            }
            if let Some(event) = self.choose() {
                self.idle_steps = 0;
                self.carry_out(event);
                continue;
            }
            if self.is_resting() && self.is_at_rest() {
                let rest = self.shared.state().rest.take();
                if let Some(rest) = rest {
                    rest.notify_one();
                }
                continue;
            }
            self.pass_time()?;
        }
        Err(format!("it has no end: more than {steps_max} steps"))
    }

    fn is_resting(&self) -> bool {
        self.shared.state().rest.is_some()
    }

    /// Runs scenario and handlers until everything waits.
    fn run_until_stalled(&self, main: &mut Main) -> Poll<Ended> {
        let stall = &self.stall;
        stall.is_stalled.store(false, Ordering::Release);
        self.runtime.block_on(std::future::poll_fn(|context| {
            *lock(&stall.waker) = Some(context.waker().clone());
            if let Poll::Ready(ended) = main.as_mut().poll(context) {
                return Poll::Ready(Poll::Ready(ended));
            }
            match stall.is_stalled.load(Ordering::Acquire) {
                true => Poll::Ready(Poll::Pending),
                false => Poll::Pending,
            }
        }))
    }

    /// Starts a task of a worker in the runtime.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Waits until the broker has done everything, and takes its answers.
    pub(super) fn take_in(&self) {
        let waker = Waker::from(Arc::clone(&self.shared));
        let mut context = Context::from_waker(&waker);
        while self.shared.was_touched() {
            self.house.settle();
            let mut had_some = false;
            // Hold no lock while an answer is taken: its drop may send a request to the broker.
            let tickets: Vec<u64> = self.shared.state().asked.keys().copied().collect();
            for ticket in tickets {
                let asked = self.shared.state().asked.remove(&ticket);
                let Some(mut asked) = asked else { continue };
                had_some |= asked.poll(&mut context);
                self.shared.state().asked.insert(ticket, asked);
            }
            let ids: Vec<u64> = self.shared.state().pushed.keys().copied().collect();
            for id in ids {
                let pushed = self.shared.state().pushed.remove(&id);
                let Some(mut pushed) = pushed else { continue };
                had_some |= pushed.take_in(&mut context);
                self.shared.state().pushed.insert(id, pushed);
            }
            // Taking answers may have granted credit or advanced other work.
            self.house.settle();
            if had_some {
                self.shared.touch();
            }
        }
    }

    fn look_at_invariants(&self) -> Result<(), String> {
        // Moved out, so that the invariants can access the world.
        let invariants = std::mem::take(&mut self.shared.state().invariants);
        let broken = invariants.iter().find(|(_, holds)| !holds());
        let broken = broken.map(|(what, _)| format!("it does not hold any more: {what}"));
        let mut state = self.shared.state();
        let added = std::mem::replace(&mut state.invariants, invariants);
        state.invariants.extend(added);
        broken.map_or(Ok(()), Err)
    }

    /// Chooses the next event, if any is possible.
    fn choose(&mut self) -> Option<Event> {
        let mut events = Vec::new();
        {
            let state = self.shared.state();
            for (ticket, asked) in &state.asked {
                match asked.step {
                    _ if state.is_cut_off(asked.owner) => {}
                    Step::Asked(_) => events.push(Event::Start(*ticket)),
                    Step::Answered => events.push(Event::Give(*ticket)),
                    Step::UnderWay(_) => {}
                }
            }
            for (id, pushed) in &state.pushed {
                if state.is_cut_off(pushed.owner) {
                    continue;
                }
                if !pushed.arrived.is_empty() {
                    events.push(Event::HandOver(*id));
                }
                if !pushed.decided.is_empty() {
                    events.push(Event::Settle(*id));
                }
            }
        }
        if events.is_empty() {
            return None;
        }
        let index = self.weather.order(&mut self.random, events.len(), &mut self.mishaps);
        Some(events.swap_remove(index))
    }

    fn carry_out(&mut self, event: Event) {
        match event {
            Event::Start(ticket) => {
                let (asked, way) = {
                    let mut state = self.shared.state();
                    (state.asked.remove(&ticket), state.way.clone())
                };
                let (Some(mut asked), Some(way)) = (asked, way) else { return };
                asked.start(&way);
                let waker = Waker::from(Arc::clone(&self.shared));
                asked.poll(&mut Context::from_waker(&waker));
                self.shared.touch();
                self.shared.state().asked.insert(ticket, asked);
            }
            Event::Give(ticket) => {
                let asked = self.shared.state().asked.remove(&ticket);
                if let Some(asked) = asked {
                    self.shared.state().note(&asked.said());
                    asked.give();
                }
            }
            Event::HandOver(id) => {
                let pushed = self.shared.state().pushed.remove(&id);
                let Some(mut pushed) = pushed else { return };
                let any_order = {
                    let state = self.shared.state();
                    let worker = state.workers.get(&pushed.owner.worker);
                    worker.is_none_or(|worker| worker.any_order)
                };
                let choices = pushed.choices(any_order);
                let index = self.weather.order(&mut self.random, choices, &mut self.mishaps);
                let handed = pushed.hand_over(index);
                let owner = pushed.owner;
                let mut state = self.shared.state();
                if let Some(handed) = &handed {
                    state.note(&handed.what);
                }
                if let Some(sequence) = handed.and_then(|handed| handed.settled) {
                    state.in_hand.remove(&(owner, sequence));
                }
                state.pushed.insert(id, pushed);
            }
            Event::Settle(id) => {
                let pushed = self.shared.state().pushed.remove(&id);
                let Some(mut pushed) = pushed else { return };
                let refused = pushed.settle_next();
                self.shared.touch();
                let mut state = self.shared.state();
                if let Some(sequence) = refused {
                    let what =
                        format!("{}: #{sequence} is not settled: its lock is lost", pushed.path);
                    state.note(&what);
                    state.in_hand.remove(&(pushed.owner, sequence));
                }
                state.pushed.insert(id, pushed);
            }
        }
    }

    /// Returns whether nothing is left to do.
    fn is_at_rest(&mut self) -> bool {
        let paths: Vec<Arc<str>> = {
            let state = self.shared.state();
            let are_up = state
                .workers
                .values()
                .all(|worker| worker.down_until.is_none() && worker.cut_off_until.is_none());
            if !are_up || self.house.is_slow() || state.at_work > 0 {
                return false;
            }
            state.workers.values().map(|worker| Arc::clone(&worker.path)).collect()
        };
        paths.iter().all(|path| self.left_over(path).is_none())
    }

    /// Returns the first message that a consumer still has to get or to settle.
    fn left_over(&self, path: &str) -> Option<SequenceNumber> {
        let receiver = Client::over(self.house.port()).receiver(path).ok()?;
        let mut from = SequenceNumber(0);
        loop {
            let peeked = self.house.finish(receiver.peek(from, PEEKED))?.ok()?;
            let last = peeked.last()?.sequence_number();
            let left = peeked.iter().find(|message| message.state() != MessageState::Deferred);
            if let Some(left) = left {
                return Some(left.sequence_number());
            }
            from = SequenceNumber(last.0 + 1);
        }
    }

    /// Advances the time to the next due event, in small steps at first.
    fn pass_time(&mut self) -> Result<(), String> {
        let (now, is_at_work, is_late) = {
            let state = self.shared.state();
            let late = state.now.since(FIRST_INSTANT) > REST_WITHIN;
            (state.now, state.at_work > 0, late)
        };
        if is_late {
            let workers: Vec<Arc<str>> = self
                .shared
                .state()
                .workers
                .values()
                .map(|worker| Arc::clone(&worker.path))
                .collect();
            let left = workers.iter().find_map(|path| Some((path, self.left_over(path)?)));
            let left = left.map(|(path, number)| format!(": {path} has #{number} still"));
            return Err(format!("it does not come to rest in 30 days{}", left.unwrap_or_default()));
        }
        let most = if is_at_work { SPAN_AT_WORK_MAX } else { SPAN_MAX };
        let patience = TimeSpan::from_ms(1_i64 << self.idle_steps.min(20));
        let span = if patience < most { patience } else { most };
        let due = self.house.next_wake().into_iter().chain(self.next_change()).min();
        let span = match due.map(|at| at.since(now)) {
            Some(due) if due < span && due > TimeSpan::ZERO => due,
            _ => span,
        };
        self.idle_steps += 1;
        self.pass(span);
        Ok(())
    }

    /// Advances the time of broker and runtime.
    pub(super) fn pass(&mut self, span: TimeSpan) {
        let now = {
            let mut state = self.shared.state();
            state.now = state.now.plus(span);
            state.now
        };
        self.house.pass(span);
        self.shared.touch();
        self.runtime.block_on(tokio::time::advance(span.to_std()));
        self.change_with_time(now);
    }

    /// Ends the tasks of the world, which hold parts of the world, and then these parts.
    pub(super) fn end(self) {
        let Self { shared, runtime, .. } = self;
        drop(runtime);
        let mut state = shared.state();
        let asked = std::mem::take(&mut state.asked);
        let pushed = std::mem::take(&mut state.pushed);
        let workers = std::mem::take(&mut state.workers);
        let invariants = std::mem::take(&mut state.invariants);
        let way = state.way.take();
        drop(state);
        drop((asked, pushed, workers, invariants, way));
    }
}
