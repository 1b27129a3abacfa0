//! Rates out of two readings (CNT-13).

use std::collections::HashMap;
use std::time::Instant;

use peeklock::command::Described;

/// One queue at one reading.
#[derive(Clone, Debug)]
pub struct Row {
    pub path: String,
    pub active: u64,
    pub dead: u64,
    pub scheduled: u64,
    pub deferred: u64,
    pub size_bytes: u64,
    /// Accepted in a second; none at the first reading.
    pub rate_in: Option<f64>,
    /// Gone for good in a second.
    pub rate_out: Option<f64>,
}

/// The last reading.
#[derive(Default)]
pub struct Rates {
    last: Option<(Instant, HashMap<String, Seen>)>,
}

#[derive(Clone, Copy, PartialEq)]
struct Seen {
    /// The queue of that path may be another one meanwhile.
    created: i64,
    last_sequence: u64,
    total: u64,
}

impl Rates {
    /// Takes a reading.
    pub fn read(&mut self, queues: &[Described], now: Instant) -> Vec<Row> {
        let seen = |queue: &Described| Seen {
            created: queue.created_at.ticks(),
            last_sequence: queue.last_sequence.0,
            total: queue.counts.total(),
        };
        let rows = queues
            .iter()
            .map(|queue| {
                let path = queue.description.path.to_string();
                let (rate_in, rate_out) = self
                    .last
                    .as_ref()
                    .and_then(|(at, last)| {
                        let passed = now.saturating_duration_since(*at).as_secs_f64();
                        rates(*last.get(&path)?, seen(queue), passed)
                    })
                    .unzip();
                Row {
                    path,
                    active: queue.counts.active,
                    dead: queue.counts.dead_letter,
                    scheduled: queue.counts.scheduled,
                    deferred: queue.counts.deferred,
                    size_bytes: queue.size_bytes,
                    rate_in,
                    rate_out,
                }
            })
            .collect();
        let last =
            queues.iter().map(|queue| (queue.description.path.to_string(), seen(queue))).collect();
        self.last = Some((now, last));
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
fn rates(before: Seen, after: Seen, passed: f64) -> Option<(f64, f64)> {
    if before.created != after.created || passed <= 0.0 {
        return None;
    }
    let come = after.last_sequence.saturating_sub(before.last_sequence);
    let gone = (before.total + come).saturating_sub(after.total);
    Some((come as f64 / passed, gone as f64 / passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CNT-13
    #[test]
    fn what_came_and_what_went_follows_from_two_readings() {
        let seen = |last_sequence, total| Seen { created: 1, last_sequence, total };
        assert_eq!(rates(seen(10, 5), seen(30, 15), 2.0), Some((10.0, 5.0)));
        assert_eq!(rates(seen(10, 5), seen(10, 5), 2.0), Some((0.0, 0.0)));
        assert_eq!(rates(seen(10, 5), seen(10, 0), 1.0), Some((0.0, 5.0)));
        assert_eq!(rates(seen(10, 5), seen(20, 10), 0.0), None);
        assert_eq!(rates(seen(10, 5), Seen { created: 2, ..seen(1, 1) }, 1.0), None);
    }
}
