//! The simulator: queues, a topic, clients and a failing store in one process, driven from one
//! seed.
//!
//! No actix, no threads, no system clock: [`world`] drives shells, trees and shard writers like the
//! actors, [`clients`] sends any command at any time, and [`auditor`] judges by the answers of
//! clients and the contents of the store, independently of both.
//!
//! Proven for every seed that runs: FND-02 (acknowledged is stored, exactly once), LIF-02, LIF-03,
//! LIF-04, SET-27 (counts after a restart), SET-34 (deliveries are bounded), MSG-12 and MSG-13
//! (numbers), SND-29 and SND-31 (batches), RCV-02, RCV-14, DUP-02, SCH-03, DLQ-12, EXP-20, ERR-06,
//! QUO-05, SND-24, TMP-07 and TMP-14; for queues that require sessions SES-02, SES-11, SES-15 to
//! SES-20, SES-25 and SES-27; for a topic TOP-07 and TOP-25 to TOP-28, also for subscriptions that
//! become catch-alls or cease to be; and DESIGN D3, D5 and D11.
//!
//! `PEEKLOCK_SIM_SEEDS=5000` runs more seeds, `PEEKLOCK_SIM_SEED=17` repeats one with its trace,
//! `PEEKLOCK_SIM_STEPS` sets their length.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says which seed"
)]

mod auditor;
mod book;
mod clients;
mod fan;
mod image;
mod inspection;
#[path = "../common/rules.rs"]
mod rules;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 1_000;
const STEPS: u64 = 600;
/// Trace lines that a failure prints.
const TRACE_LINES: usize = 150;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs one seed. Returns its statistics, or the trace up to the failure.
fn run(seed: u64, steps: u64, traced: bool) -> Result<world::Seen, (String, Vec<String>)> {
    let mut world = world::World::new(seed, traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..steps {
            world.step();
        }
        world.come_to_rest();
        world.restart_and_rest();
    }));
    match result {
        Ok(()) => Ok(world.seen().clone()),
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "panic".to_owned());
            Err((what, world.trace()))
        }
    }
}

fn report(seed: u64, steps: u64) -> ! {
    let Err((what, trace)) = run(seed, steps, true) else {
        panic!("seed {seed} failed, and did not fail again: the run is not deterministic");
    };
    let first = trace.len().saturating_sub(
        number("PEEKLOCK_SIM_LINES").and_then(|lines| lines.try_into().ok()).unwrap_or(TRACE_LINES),
    );
    for line in &trace[first..] {
        eprintln!("{line}");
    }
    panic!("seed {seed}: {what}\nreplay with PEEKLOCK_SIM_SEED={seed}");
}

/// No failure at any time breaks a promise to a client.
#[test]
fn no_seed_breaks_a_promise() {
    world::silence_planned_panics();
    let steps = number("PEEKLOCK_SIM_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("PEEKLOCK_SIM_SEED") {
        match run(seed, steps, true) {
            Ok(seen) => eprintln!("seed {seed} holds: {seen:?}"),
            Err(_) => report(seed, steps),
        }
        return;
    }
    let count = number("PEEKLOCK_SIM_SEEDS").unwrap_or(SEEDS);
    let mut total = world::Seen::default();
    for seed in 1..=count {
        match run(seed, steps, false) {
            Ok(seen) => total.add(&seen),
            Err((what, _)) => {
                eprintln!("seed {seed}: {what}");
                report(seed, steps);
            }
        }
    }
    eprintln!("{count} seeds hold: {total:?}");
    if count >= SEEDS && steps >= STEPS {
        total.must_have_seen_everything();
    }
}
