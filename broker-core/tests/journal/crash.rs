//! Any work, interrupted anywhere: no acknowledged batch is lost, no deleted record returns,
//! batches are whole, and order is kept (DESIGN D12).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::number;
use crate::world::{Seen, World};

const SEEDS: u64 = 3_000;
const STEPS: u64 = 150;
/// Trace lines that a failure prints.
const TRACE_LINES: usize = 120;

/// Runs one seed. Returns its statistics, or the trace up to the failure.
fn run(seed: u64, steps: u64, traced: bool) -> Result<Seen, (String, Vec<String>)> {
    let mut world = World::new(seed, traced);
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.open();
        for _ in 0..steps {
            world.step();
        }
        world.come_to_rest();
    }));
    match result {
        Ok(()) => Ok(world.seen),
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
    let lines = number("PEEKLOCK_JOURNAL_LINES").and_then(|lines| lines.try_into().ok());
    let lines = lines.unwrap_or(TRACE_LINES);
    for line in &trace[trace.len().saturating_sub(lines)..] {
        eprintln!("{line}");
    }
    panic!("seed {seed}: {what}\nreplay with PEEKLOCK_JOURNAL_SEED={seed}");
}

/// Over any number of interruptions the journal keeps acknowledged batches and their order.
#[test]
fn no_crash_loses_an_acknowledged_batch() {
    let steps = number("PEEKLOCK_JOURNAL_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("PEEKLOCK_JOURNAL_SEED") {
        match run(seed, steps, true) {
            Ok(seen) => eprintln!("seed {seed} holds: {seen:?}"),
            Err(_) => report(seed, steps),
        }
        return;
    }
    let count = number("PEEKLOCK_JOURNAL_SEEDS").unwrap_or(SEEDS);
    let first = number("PEEKLOCK_JOURNAL_FIRST").unwrap_or(1);
    let next = AtomicU64::new(first);
    let found: Mutex<(Seen, Vec<u64>)> = Mutex::default();
    let failures_max = 5;
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut total = Seen::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || found.lock().unwrap().1.len() >= failures_max {
                        break;
                    }
                    match run(seed, steps, false) {
                        Ok(seen) => total.add(&seen),
                        Err((what, _)) => {
                            eprintln!("seed {seed}: {what}");
                            found.lock().unwrap().1.push(seed);
                        }
                    }
                }
                found.lock().unwrap().0.add(&total);
            });
        }
    });
    let (total, failed) = found.into_inner().unwrap();
    if let Some(seed) = failed.iter().min() {
        report(*seed, steps);
    }
    eprintln!("{count} seeds hold: {total:?}");
    if count >= SEEDS && steps >= STEPS {
        total.must_have_seen_everything();
    }
}
