//! State shared by the simulated world and its driver: requests, their progress, and the trace.
//!
//! ```text
//!  handle asks ──► Asked ──(driver: start)──► UnderWay ──(broker answers)──► Answered ──(driver: give)──► handle goes on
//! ```
//!
//! Nothing continues by itself: the driver takes each of these steps, one at a time, in an order
//! drawn from the seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;

use super::pushed::Pushed;
use super::worker::Worker;
use crate::FIRST_INSTANT;
use peeklock_client::port::Port as _;
use peeklock_client::testing::InProcess;

/// Owner of a request: the scenario, or one life of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner {
    /// 0 is the scenario.
    pub(super) worker: usize,
    /// Number of earlier starts.
    pub(super) life: u32,
}

impl Owner {
    pub(super) const SCENARIO: Self = Self { worker: 0, life: 0 };
}

/// A port of the current broker.
pub(super) type BrokerPort = Arc<InProcess>;
type UnderWay = Pin<Box<dyn Future<Output = ()> + Send>>;
type Start = Box<dyn FnOnce(&BrokerPort) -> Result<UnderWay, BrokerError> + Send>;
type Invariant = (String, Box<dyn Fn() -> bool + Send>);

/// A request.
pub(super) struct Asked {
    pub(super) owner: Owner,
    /// Text for the trace.
    pub(super) what: String,
    pub(super) step: Step,
    place: Arc<dyn AnswerPlace>,
}

/// Progress of a request.
pub(super) enum Step {
    Asked(Start),
    UnderWay(UnderWay),
    Answered,
}

/// Place for an answer.
trait AnswerPlace: Send + Sync {
    /// Returns the answer as text for the trace, if there is one.
    fn said(&self) -> Option<String>;
    /// Passes the answer to the requester.
    fn give(&self);
    /// Replaces the answer by an error.
    fn fail(&self, error: BrokerError);
}

struct Slot<T> {
    result: Mutex<SlotState<T>>,
    describe: fn(&T) -> String,
}

struct SlotState<T> {
    result: Option<Result<T, BrokerError>>,
    is_given: bool,
    waker: Option<Waker>,
}

impl<T: Send> AnswerPlace for Slot<T> {
    fn said(&self) -> Option<String> {
        lock(&self.result).result.as_ref().map(|result| match result {
            Ok(answer) => (self.describe)(answer),
            Err(error) => error.condition().to_string(),
        })
    }

    fn give(&self) {
        let waker = {
            let mut state = lock(&self.result);
            state.is_given = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn fail(&self, error: BrokerError) {
        lock(&self.result).result = Some(Err(error));
    }
}

/// A future answer; dropping it drops the request.
struct Answer<T> {
    shared: Arc<Shared>,
    ticket: u64,
    slot: Arc<Slot<T>>,
}

impl<T> Future for Answer<T> {
    type Output = Result<T, BrokerError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.slot.result);
        if state.is_given
            && let Some(result) = state.result.take()
        {
            return Poll::Ready(result);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        // Drop the request only after the state is unlocked.
        let forgotten = self.shared.state().asked.remove(&self.ticket);
        if forgotten.is_some() {
            drop(forgotten);
            self.shared.touch();
        }
    }
}

/// One simulated world.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Whether the broker may have work or answers that the driver has not seen.
    touched: AtomicBool,
}

/// Wakes the driver for each answer of the broker.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.touch();
    }
}

/// State of the world.
pub(super) struct State {
    pub(super) now: Timestamp,
    pub(super) way: Option<BrokerPort>,
    /// Number of restarts of the broker.
    pub(super) restarts: u32,
    pub(super) asked: BTreeMap<u64, Asked>,
    pub(super) pushed: BTreeMap<u64, Pushed>,
    pub(super) workers: BTreeMap<usize, Worker>,
    /// Messages of handlers by owner and number, with their progress.
    pub(super) in_hand: BTreeMap<(Owner, SequenceNumber), &'static str>,
    /// Number of running handlers, of all lives.
    pub(super) at_work: usize,
    pub(super) invariants: Vec<Invariant>,
    /// Notified when the world is at rest.
    pub(super) rest: Option<Arc<tokio::sync::Notify>>,
    pub(super) trace: Vec<String>,
    next: u64,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            now: FIRST_INSTANT,
            way: None,
            restarts: 0,
            asked: BTreeMap::new(),
            pushed: BTreeMap::new(),
            workers: BTreeMap::new(),
            in_hand: BTreeMap::new(),
            at_work: 0,
            invariants: Vec::new(),
            rest: None,
            trace: Vec::new(),
            next: 1,
        };
        Arc::new(Self { state: Mutex::new(state), touched: AtomicBool::new(true) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Marks that a request was sent to the broker or withdrawn.
    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Release);
    }

    pub(super) fn was_touched(&self) -> bool {
        self.touched.swap(false, Ordering::AcqRel)
    }

    /// Sends a request to the broker when the driver selects it.
    pub(super) async fn ask<T, F>(
        self: &Arc<Self>,
        owner: Owner,
        what: String,
        describe: fn(&T) -> String,
        start: impl FnOnce(&BrokerPort) -> Result<F, BrokerError> + Send + 'static,
    ) -> Result<T, BrokerError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, BrokerError>> + Send + 'static,
    {
        let state = SlotState { result: None, is_given: false, waker: None };
        let slot = Arc::new(Slot { result: Mutex::new(state), describe });
        let place = Arc::clone(&slot);
        let start: Start = Box::new(move |way| {
            let asking = start(way)?;
            Ok(Box::pin(async move {
                let result = asking.await;
                lock(&place.result).result = Some(result);
            }))
        });
        let ticket = {
            let mut state = self.state();
            if !state.is_alive(owner) {
                return Err(state.refuse(Rejection::cancelled("the worker has crashed")));
            }
            let ticket = state.number();
            let place = Arc::clone(&slot) as Arc<dyn AnswerPlace>;
            state.asked.insert(ticket, Asked { owner, what, step: Step::Asked(start), place });
            ticket
        };
        Answer { shared: Arc::clone(self), ticket, slot }.await
    }
}

impl State {
    /// Returns a unique number.
    pub(super) const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Adds an event to the trace, with the time since the beginning.
    pub(super) fn note(&mut self, what: &str) {
        let ms = self.now.since(FIRST_INSTANT).as_ms();
        self.trace.push(format!("{:>6}.{:03}  {what}", ms / 1_000, ms % 1_000));
    }

    pub(super) fn is_alive(&self, owner: Owner) -> bool {
        owner.worker == 0
            || self.workers.get(&owner.worker).is_some_and(|worker| worker.life == owner.life)
    }

    /// Returns whether the worker is disconnected from the broker.
    pub(super) fn is_cut_off(&self, owner: Owner) -> bool {
        let worker = self.workers.get(&owner.worker);
        worker.is_some_and(|worker| worker.cut_off_until.is_some())
    }

    pub(super) fn refuse(&self, rejection: Rejection) -> BrokerError {
        match &self.way {
            Some(way) => way.refuse(rejection, ""),
            None => BrokerError::new(rejection, peeklock_core::ids::TrackingId(0), "", self.now),
        }
    }
}

impl Asked {
    /// Sends the request to the broker.
    pub(super) fn start(&mut self, way: &BrokerPort) {
        let Step::Asked(start) = std::mem::replace(&mut self.step, Step::Answered) else { return };
        match start(way) {
            Ok(under_way) => self.step = Step::UnderWay(under_way),
            Err(error) => self.place.fail(error),
        }
    }

    /// Returns whether the request is now answered.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Step::UnderWay(under_way) = &mut self.step
            && under_way.as_mut().poll(context).is_ready()
        {
            self.step = Step::Answered;
            return true;
        }
        false
    }

    pub(super) fn said(&self) -> String {
        let said = self.place.said().unwrap_or_default();
        match &said[..] {
            "" => self.what.clone(),
            said => format!("{}: {said}", self.what),
        }
    }

    /// Passes the answer to the requester.
    pub(super) fn give(self) {
        self.place.give();
    }

    /// Fails the request, because its answer is lost.
    pub(super) fn lose(mut self, error: BrokerError) {
        self.step = Step::Answered;
        self.place.fail(error);
        self.place.give();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
