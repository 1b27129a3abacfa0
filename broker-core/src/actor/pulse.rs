//! Detects stuck arbiters: each records the start of its current turn and its entity, and a probe
//! finds turns that take too long.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ids::EntityId;
use crate::time::{TimeSpan, Timestamp};

/// Duration from which a turn counts as stalled. A turn aims at one millisecond; a longer one
/// delays all other entities of its arbiter.
pub const TURN_TIME_MAX: TimeSpan = TimeSpan::from_seconds(1);

/// Current turn and turn counter of an arbiter.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Start of the current turn in ticks; 0 between turns.
    since: AtomicI64,
    entity: AtomicU64,
    /// Number of turns; only the arbiter itself writes it.
    turns: AtomicU64,
}

/// Pulses of all arbiters.
#[derive(Debug, Default)]
pub struct Pulses(Mutex<Vec<Arc<Pulse>>>);

/// Ends a turn when it is dropped.
pub struct RunningTurn<'p>(&'p Pulse);

impl Pulse {
    /// Begins a turn of an entity. A turn within another one ends the measurement of the outer one.
    pub fn begin(&self, entity: EntityId, now: Timestamp) -> RunningTurn<'_> {
        self.entity.store(entity.0, Ordering::Relaxed);
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.since.store(now.ticks(), Ordering::Release);
        RunningTurn(self)
    }
}

impl Drop for RunningTurn<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Release);
    }
}

impl Pulses {
    /// Adds a pulse for another arbiter.
    pub fn add(&self) -> Arc<Pulse> {
        let pulse = Arc::<Pulse>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pulse));
        pulse
    }

    /// Total number of turns. While it is unchanged, no machine ran.
    pub fn turns(&self) -> u64 {
        let pulses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pulses.iter().map(|pulse| pulse.turns.load(Ordering::Acquire)).sum()
    }

    /// Returns the longest current turn with its entity and duration, if it exceeds
    /// [`TURN_TIME_MAX`].
    pub fn stalled(&self, now: Timestamp) -> Option<(EntityId, TimeSpan)> {
        let pulses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = pulses.iter().filter_map(|pulse| {
            let since = pulse.since.load(Ordering::Acquire);
            let entity = EntityId(pulse.entity.load(Ordering::Relaxed));
            (since != 0).then(|| (entity, now.since(Timestamp::from_ticks(since))))
        });
        turns.filter(|(_, took)| *took >= TURN_TIME_MAX).max_by_key(|(_, took)| *took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arbiter whose turn takes a second is reported with its entity; one that finishes turns is
    /// not.
    #[test]
    fn long_turn_is_reported_with_its_entity() {
        let pulses = Pulses::default();
        let (quick, slow) = (pulses.add(), pulses.add());
        let at = |ms: i64| Timestamp::from_unix_ms(1_800_000_000_000 + ms);
        let turn = slow.begin(EntityId(7), at(0));
        drop(quick.begin(EntityId(8), at(0)));
        assert_eq!(pulses.stalled(at(999)), None);
        assert_eq!(pulses.stalled(at(1_500)), Some((EntityId(7), TimeSpan::from_ms(1_500))));
        drop(turn);
        assert_eq!(pulses.stalled(at(5_000)), None);
    }
}
