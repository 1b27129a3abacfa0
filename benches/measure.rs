//! How the benchmarks measure and print: several runs, the slowest, the median and the fastest.

use std::time::Instant;

/// How often each is run.
pub const RUNS: usize = 5;

/// Runs `work` several times and prints how many units it did a second.
#[expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]
pub fn rate(what: &str, units: usize, mut work: impl FnMut()) -> f64 {
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            work();
            units as f64 / started.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[RUNS / 2];
    println!(
        "{what:<60} {:>12.0}/s   (of {RUNS} runs {:.0} to {:.0}, {:.0} ns each)",
        median,
        rates[0],
        rates[RUNS - 1],
        1e9 / median
    );
    median
}
