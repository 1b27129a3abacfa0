//! Measurement and output of the benchmarks: several runs, and the slowest, the median and the
//! fastest.

use std::time::Instant;

/// Number of runs per benchmark.
pub const RUNS: usize = 5;

/// Runs `work` several times and prints its rate in units per second.
#[allow(dead_code, reason = "not all benchmarks have one kind")]
pub fn rate(title: &str, units: usize, mut work: impl FnMut()) -> f64 {
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            work();
            units as f64 / started.elapsed().as_secs_f64()
        })
        .collect();
    print(title, &mut rates)
}

/// Runs a future on this thread.
#[allow(dead_code, reason = "not all benchmarks own a shard")]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap_or_else(|error| panic!("{error}")).block_on(future)
}

/// Runs each kind of work in turn, several times, each after `prepare`, and prints like [`rate`].
#[allow(dead_code, reason = "not all benchmarks compare")]
pub fn rates<K>(
    title: &str,
    kinds: &[(&str, K)],
    units: u64,
    mut prepare: impl FnMut(),
    mut work: impl FnMut(&K),
) {
    let mut rates = vec![Vec::with_capacity(RUNS); kinds.len()];
    for _ in 0..RUNS {
        for ((_, kind), rates) in kinds.iter().zip(&mut rates) {
            prepare();
            let started = Instant::now();
            work(kind);
            rates.push(units as f64 / started.elapsed().as_secs_f64());
        }
    }
    for ((name, _), rates) in kinds.iter().zip(&mut rates) {
        print(&format!("{title}, {name}"), rates);
    }
}

#[expect(clippy::print_stdout, reason = "the printed output is the result of a benchmark")]
fn print(title: &str, rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    let median = rates[RUNS / 2];
    println!(
        "{title:<60} {:>12.0}/s   (of {RUNS} runs {:.0} to {:.0}, {:.0} ns each)",
        median,
        rates[0],
        rates[RUNS - 1],
        1e9 / median
    );
    median
}
