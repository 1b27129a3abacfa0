//! Routes to forwarders: one thread for each source and destination, so that a forwarder that
//! blocks, hangs or panics delays only its own source (FWD-31, FWD-32).
//!
//! ```text
//!   courier ──job──► thread: route, one call at a time ──verdicts──► courier
//!      │                  ▲ ended: idle for ten seconds, panicked, or abandoned
//!      └─ time limit ─────┘
//! ```
//!
//! An abandoned thread ends when its call returns. Until then it counts against the maximum number
//! of threads, so a forwarder that hangs uses a bounded part of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use crate::error::Rejection;

/// Time after which a thread without work ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Result of a call.
pub(super) type CallResult = Result<Vec<Verdict>, CallFailure>;

/// Reason for a call without verdicts.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The forwarder could not create the route; the error concerns every message.
    NoRoute(Rejection),
    /// The call panicked.
    Panicked,
    /// No thread is available at present.
    NoThread,
}

struct Job {
    messages: Arc<Vec<Outgoing>>,
    answer: oneshot::Sender<CallResult>,
}

/// Permission for a call: a thread for it is running or may be started.
pub(super) struct CallPermit(Option<OwnedSemaphorePermit>);

/// Route from one sub-queue to one destination. At most one call is in progress.
#[derive(Default)]
pub(super) struct RouteSlot(Mutex<Option<Thread>>);

/// Thread of a route, and its queue of jobs.
struct Thread {
    destination: Arc<str>,
    jobs: mpsc::Sender<Job>,
}

impl RouteSlot {
    /// Returns permission for the next call; none if no thread is available.
    pub(super) fn permit(
        &self,
        destination: &Arc<str>,
        thread: impl Fn() -> Option<OwnedSemaphorePermit>,
    ) -> Option<CallPermit> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.take_if(|running| running.destination != *destination || running.jobs.is_closed());
        if running.is_some() {
            return Some(CallPermit(None));
        }
        drop(running);
        Some(CallPermit(Some(thread()?)))
    }

    /// Calls the forwarder; starts a thread if there is none. Dropping the future, as the time
    /// limit does, abandons the call: a forwarder that awaits is cancelled, a blocking one keeps
    /// its thread until it returns.
    pub(super) async fn call(
        &self,
        forwarder: &Arc<dyn Forwarder>,
        source: Source,
        destination: &Arc<str>,
        (leave, thread): (CallPermit, impl Fn() -> Option<OwnedSemaphorePermit>),
        messages: Arc<Vec<Outgoing>>,
    ) -> CallResult {
        let (answer, answered) = oneshot::channel();
        let mut job = Job { messages, answer };
        // Taken out during the call, so that an abandoned call does not keep its thread.
        let mut running = self.take().filter(|running| running.destination == *destination);
        if let Some(known) = &running {
            match known.jobs.try_send(job) {
                Ok(()) => return self.wait(running, answered).await,
                // The thread has just ended because it was idle.
                Err(refused) => job = refused.into_inner(),
            }
        }
        let Some(permit) = leave.0.or_else(thread) else { return Err(CallFailure::NoThread) };
        let fresh = start(forwarder, source, destination, permit)?;
        fresh.jobs.try_send(job).map_err(|_| CallFailure::NoThread)?;
        running = Some(fresh);
        self.wait(running, answered).await
    }

    async fn wait(
        &self,
        running: Option<Thread>,
        answered: oneshot::Receiver<CallResult>,
    ) -> CallResult {
        let called = answered.await.unwrap_or(Err(CallFailure::Panicked));
        if called.is_ok() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = running;
        }
        called
    }

    fn take(&self) -> Option<Thread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn start(
    forwarder: &Arc<dyn Forwarder>,
    source: Source,
    destination: &Arc<str>,
    permit: OwnedSemaphorePermit,
) -> Result<Thread, CallFailure> {
    let (jobs, queue) = mpsc::channel(1);
    let (forwarder, to) = (Arc::clone(forwarder), Arc::clone(destination));
    std::thread::Builder::new()
        .name(format!("forward-{}", source.entity))
        .spawn(move || {
            serve(&*forwarder, source, &to, queue);
            drop(permit);
        })
        .map_err(|_| CallFailure::NoThread)?;
    Ok(Thread { destination: Arc::clone(destination), jobs })
}

/// Body of the thread.
fn serve(
    forwarder: &dyn Forwarder,
    source: Source,
    destination: &str,
    mut queue: mpsc::Receiver<Job>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let mut route: Option<Box<dyn Route>> = None;
    while let Some(Job { messages, mut answer }) = runtime.block_on(next(&mut queue)) {
        let called = catch_unwind(AssertUnwindSafe(|| {
            let mut made = match route.take() {
                Some(made) => made,
                None => {
                    forwarder.route(destination, source.clone()).map_err(CallFailure::NoRoute)?
                }
            };
            let verdicts = runtime.block_on(async {
                tokio::select! {
                    verdicts = made.forward(&messages) => Some(verdicts),
                    // The caller gave up: drops the call where it awaits.
                    () = answer.closed() => None,
                }
            });
            route = Some(made);
            Ok(verdicts)
        }));
        let answer_is = match called {
            Ok(Ok(Some(verdicts))) => Ok(verdicts),
            Ok(Ok(None)) => break,
            Ok(Err(trouble)) => Err(trouble),
            Err(_) => Err(CallFailure::Panicked),
        };
        let goes_on = answer_is.is_ok();
        if answer.send(answer_is).is_err() || !goes_on {
            break;
        }
    }
    // Dropping the route may panic too.
    catch_unwind(AssertUnwindSafe(|| {
        let _guard = runtime.enter();
        drop(route);
    }))
    .ok();
}

async fn next(queue: &mut mpsc::Receiver<Job>) -> Option<Job> {
    tokio::time::timeout(IDLE_MAX, queue.recv()).await.ok().flatten()
}
