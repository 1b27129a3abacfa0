//! Latencies: a histogram with three digits, and its summary. Clients record into it, and the
//! report prints it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer times count as this one.
const LONGEST: Duration = Duration::from_secs(600);

/// Measured times; can be shared between threads.
pub struct Latencies(Mutex<Histogram<u32>>);

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        let histogram = Histogram::new_with_bounds(1, longest, 3);
        let histogram = histogram.unwrap_or_else(|_| unreachable!("the bounds are in order"));
        Self(Mutex::new(histogram))
    }

    /// Adds a time.
    pub fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.lock().saturating_record(nanoseconds.max(1));
    }

    /// Adds the times of another histogram.
    pub fn add(&self, other: &Self) {
        // Both have the same bounds, so this cannot fail.
        self.lock().add(&*other.lock()).unwrap_or_default();
    }

    /// Percentiles and steps for the report.
    pub fn summary(&self) -> Summary {
        let histogram = self.lock();
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        // Steps are powers of two in microseconds.
        let (mut steps, mut low, mut high) = (Vec::new(), 0, 1_000);
        while !histogram.is_empty() && low <= histogram.max() {
            let count = histogram.count_between(low, high - 1);
            if count > 0 || !steps.is_empty() {
                steps.push((Duration::from_nanos(high), count));
            }
            (low, high) = (high, high * 2);
        }
        Summary {
            count: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
            max: Duration::from_nanos(histogram.max()),
            steps,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Histogram<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Summary of a histogram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Number of times.
    pub count: u64,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// 99.9th percentile.
    pub p99_9: Duration,
    /// Maximum.
    pub max: Duration,
    /// Number of times below each power of two of a microsecond and not below the previous one.
    pub steps: Vec<(Duration, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_percentiles_and_steps_of_recorded_times() {
        let (latencies, others) = (Latencies::new(), Latencies::new());
        for microseconds in 1..=900 {
            latencies.record(Duration::from_micros(microseconds));
        }
        for microseconds in 901..=1_000 {
            others.record(Duration::from_micros(microseconds));
        }
        latencies.add(&others);
        let summary = latencies.summary();
        let is_about = |it: Duration, microseconds: f64| {
            (it.as_secs_f64() * 1e6 - microseconds).abs() <= microseconds / 500.0
        };
        assert_eq!(summary.count, 1_000);
        assert!(is_about(summary.p50, 500.0) && is_about(summary.p99, 990.0), "{summary:?}");
        assert!(is_about(summary.p99_9, 999.0) && is_about(summary.max, 1_000.0), "{summary:?}");
        assert_eq!(summary.steps.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
    }

    #[test]
    fn nothing_recorded_says_nothing() {
        let summary = Latencies::new().summary();
        assert_eq!((summary.count, summary.steps), (0, Vec::new()));
    }
}
