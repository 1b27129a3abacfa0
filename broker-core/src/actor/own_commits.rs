//! Decides when an arbiter commits a stage on its own thread (decision 46).
//!
//! This saves two wake-ups, but everything else on the arbiter waits for the disk. So an arbiter
//! commits only while no other tree takes turns, no large stages arrive, and commits are as fast as
//! a turn.

use std::cell::Cell;

use crate::time::{TimeSpan, Timestamp};

/// Maximum average time of the last commits. A turn aims at the same time.
const COMMIT_TIME_MAX: TimeSpan = TimeSpan::from_ms(1);
/// Weight of the last commit in the average is one part in this number.
const AVERAGED_COUNT: i64 = 8;
/// Time since the last turn of another tree, and since the last stage that was not committed here.
const QUIET: TimeSpan = TimeSpan::from_ms(1);
/// A pause after slow commits, as a multiple of the last one: other work on the arbiter waits for
/// at most about a thirtieth of the time.
const PAUSE_FACTOR: i64 = 32;
const PAUSE_MAX: TimeSpan = TimeSpan::from_minutes(1);

/// The turns of an arbiter, and the times of its own commits.
#[derive(Debug)]
pub(super) struct OwnCommits {
    /// The tree that took the last turn, and its instant.
    last_turn: Cell<(u64, Timestamp)>,
    /// Last instant with other work.
    busy_at: Cell<Timestamp>,
    average: Cell<TimeSpan>,
    paused_until: Cell<Timestamp>,
}

impl Default for OwnCommits {
    fn default() -> Self {
        Self {
            last_turn: Cell::new((u64::MAX, Timestamp::NONE)),
            busy_at: Cell::new(Timestamp::NONE),
            average: Cell::new(TimeSpan::ZERO),
            paused_until: Cell::new(Timestamp::NONE),
        }
    }
}

impl OwnCommits {
    /// Notes a turn of a tree.
    pub(super) fn note_turn(&self, tree: u64, now: Timestamp) {
        let (last, at) = self.last_turn.replace((tree, now));
        if last != tree {
            self.note_load(at);
        }
    }

    /// Notes stages that are too many or too large for a commit of the arbiter.
    pub(super) fn note_load(&self, at: Timestamp) {
        self.busy_at.set(self.busy_at.get().max(at));
    }

    /// Whether the arbiter may wait for a commit of this tree.
    pub(super) fn may_commit(&self, tree: u64, now: Timestamp) -> bool {
        self.last_turn.get().0 == tree
            && now.since(self.busy_at.get()) >= QUIET
            && now >= self.paused_until.get()
    }

    /// Notes the time of a commit that ended at `now`.
    pub(super) fn note_commit(&self, took: TimeSpan, now: Timestamp) {
        let before = self.average.get().ticks();
        let average = TimeSpan::from_ticks(before + (took.ticks() - before) / AVERAGED_COUNT);
        if average <= COMMIT_TIME_MAX {
            self.average.set(average);
            return;
        }
        let pause = TimeSpan::from_ticks(took.ticks().saturating_mul(PAUSE_FACTOR));
        self.paused_until.set(now.plus(pause.min(PAUSE_MAX)));
        self.average.set(TimeSpan::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    const TREE: u64 = 7;

    struct Stand {
        clock: ManualClock,
        commits: OwnCommits,
    }

    impl Stand {
        fn new() -> Self {
            let clock = ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000));
            Self { clock, commits: OwnCommits::default() }
        }

        fn turn(&self, tree: u64) {
            self.commits.note_turn(tree, self.clock.now());
        }

        fn may_commit(&self) -> bool {
            self.turn(TREE);
            self.commits.may_commit(TREE, self.clock.now())
        }

        fn commit(&self, took: TimeSpan) {
            self.clock.advance(took);
            self.commits.note_commit(took, self.clock.now());
        }
    }

    /// Decision 46: an arbiter waits for the disk only if no other tree took a turn for a millisecond.
    #[test]
    fn arbiter_commits_only_while_other_trees_are_quiet() {
        let stand = Stand::new();
        assert!(stand.may_commit(), "a tree without neighbours");
        stand.turn(8);
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_ticks(9_999));
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_ticks(1));
        assert!(stand.may_commit());
        // Two trees that take turns rarely do not hinder each other.
        stand.turn(8);
        stand.clock.advance(TimeSpan::from_ms(5));
        assert!(stand.may_commit());
    }

    /// Decision 46: under load, the store's threads write while the arbiter applies commands.
    #[test]
    fn arbiter_leaves_commits_to_the_store_under_load() {
        let stand = Stand::new();
        assert!(stand.may_commit());
        stand.commits.note_load(stand.clock.now());
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_ms(1));
        assert!(stand.may_commit());
    }

    /// Decision 46: after slow commits, an arbiter leaves commits to the store for 32 times as long.
    #[test]
    fn arbiter_leaves_commits_to_the_store_after_slow_ones() {
        let stand = Stand::new();
        for _ in 0..1_000 {
            stand.commit(TimeSpan::from_ticks(1_500));
        }
        // One outlier among fast commits is no reason.
        stand.commit(TimeSpan::from_ms(5));
        assert!(stand.may_commit());
        stand.commit(TimeSpan::from_ms(10));
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_ms(319));
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_ms(1));
        assert!(stand.may_commit());
        stand.commit(TimeSpan::from_minutes(2));
        stand.clock.advance(TimeSpan::from_seconds(59));
        assert!(!stand.may_commit());
        stand.clock.advance(TimeSpan::from_seconds(1));
        assert!(stand.may_commit());
    }

    /// Decision 46: a disk whose commits always take 2 ms holds other work up for a fifth of the time.
    #[test]
    fn share_of_slow_commits_is_bounded() {
        let stand = Stand::new();
        let (mut waited, begun) = (0, stand.clock.now());
        for _ in 0..10_000 {
            if stand.may_commit() {
                stand.commit(TimeSpan::from_ms(2));
                waited += 2;
            } else {
                stand.clock.advance(TimeSpan::from_ms(1));
            }
        }
        let all = stand.clock.now().since(begun).as_ms();
        assert!(waited * 5 <= all, "{waited} of {all} ms");
    }
}
