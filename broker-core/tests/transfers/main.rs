//! Many queues that forward to each other, a topic through which messages are sent, and a topic
//! whose subscriptions divide published messages, over a store that can fail at any instant: a
//! message is always in exactly one place.
//!
//! No actix, no threads, no system clock: [`world`] drives shells, trees, shard writers and
//! transfers like the actors, in the order of a seed, and [`judge`] inspects the store after every
//! batch. [`fan`] predicts the subscription of a message: the one that selects it, or the
//! catch-all.
//!
//! `PEEKLOCK_TRANSFER_SEEDS=5000` runs more seeds, `PEEKLOCK_TRANSFER_SEED=17` repeats one with its
//! trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test fails by panicking and says which seed"
)]

mod fan;
#[path = "../common/ground.rs"]
mod ground;
mod judge;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 400;
const STEPS: u64 = 700;
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

fn report(seed: u64) -> ! {
    let Err((what, trace)) = run(seed, true) else {
        panic!("seed {seed} failed, and did not fail again: the run is not deterministic");
    };
    for line in &trace[trace.len().saturating_sub(TRACE_LINES)..] {
        eprintln!("{line}");
    }
    panic!("seed {seed}: {what}\nreplay with PEEKLOCK_TRANSFER_SEED={seed}");
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

/// FND-03, FWD-09, TOP-25: whichever batch of a chain over two shards, into a topic, fails, has an
/// unknown outcome, or is the last before a crash or a panic, every acknowledged message arrives
/// exactly once and in order, in the subscription that selects it or else in the catch-all.
#[test]
fn a_failure_at_any_step_leaves_each_message_in_one_place() {
    use peeklock_store_testing::Fate;
    use world::{Misfortune, World};
    let unknown = |landed, holds| Misfortune::Fate(Fate::Unknown { landed, holds });
    let misfortunes = [
        Misfortune::Fate(Fate::Fail),
        unknown(false, false),
        unknown(true, false),
        unknown(false, true),
        unknown(true, true),
        Misfortune::Fate(Fate::GiveUp { landed: false }),
        Misfortune::Fate(Fate::GiveUp { landed: true }),
        Misfortune::Crash,
        Misfortune::Panic(0),
        Misfortune::Panic(1),
        Misfortune::Panic(3),
        Misfortune::Panic(world::FAN),
    ];
    for misfortune in misfortunes {
        let mut step = 0;
        while World::chain(step, misfortune) {
            step += 1;
        }
        assert!(step > 8, "{misfortune:?} has met only {step} steps");
    }
}

/// FND-02, FND-03, DUP-14: no message is lost or doubled, also if the store cannot load contents
/// for a while. FWD-10: in the order of the source.
/// FWD-12, FWD-13: hops. FWD-25: a forwarded message is no longer counted. FWD-01, VIA-01:
/// forwarding continues once the store works again. TXN-01, TXN-15: the parts of a transaction are
/// there together. TOP-25, TOP-26, TOP-28: the catch-all of a topic gets exactly the messages that
/// no other subscription selects by its rules at the publish (TOP-09).
#[test]
fn no_seed_loses_or_doubles_a_message() {
    silence_planned_panics();
    if let Some(seed) = number("PEEKLOCK_TRANSFER_SEED") {
        match run(seed, true) {
            Ok(seen) => eprintln!("seed {seed} holds: {seen:?}"),
            Err(_) => report(seed),
        }
        return;
    }
    let count = number("PEEKLOCK_TRANSFER_SEEDS").unwrap_or(SEEDS);
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
