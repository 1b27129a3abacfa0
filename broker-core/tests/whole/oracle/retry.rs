//! Retry with a delay: file 26.

use peeklock_core::condition::Condition;
use peeklock_core::description::{RetryKind, RetryPolicy};
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Card, Oracle};

/// A retry policy without jitter, in milliseconds (RTY-16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    pub kind: RetryKind,
    pub delay: i64,
    pub most: Option<i64>,
}

impl Retry {
    /// RTY-18
    fn after(self, failures: u32) -> TimeSpan {
        let factor = match self.kind {
            RetryKind::Fixed => 1,
            RetryKind::Linear => i64::from(failures),
            RetryKind::Exponential => 1 << (failures - 1),
        };
        let delay = self.delay * factor;
        TimeSpan::from_ms(self.most.map_or(delay, |most| delay.min(most)))
    }

    /// The policy of a description, if it has this form.
    pub fn of(policy: RetryPolicy) -> Self {
        let RetryPolicy { kind, delay, delay_max, .. } = policy;
        Self { kind, delay: delay.as_ms(), most: delay_max.map(TimeSpan::as_ms) }
    }
}

impl Card {
    pub fn is_delayed(&self, now: Timestamp) -> bool {
        self.delayed_until.is_some_and(|until| until > now)
    }
}

impl Oracle {
    /// RTY-01, RTY-02, RTY-05, RTY-17, RTY-19: end of the delay of a message after this number of
    /// failures; `requested` is the delay that an abandon requests.
    pub fn delayed_until(
        &mut self,
        id: u64,
        sequence: u64,
        failures: u32,
        requested: Option<TimeSpan>,
    ) -> Option<Timestamp> {
        let entity = &self.entities[&id];
        let record = &entity.cards[&sequence].record;
        if record.state != SlotState::Active {
            return None;
        }
        let is_main = record.sub_queue == SubQueue::Main;
        let delay = match (requested, entity.now.retry) {
            (Some(requested), _) => {
                let rule = if is_main { "RTY-01" } else { "RTY-05" };
                self.reach(rule);
                requested
            }
            (None, Some(retry)) if is_main => {
                self.reach("RTY-17");
                retry.after(failures)
            }
            (None, _) => return None,
        };
        (delay > TimeSpan::ZERO).then(|| self.now.plus(delay))
    }

    /// RTY-08
    pub fn check_delay(
        &self,
        id: u64,
        sequence: u64,
        requested: Option<TimeSpan>,
    ) -> Result<(), Condition> {
        let is_deferred = self.entities[&id].cards[&sequence].record.state == SlotState::Deferred;
        if is_deferred && requested.is_some_and(|requested| requested > TimeSpan::ZERO) {
            return Err(Condition::InvalidOperation);
        }
        Ok(())
    }
}
