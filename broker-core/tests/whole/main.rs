//! One model over everything: queues, sessions, topics, forwarding and transactions in one world,
//! over a store that can fail at any instant, compared with a naive oracle.
//!
//! No actix, no threads, no system clock. [`world`] drives shells, trees, writers and transfers
//! like the actors; [`oracle`] predicts every answer, every transfer and every record from the
//! specification alone, one file for each topic of it; [`image`] reads the store.
//!
//! After every turn: the invariants of the machine, and its counts (CNT-03, VIA-06). After every
//! batch: each message in exactly one place, no acknowledged message lost, no settled one back,
//! numbers and order as accepted, delivery counts that only grow, no change without its cause
//! (FND-02, FND-03, LIF-01, LIF-02, MSG-12, SET-29, TXN-01, TOP-07). Each delivery is of a free
//! message, in the order of its queue or session, under a lock with its holder (RCV-25, SES-19,
//! SES-20, SET-15). At rest: sizes, accounts, states, and no unanswered command.
//!
//! `PEEKLOCK_WHOLE_SEEDS=5000` runs more seeds, `PEEKLOCK_WHOLE_SEED=17` repeats one with its
//! trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test fails by panicking and says which seed"
)]

#[path = "../common/ground.rs"]
mod ground;
mod image;
mod oracle;
#[path = "../common/rules.rs"]
mod rules;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 200;
const STEPS: u64 = 600;
const TRACE_LINES: usize = 200;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run(seed: u64, traced: bool) -> Result<world::Seen, (String, Vec<String>)> {
    let mut world = world::World::new(seed, traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step();
        }
        world.restart_and_rest();
    }));
    match result {
        Ok(()) => Ok(world.seen()),
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

fn report(seed: u64) -> ! {
    let Err((what, trace)) = run(seed, true) else {
        panic!("seed {seed} failed, and did not fail again: the run is not deterministic");
    };
    let all = number("PEEKLOCK_WHOLE_SEED").is_some();
    let first = if all { 0 } else { trace.len().saturating_sub(TRACE_LINES) };
    for line in &trace[first..] {
        eprintln!("{line}");
    }
    panic!("seed {seed}: {what}\nreplay with PEEKLOCK_WHOLE_SEED={seed}");
}

/// Planned panics are not printed.
fn silence_planned_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&ground::PLANNED) {
            print(panic);
        }
    }));
}

/// TXN-01, TXN-15: a transaction that exceeds the usual size of a stage is still one batch.
#[test]
fn a_large_transaction_over_two_machines_is_one_batch() {
    world::World::commit_more_than_a_stage_holds();
}

#[test]
fn broker_and_oracle_agree() {
    silence_planned_panics();
    if let Some(seed) = number("PEEKLOCK_WHOLE_SEED") {
        match run(seed, true) {
            Ok(seen) => eprintln!("seed {seed} holds: {seen:?}"),
            Err(_) => report(seed),
        }
        return;
    }
    let count = number("PEEKLOCK_WHOLE_SEEDS").unwrap_or(SEEDS);
    let mut total = world::Seen::default();
    for seed in 1..=count {
        match run(seed, false) {
            Ok(seen) => total.add(&seen),
            Err((what, _)) => {
                eprintln!("seed {seed}: {what}");
                report(seed);
            }
        }
    }
    eprintln!("{count} seeds hold: {total:?}");
    if count >= SEEDS {
        total.check_that_enough_happened();
    }
}
