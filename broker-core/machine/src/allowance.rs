//! Limit on the copies of a message over all its hops (FWD-33). The topic machine uses it when it
//! publishes.
//!
//! A message does not know the other copies of its publish. So the remaining allowance is divided
//! among the copies when they are made, and each goes on with its share. The store keeps the copies
//! spent, not the copies left: then most messages have nothing to store, and a raised limit holds
//! for all.

/// Remaining copies of a message and of all its later copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    copy_count_max: u16,
    left: u16,
}

/// Value of `copies_spent` for each copy of a publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// For a copy that goes on to another entity.
    pub(crate) going_on: u16,
    /// For a copy that stays in its subscription. It may go on later, if it is dead-lettered or its
    /// subscription is changed.
    pub(crate) staying: u16,
}

impl Allowance {
    /// Returns the allowance of a message that has spent `spent` copies.
    pub(crate) const fn of(copy_count_max: u16, spent: u16) -> Self {
        Self { copy_count_max, left: copy_count_max.saturating_sub(spent) }
    }

    /// Number of copies that may still be made.
    pub(crate) const fn left(self) -> u16 {
        self.left
    }

    /// Whether `count` copies may be made.
    pub(crate) fn suffices(self, count: usize) -> bool {
        count <= usize::from(self.left)
    }

    /// Makes `going_on` and `staying` copies, and divides the rest: the copies that go on share one
    /// half, the copies that stay the other. If one kind is missing, the other shares all. Example:
    /// the limit is 10,000, and a single copy of 2,000 goes on. It gets 4,002 further copies; equal
    /// shares would give it 4.
    pub(crate) fn divide(self, going_on: usize, staying: usize) -> Shares {
        let left = usize::from(self.left).saturating_sub(going_on.saturating_add(staying));
        let to_staying = match (going_on, staying) {
            (_, 0) => 0,
            (0, staying) => left / staying,
            (_, staying) => left / 2 / staying,
        };
        let to_going_on = left.saturating_sub(to_staying * staying).checked_div(going_on);
        Shares {
            going_on: self.spent_with(to_going_on.unwrap_or(0)),
            staying: self.spent_with(to_staying),
        }
    }

    fn spent_with(self, left: usize) -> u16 {
        self.copy_count_max.saturating_sub(u16::try_from(left).unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u16 = 10_000;

    fn left(spent: u16) -> u16 {
        Allowance::of(MAX, spent).left()
    }

    /// FWD-33
    #[test]
    fn allowance_divides_remaining_copies_by_kind() {
        let whole = Allowance::of(MAX, 0);
        // A circle of topics with 30 subscriptions each, all of which forward.
        let first = whole.divide(30, 0);
        assert_eq!(left(first.going_on), 332);
        let second = Allowance::of(MAX, first.going_on).divide(30, 0);
        assert_eq!(left(second.going_on), 10);
        assert!(!Allowance::of(MAX, second.going_on).suffices(30));
        // One of 2,000 copies goes on.
        let one = whole.divide(1, 1_999);
        assert_eq!((left(one.going_on), left(one.staying)), (8_000 - 2 * 1_999, 2));
        assert_eq!(left(whole.divide(0, 1).staying), 9_999);
        assert_eq!(left(whole.divide(0, 10_000).staying), 0);
        assert!(whole.suffices(10_000) && !whole.suffices(10_001));
    }

    /// FWD-33: a lowered limit leaves nothing to messages that have spent more; a raised limit
    /// leaves more.
    #[test]
    fn allowance_uses_changed_limit_for_stored_messages() {
        let spent = Allowance::of(MAX, 0).divide(100, 0).going_on;
        assert_eq!(Allowance::of(5_000, spent).left(), 0);
        assert_eq!(Allowance::of(20_000, spent).left(), 10_000 + left(spent));
    }

    /// Number of copies that a message becomes along a path of publishes. At each publish one copy
    /// goes on, and the other copies would do the same.
    fn copies_of_all(allowance: Allowance, path: &[(usize, usize)]) -> u64 {
        let Some(((going_on, staying), rest)) = path.split_first() else { return 0 };
        if !allowance.suffices(going_on + staying) {
            return 0;
        }
        let shares = allowance.divide(*going_on, *staying);
        let of = |spent| copies_of_all(Allowance::of(allowance.copy_count_max, spent), rest);
        let beyond = *going_on as u64 * of(shares.going_on) + *staying as u64 * of(shares.staying);
        (going_on + staying) as u64 + beyond
    }

    /// FWD-33: along every path of forwarding topics and of copies that go on later, a message
    /// becomes at most the limit of copies. Some paths come close to it.
    #[test]
    fn message_never_exceeds_copy_limit_over_all_hops() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut nearest = 0.0_f64;
        for _ in 0..20_000 {
            let copy_count_max = u16::try_from(1 + random(u64::from(u16::MAX))).unwrap();
            let wide = 1 + random(200);
            let mut width = || usize::try_from(random(wide)).unwrap();
            let path: Vec<(usize, usize)> = (0..5).map(|_| (width(), width())).collect();
            let made = copies_of_all(Allowance::of(copy_count_max, 0), &path);
            assert!(made <= u64::from(copy_count_max), "{made} of {copy_count_max}: {path:?}");
            nearest = nearest.max(made as f64 / f64::from(copy_count_max));
        }
        assert!(nearest > 0.9, "{nearest}");
    }
}
