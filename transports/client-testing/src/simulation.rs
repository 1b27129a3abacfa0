//! A simulator for handlers: it repeats mishaps and orders of events from a seed. Tests create a
//! [`Simulation`].

mod broker;
mod mishaps;
mod port;
mod pushed;
mod run;
mod runtime;
mod shared;
mod worker;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use peeklock_store_testing::Random;

use self::mishaps::Weather;
use self::run::Run;
pub use self::world::World;

/// An event that goes wrong, or comes out of order, in a simulated world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Mishap {
    /// A worker crashes while its handlers run, or after they are done and before anything is
    /// settled. It restarts after a while.
    WorkerCrash,
    /// A worker loses its connection for a while: locks are not renewed, settlements come too late,
    /// and its messages are delivered again although its handlers continue.
    LockLost,
    /// The broker crashes and restarts: locks and answers are lost, and only some of the pending
    /// writes are stored.
    BrokerCrash,
    /// The store hangs for a while, so no request is answered.
    SlowStore,
    /// Messages are started, calls carried out and answers given in another order than they came.
    Reorder,
}

const MISHAPS: [Mishap; 5] = [
    Mishap::WorkerCrash,
    Mishap::LockLost,
    Mishap::BrokerCrash,
    Mishap::SlowStore,
    Mishap::Reorder,
];
/// Few enough that mishaps alone do not dead-letter a message, with the usual MaxDeliveryCount of
/// 10.
const MISHAPS_MAX: u32 = 8;
/// Maximum number of steps of a run by default.
const STEPS_MAX: u32 = 50_000;
const SEEDS: Range<u64> = 0..100;

/// Runs a scenario with your handlers in many simulated worlds, one per seed, and reports the world
/// in which a check fails.
///
/// A scenario creates queues, starts consumers, sends messages, lets the world [come to
/// rest](World::come_to_rest), and checks the result. Until then workers crash at any await of a
/// handler and before they settle, or lose their connection until their locks are gone, the broker
/// crashes, its store hangs, and everything happens in any order.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use std::sync::{Arc, Mutex};
///
/// use peeklock::message::Message;
/// use peeklock::testing::Simulation;
/// use peeklock::{ConsumerOptions, Delivery};
///
/// // Counts cups; a message that is delivered twice is counted twice.
/// let found = Simulation::new().try_run(|world| async move {
///     world.client().admin().create_queue("orders").await?;
///     let cups = Arc::new(Mutex::new(0));
///     let counter = Arc::clone(&cups);
///     let handler = move |_: Delivery| {
///         let counter = Arc::clone(&counter);
///         async move {
///             *counter.lock().unwrap() += 1;
///             Ok(())
///         }
///     };
///     world.consume("orders", handler, ConsumerOptions::default()).await?;
///     world.client().sender("orders")?.send(Message::new("one coffee")).await?;
///     world.come_to_rest().await;
///     assert_eq!(*cups.lock().unwrap(), 1, "one coffee was ordered");
///     Ok(())
/// });
/// let failure = found.unwrap_err();
/// assert!(failure.what.contains("one coffee was ordered"));
/// assert!(failure.trace.iter().any(|line| line.contains("#1 is delivered, attempt 2")));
/// // `failure.replay().run(..)` runs this world again, step by step. The failure's text contains
/// // this call.
/// ```
///
/// # Scope of the simulation
///
/// The seed determines all events, so the same seed has the same trace. For that the scenario and
/// its handlers run on a single-threaded runtime with paused time: `tokio::time` is the time of the
/// world, and advances when all tasks are idle. Handlers must do no I/O of their own: use doubles
/// in memory for external systems. They must not use threads, random numbers or another clock. The
/// broker is the real broker, in memory; it handles one request at a time.
///
/// With the feature `actix` of `peeklock-client`, which is always present in `peeklock`, the
/// runtime is an actix system, so the scenario and [`actors`](peeklock_client::actors) can start
/// actors. An actor does not belong to its worker: when the worker crashes, the actor finishes its
/// message, which is also delivered again.
///
/// Do not start a run inside a runtime: use plain `#[test]` functions.
#[derive(Clone, Debug)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    seeds: Range<u64>,
    mishaps: BTreeSet<Mishap>,
    mishaps_max: u32,
    steps_max: u32,
    shows_trace: bool,
}

/// Failure of a scenario.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// The seed of the failed run. Its events also depend on the settings of the simulation, so
    /// [`replay`](Self::replay) uses both.
    pub seed: u64,
    /// The failure: a panic, an error, a violated invariant, or a run without an end.
    pub what: String,
    /// The events until then, with the seconds since the beginning.
    pub trace: Vec<String>,
    simulation: Simulation,
}

/// Result of runs without a failure.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct Passed {
    /// Number of runs.
    pub runs: u64,
    /// Total number of each mishap.
    pub mishaps: BTreeMap<Mishap, u64>,
    /// The trace of the last run.
    pub trace: Vec<String>,
}

impl Default for Simulation {
    fn default() -> Self {
        let (seeds, mishaps) = (SEEDS, MISHAPS.into());
        Self { seeds, mishaps, mishaps_max: MISHAPS_MAX, steps_max: STEPS_MAX, shows_trace: false }
    }
}

impl Simulation {
    /// Creates a simulation with the seeds from 0 to 99 and all mishaps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a simulation that runs only one seed, and prints its trace. Repeat any other
    /// settings of the original simulation; a [`Failed`] prints them.
    pub fn replay(seed: u64) -> Self {
        Self { shows_trace: true, ..Self::new().seeds(seed..seed.saturating_add(1)) }
    }

    /// Sets the seeds.
    pub const fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Disables a mishap.
    pub fn without(mut self, mishap: Mishap) -> Self {
        self.mishaps.remove(&mishap);
        self
    }

    /// Sets the maximum number of mishaps in a run, without reordering; 8 by default. A crashed
    /// worker and a lost lock count as failed deliveries, so a higher number can dead-letter
    /// messages.
    pub const fn mishaps_max(mut self, count: u32) -> Self {
        self.mishaps_max = count;
        self
    }

    /// Sets the maximum number of steps of a run, after which it has failed because it has no end;
    /// 50,000 by default.
    pub const fn steps_max(mut self, count: u32) -> Self {
        self.steps_max = count;
        self
    }

    /// Runs the scenario with each seed, up to the first failure.
    ///
    /// # Panics
    /// With the [`Failed`] of the first failure, as a test fails.
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn run<S, F>(self, scenario: S) -> Passed
    where
        S: Fn(World) -> F,
        F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
    {
        match self.try_run(scenario) {
            Ok(passed) => passed,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs the scenario like [`run`](Self::run), and returns the failure.
    ///
    /// # Errors
    /// Returns the first failure. The failed seed runs twice: a different second result is
    /// reported, because it means that something is not simulated.
    #[expect(clippy::print_stderr, reason = "it is asked for")]
    pub fn try_run<S, F>(self, scenario: S) -> Result<Passed, Box<Failed>>
    where
        S: Fn(World) -> F,
        F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
    {
        let mut passed = Passed::default();
        for seed in self.seeds.clone() {
            let run = self.run_one(seed, &scenario);
            if self.shows_trace {
                for line in &run.trace {
                    eprintln!("{line}");
                }
            }
            let Err(what) = run.ended else {
                passed.runs += 1;
                for (mishap, count) in run.mishaps {
                    *passed.mishaps.entry(mishap).or_default() += count;
                }
                passed.trace = run.trace;
                continue;
            };
            let again = self.run_one(seed, &scenario);
            let what = match first_difference(&run.trace, &again.trace) {
                Some(line) => format!(
                    "{what}\n(it does not repeat: something is not simulated, from line {line} of the trace on)",
                ),
                None => what,
            };
            let seeds = seed..seed.saturating_add(1);
            let simulation = Self { seeds, shows_trace: true, ..self };
            return Err(Box::new(Failed { seed, what, trace: run.trace, simulation }));
        }
        Ok(passed)
    }

    fn run_one<S, F>(&self, seed: u64, scenario: &S) -> Outcome
    where
        S: Fn(World) -> F,
        F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
    {
        let mut random = Random::new(seed);
        let weather = Weather::draw(&mut random, &self.mishaps, self.mishaps_max);
        let mut run = match Run::new(seed, weather, random) {
            Ok(run) => run,
            Err(what) => return Outcome { ended: Err(what), ..Outcome::default() },
        };
        let shared = Arc::clone(&run.shared);
        let scene = scenario(World::new(Arc::clone(&shared)));
        let main = Box::pin(async move { scene.await.map_err(|error| error.to_string()) });
        let ended = catch_unwind(AssertUnwindSafe(|| run.drive(main, self.steps_max)));
        let ended = ended.unwrap_or_else(|panic| Err(said(&*panic)));
        let mishaps = std::mem::take(&mut run.mishaps);
        let trace = std::mem::take(&mut shared.state().trace);
        run.end();
        Outcome { ended, mishaps, trace }
    }
}

/// Result of a run.
struct Outcome {
    ended: run::Ended,
    mishaps: BTreeMap<Mishap, u64>,
    trace: Vec<String>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self { ended: Ok(()), mishaps: BTreeMap::new(), trace: Vec::new() }
    }
}

/// Returns the number of the first line, from 1, in which two traces differ.
fn first_difference(one: &[String], other: &[String]) -> Option<usize> {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (same < one.len().max(other.len())).then_some(same + 1)
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Failed {
    /// Returns the simulation that runs only this world again with the same settings, and prints
    /// its trace.
    pub fn replay(&self) -> Simulation {
        self.simulation.clone()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        let seed = self.seed;
        write!(f, "seed {seed}: {}\nSimulation::replay({seed})", self.what)?;
        for mishap in MISHAPS.iter().filter(|mishap| !self.simulation.mishaps.contains(mishap)) {
            write!(f, ".without(Mishap::{mishap:?})")?;
        }
        if self.simulation.mishaps_max != MISHAPS_MAX {
            write!(f, ".mishaps_max({})", self.simulation.mishaps_max)?;
        }
        if self.simulation.steps_max != STEPS_MAX {
            write!(f, ".steps_max({})", self.simulation.steps_max)?;
        }
        f.write_str(" runs it again")
    }
}

impl Error for Failed {}
