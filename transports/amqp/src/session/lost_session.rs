//! Deliveries whose session lock was lost. Later dispositions of the client for them are answered
//! with that reason (AMQP-74).

use std::collections::BTreeMap;

/// Maximum number of ranges. If several links of a session deliver alternately, the numbers of each
/// link are not adjacent, so there are many ranges. Above the maximum, the oldest range is
/// forgotten, and its deliveries are answered as other lost locks.
const RANGE_COUNT_MAX: usize = 256;

/// Numbers of the deliveries whose session lock was lost.
#[derive(Debug, Default)]
pub(crate) struct LostSessionDeliveries {
    /// First to last number of each range; no two ranges touch.
    ranges: BTreeMap<i64, i64>,
}

impl LostSessionDeliveries {
    /// Adds a delivery.
    pub(super) fn insert(&mut self, number: i64) {
        let before = self.ranges.range(..=number).next_back();
        let before = before.map(|(first, last)| (*first, *last));
        let (first, last) = match before {
            Some((_, last)) if last >= number => return,
            Some((first, last)) if last + 1 == number => (first, number),
            _ => (number, number),
        };
        let last = self.ranges.remove(&(number + 1)).unwrap_or(last);
        self.ranges.insert(first, last);
        if self.ranges.len() > RANGE_COUNT_MAX {
            self.ranges.pop_first();
        }
    }

    /// Returns whether `from` is present, and the end of the run that begins there: up to that
    /// number, all numbers are present, or all are absent. A run ends at `to` at the latest.
    pub(super) fn run(&self, from: i64, to: i64) -> (bool, i64) {
        if let Some((_, last)) = self.ranges.range(..=from).next_back().filter(|it| *it.1 >= from) {
            return (true, to.min(*last));
        }
        let next = self.ranges.range(from..=to).next();
        (false, next.map_or(to, |(first, _)| first - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: impl IntoIterator<Item = i64>) -> LostSessionDeliveries {
        let mut lapsed = LostSessionDeliveries::default();
        numbers.into_iter().for_each(|number| lapsed.insert(number));
        lapsed
    }

    #[test]
    fn adjacent_deliveries_form_one_range_in_any_order() {
        for numbers in [[3, 4, 5, 6, 9], [9, 6, 5, 4, 3], [3, 5, 9, 6, 4], [4, 3, 6, 5, 9]] {
            let lapsed = of(numbers.into_iter().chain(numbers));
            assert_eq!(lapsed.ranges, BTreeMap::from([(3, 6), (9, 9)]), "{numbers:?}");
        }
    }

    #[test]
    fn runs_end_where_it_changes() {
        let lapsed = of([3, 4, 5, 9]);
        let runs = [(0, false, 2), (3, true, 5), (5, true, 5), (6, false, 8), (9, true, 9)];
        for (from, is_lapsed, last) in runs {
            assert_eq!(lapsed.run(from, 20), (is_lapsed, last));
        }
        assert_eq!((lapsed.run(4, 4), lapsed.run(7, 7)), ((true, 4), (false, 7)));
        assert_eq!(lapsed.run(10, 20), (false, 20));
    }

    /// Of many ranges, the newest are kept.
    #[test]
    fn ranges_are_bounded() {
        let lapsed = of((0..1_000).map(|number| 2 * number));
        assert_eq!(lapsed.ranges.len(), RANGE_COUNT_MAX);
        assert_eq!((lapsed.run(0, 0).0, lapsed.run(1_998, 1_998).0), (false, true));
    }
}
