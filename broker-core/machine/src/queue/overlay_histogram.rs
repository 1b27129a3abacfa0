//! Histogram of overlays per message. It bounds the number of overlays on any set of messages
//! without examining them (DESIGN D6).

/// Number of powers of two that a count of overlays can reach.
const LEVELS: usize = u16::BITS as usize;

/// Number of messages with overlays, by the logarithm of their overlay count. The bound is less
/// than twice the true value. Removed messages no longer count, so a message with many overlays
/// does not raise the cost of later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverlayHistogram {
    /// At index n, the number of messages with 2^n to 2^(n + 1) - 1 overlays.
    counts: [u32; LEVELS],
}

impl OverlayHistogram {
    /// Adds a message.
    pub(super) fn add(&mut self, overlay_count: u16) {
        if let Some(count) = self.level(overlay_count) {
            *count = count.saturating_add(1);
        }
    }

    /// Subtracts a message.
    pub(super) fn subtract(&mut self, overlay_count: u16) {
        if let Some(count) = self.level(overlay_count) {
            *count = count.saturating_sub(1);
        }
    }

    /// Upper bound on the overlays of any `count` messages.
    pub(super) fn bound_for(&self, count: u64) -> u64 {
        let (mut left, mut most) = (count, 0);
        for (level, there) in self.counts.iter().enumerate().rev() {
            let taken = left.min(u64::from(*there));
            most += taken * ((2u64 << level) - 1);
            left -= taken;
        }
        most
    }

    fn level(&mut self, overlay_count: u16) -> Option<&mut u32> {
        self.counts.get_mut(overlay_count.checked_ilog2()? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DESIGN D6, SET-41: the bound for `count` messages is at least the overlays of the messages
    /// with the most overlays, and less than twice that. Removed messages do not count.
    #[test]
    fn overlay_histogram_bounds_overlays_without_examining_messages() {
        let mut there: Vec<u16> = vec![0, 1, 1, 2, 3, 4, 7, 8, 100, 100, 4_095, 10_000, u16::MAX];
        let mut histogram = OverlayHistogram::default();
        for one in &there {
            histogram.add(*one);
        }
        while let Some(largest) = there.pop() {
            let mut exact = 0;
            for (count, one) in (0u64..).zip(there.iter().chain([&largest]).rev()) {
                assert!(
                    (exact..=2 * exact).contains(&histogram.bound_for(count)),
                    "{count} of {there:?}"
                );
                exact += u64::from(*one);
            }
            histogram.subtract(largest);
        }
        assert_eq!((histogram, histogram.bound_for(u64::MAX)), (OverlayHistogram::default(), 0));
    }
}
