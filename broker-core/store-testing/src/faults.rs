//! Faults of a [`FaultStore`](crate::FaultStore): fates of batches and their odds, answers to
//! reservations, and crashes.

use super::random::Random;

/// The fate of the next batch of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The batch is stored.
    Store,
    /// The batch is not stored, and the shard stores no further batch until it is acquired again.
    Fail,
    /// The result is `StoreError::Unknown`; the shard waits until the batch is submitted again.
    Unknown {
        /// Whether the batch is stored nevertheless.
        landed: bool,
        /// Whether later batches complete only after it is submitted again; otherwise they complete
        /// with the same error.
        holds: bool,
    },
    /// The result is `StoreError::Unavailable`: the store gives the batch up, and the shard stores
    /// no further batch until it is acquired again.
    GiveUp {
        /// Whether the batch is stored nevertheless.
        landed: bool,
    },
}

/// The answer to reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// By the free room of the image.
    Open,
    /// `Reserved::Busy`.
    Busy,
    /// `Reserved::Full`.
    Full,
}

/// The fate of submitted batches that were not completed when the process dies. Either is legal,
/// because no caller was informed that they are stored.
#[derive(Debug)]
pub enum Crash<'a> {
    /// All are lost.
    Loses,
    /// In each shard, the batches up to a random one are stored.
    KeepsSome(&'a mut Random),
}

/// Probability of a bad end of a batch, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// Failures.
    pub fail: u64,
    /// Unknown outcomes.
    pub unknown: u64,
}

impl Odds {
    /// The fate of the next batch.
    pub const fn draw(&self, random: &mut Random) -> Fate {
        let drawn = random.below(1_000);
        if drawn < self.fail {
            return Fate::Fail;
        }
        if drawn < self.fail + self.unknown {
            let landed = random.one_in(2);
            return match random.one_in(4) {
                true => Fate::GiveUp { landed },
                false => Fate::Unknown { landed, holds: random.one_in(2) },
            };
        }
        Fate::Store
    }
}
