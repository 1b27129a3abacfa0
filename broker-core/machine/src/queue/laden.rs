//! How often properties were set on how many messages, kept so that what so many of them come to at most is known
//! without a look at them (DESIGN D6).

/// So many powers of two a count of overlays can have reached.
const LEVELS: usize = u16::BITS as usize;

/// Messages on which properties were set, by the logarithm of how often. What it says of them is less than twice what
/// is so, and is forgotten with them: one on which much was set makes those that come after it no dearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Laden {
    /// At n those on which properties were set from 2^n to 2^(n + 1) - 1 times.
    counts: [u32; LEVELS],
}

impl Laden {
    /// Counts a message in.
    pub(super) fn add(&mut self, overlay_count: u16) {
        if let Some(count) = self.level(overlay_count) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a message out.
    pub(super) fn subtract(&mut self, overlay_count: u16) {
        if let Some(count) = self.level(overlay_count) {
            *count = count.saturating_sub(1);
        }
    }

    /// How often properties were set on so many messages at most: on those on which they were set most often.
    pub(super) fn most_on(&self, count: u64) -> u64 {
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

    /// DESIGN D6, SET-41: what is said of so many messages is at least what is set on those on which most is, and less
    /// than twice that; and of those that are gone nothing is left.
    #[test]
    fn what_so_many_messages_come_to_is_known_without_a_look_at_them() {
        let mut there: Vec<u16> = vec![0, 1, 1, 2, 3, 4, 7, 8, 100, 100, 4_095, 10_000, u16::MAX];
        let mut laden = Laden::default();
        for one in &there {
            laden.add(*one);
        }
        while let Some(most_laden) = there.pop() {
            let mut exact = 0;
            for (count, one) in (0u64..).zip(there.iter().chain([&most_laden]).rev()) {
                assert!(
                    (exact..=2 * exact).contains(&laden.most_on(count)),
                    "{count} of {there:?}"
                );
                exact += u64::from(*one);
            }
            laden.subtract(most_laden);
        }
        assert_eq!((laden, laden.most_on(u64::MAX)), (Laden::default(), 0));
    }
}
