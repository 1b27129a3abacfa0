//! A simulator for handlers: everything that can go wrong around them, from one seed, again and again.

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

/// Something that goes wrong, or comes otherwise, in a simulated world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Mishap {
    /// A worker crashes while its handlers are at work, or when they are done and nothing is settled yet. It is
    /// started again after a while.
    WorkerCrash,
    /// A worker is cut off from the broker for a while: locks are not renewed, settlements come too late, and what it
    /// has is delivered again although its handlers go on.
    LockLost,
    /// The broker crashes and is started again: locks are gone, answers are lost, and of what waited for the store
    /// some is stored.
    BrokerCrash,
    /// The store stores nothing for a while, so nobody is answered.
    SlowStore,
    /// Messages are begun, calls carried out and answers given in another order than they came.
    Reorder,
}

const MISHAPS: [Mishap; 5] = [
    Mishap::WorkerCrash,
    Mishap::LockLost,
    Mishap::BrokerCrash,
    Mishap::SlowStore,
    Mishap::Reorder,
];
/// As many as do not make a message a dead letter by themselves, of an entity with the usual MaxDeliveryCount of 10.
const MISHAPS_MAX: u32 = 8;
const SEEDS: Range<u64> = 0..100;

/// Runs a scenario with handlers of yours in many simulated worlds, one for each seed, and says in which one a check
/// did not hold.
///
/// A scenario makes queues, lets handlers consume, sends messages, lets the world [come to rest](World::come_to_rest),
/// and checks what became of it all. Until then workers crash at any await of a handler and before they settle, are cut
/// off until their locks are gone, the broker crashes, its store hangs, and everything comes in any order.
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
/// // `failure.replay().run(..)` runs this world again, step by step; the failure's text says how to write it out.
/// ```
///
/// # What is simulated, and what is not
///
/// A seed says everything that happens, so the same seed has the same trace. For that the scenario and its handlers run
/// on a single-threaded runtime whose time is paused: `tokio::time` is the time of the world, and passes when nobody has
/// anything to do. Handlers must do no I/O of their own: what they need of the world outside is to be a double
/// in memory. Nor may they have threads, random numbers or another clock. The broker is the real one, in memory; one
/// thing is asked of it at a time.
///
/// With the feature `actix` of `peeklock-client`, which is always there in `peeklock`, that runtime is an actix system, so actors can be started in the scenario and by
/// [`actors`](peeklock_client::actors). An actor lives outside of its worker: when that crashes, a message that the actor has is
/// worked off to its end, and delivered again.
///
/// A run is not to be started within a runtime: tests that have one are plain `#[test]` functions.
#[derive(Clone, Debug)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    seeds: Range<u64>,
    mishaps: BTreeSet<Mishap>,
    mishaps_max: u32,
    shows_trace: bool,
}

/// A scenario did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// The seed of the world in which it was. What happens there follows from the settings of the simulation, too, so
    /// [`replay`](Self::replay) knows both.
    pub seed: u64,
    /// What was wrong: a panic, an error, what does not hold, or that it does not end.
    pub what: String,
    /// What happened until then, with the seconds since the beginning.
    pub trace: Vec<String>,
    simulation: Simulation,
}

/// All runs ended well.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct Passed {
    /// How many there were.
    pub runs: u64,
    /// How often each mishap happened in all of them.
    pub mishaps: BTreeMap<Mishap, u64>,
    /// The trace of the last run.
    pub trace: Vec<String>,
}

impl Default for Simulation {
    fn default() -> Self {
        let (seeds, mishaps) = (SEEDS, MISHAPS.into());
        Self { seeds, mishaps, mishaps_max: MISHAPS_MAX, shows_trace: false }
    }
}

impl Simulation {
    /// With the seeds from 0 to 99 and all mishaps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one seed alone, and prints its trace however it ends. Of a simulation that was told otherwise than the usual
    /// one, say the same again; a [`Failed`] prints what.
    pub fn replay(seed: u64) -> Self {
        Self { shows_trace: true, ..Self::new().seeds(seed..seed.saturating_add(1)) }
    }

    /// The same, with other seeds.
    pub const fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// The same, without a mishap.
    pub fn without(mut self, mishap: Mishap) -> Self {
        self.mishaps.remove(&mishap);
        self
    }

    /// The same, with at most so many mishaps in a run, reordering not counted; 8 unless said otherwise. A worker that
    /// crashes and a lock that is lost count as a failed delivery, so more of them may make a dead letter of a message.
    pub const fn mishaps_max(mut self, count: u32) -> Self {
        self.mishaps_max = count;
        self
    }

    /// Runs the scenario with each seed, up to the first with which it fails.
    ///
    /// # Panics
    /// With the [`Failed`] if there is one, as a test fails.
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

    /// The same, for who wants to see what failed.
    ///
    /// # Errors
    /// The first failure. It was run twice: one that comes out otherwise the second time says so, since then something
    /// in it is not simulated.
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
        let ended = catch_unwind(AssertUnwindSafe(|| run.drive(main)));
        let ended = ended.unwrap_or_else(|panic| Err(said(&*panic)));
        let mishaps = std::mem::take(&mut run.mishaps);
        let trace = std::mem::take(&mut shared.state().trace);
        run.end();
        Outcome { ended, mishaps, trace }
    }
}

/// Of one run.
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

/// The first line, from 1, in which two traces differ.
fn first_difference(one: &[String], other: &[String]) -> Option<usize> {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (same < one.len().max(other.len())).then_some(same + 1)
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

impl Failed {
    /// The simulation that runs this world alone again, as it was told to be, and prints its trace.
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
        f.write_str(" runs it again")
    }
}

impl Error for Failed {}
