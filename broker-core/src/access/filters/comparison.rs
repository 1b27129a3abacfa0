//! The copies of messages by changed rules of a topic, compared with those by its rules (CON-37).

use std::collections::HashSet;
use std::sync::Arc;

use super::{NAME_BYTES, TriedMessage, shown};
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::rule::{RuleEvaluation, SampledMessage, Selection, SelectionChange, TopicTrial};
use crate::samples::query::{WhatIfCounts, WhatIfDifference};

/// Maximum bytes of the subscriptions of differing messages, unless the first message has more.
const DIFFERENCE_BYTES_MAX: usize = 4 << 20;
/// Number of steps of judging between two yields.
const STEPS_AT_ONCE: u64 = 100_000;

/// Copies of messages by the rules of a topic, compared with those by changed rules.
pub(super) struct Comparison {
    pub(super) before: TopicTrial,
    after: TopicTrial,
    pub(super) readable: HashSet<EntityId>,
    /// By the ids of the subscriptions.
    pub(super) counts: Vec<WhatIfCounts>,
    pub(super) difference_count: u64,
    pub(super) differences: Vec<WhatIfDifference>,
    difference_count_max: u64,
    pub(super) room: Room,
    /// Whether the time was used up.
    pub(super) is_late: bool,
}

/// Room for the parts of an answer.
pub(super) struct Room {
    bytes: usize,
    bytes_max: usize,
    /// Whether a part had no room.
    pub(super) is_full: bool,
}

impl Comparison {
    pub(super) fn new(
        before: TopicTrial,
        after: TopicTrial,
        readable: HashSet<EntityId>,
        difference_count_max: u64,
    ) -> Self {
        let counts = before.subscriptions().map(|(_, name)| WhatIfCounts::of(name)).collect();
        let (differences, difference_count) = (Vec::new(), 0);
        Self {
            before,
            after,
            readable,
            counts,
            difference_count,
            differences,
            difference_count_max,
            room: Room::new(DIFFERENCE_BYTES_MAX),
            is_late: false,
        }
    }

    fn counts_of(&mut self, subscription: EntityId) -> Option<&mut WhatIfCounts> {
        self.counts.get_mut(usize::try_from(subscription.0).ok()?)
    }

    /// Adds a message.
    pub(super) async fn add(&mut self, tried: TriedMessage, limits: &Limits) {
        let before = select(&self.before, &tried.message, limits).await;
        let after = select(&self.after, &tried.message, limits).await;
        for subscription in before.subscriptions() {
            if let Some(counts) = self.counts_of(subscription) {
                counts.before += 1;
            }
        }
        for subscription in after.subscriptions() {
            if let Some(counts) = self.counts_of(subscription) {
                counts.after += 1;
            }
        }
        let (mut gained, mut lost, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for (subscription, change) in before.changes_to(&after) {
            let is_readable = self.readable.contains(&subscription);
            let Some(counts) = self.counts_of(subscription).filter(|_| is_readable) else {
                continue;
            };
            let (count, names) = match change {
                SelectionChange::Gained => (&mut counts.gained, &mut gained),
                SelectionChange::Lost => (&mut counts.lost, &mut lost),
                SelectionChange::Changed => (&mut counts.changed, &mut changed),
            };
            *count += 1;
            names.push(Arc::clone(&counts.name));
        }
        if gained.is_empty() && lost.is_empty() && changed.is_empty() {
            return;
        }
        self.difference_count += 1;
        if self.difference_count > self.difference_count_max || self.room.is_full {
            return;
        }
        let names = gained.iter().chain(&lost).chain(&changed);
        if self.room.take(names.map(|name| NAME_BYTES + name.len()).sum()) {
            let sample = shown(tried);
            self.differences.push(WhatIfDifference { sample, gained, lost, changed });
        }
    }
}

impl Room {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max, is_full: false }
    }

    /// Takes room for a part. Returns whether it has room: the first part has, and no part has
    /// after one without room.
    pub(super) const fn take(&mut self, bytes: usize) -> bool {
        let with_it = self.bytes.saturating_add(bytes);
        if self.is_full || (with_it > self.bytes_max && self.bytes > 0) {
            self.is_full = true;
            return false;
        }
        self.bytes = with_it;
        true
    }
}

impl WhatIfCounts {
    fn of(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), before: 0, after: 0, gained: 0, lost: 0, changed: 0 }
    }
}

/// Judges a message, and yields between slices.
pub(super) async fn select(
    trial: &TopicTrial,
    message: &SampledMessage,
    limits: &Limits,
) -> Selection {
    let mut judging = RuleEvaluation::default();
    while !trial.advance(&mut judging, message, (limits, STEPS_AT_ONCE), &mut || 0) {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    judging.into_selection()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SequenceNumber;
    use crate::limits::Tier;
    use crate::message::Message;
    use crate::rule::{Acceptance, RuleDescription, SubscriptionSettings};
    use crate::time::{TimeSpan, Timestamp};

    const SETTINGS: SubscriptionSettings = SubscriptionSettings {
        dead_lettering_on_filter_errors: false,
        requires_session: false,
        catch_all: false,
    };

    fn sample(number: u64) -> SampledMessage {
        let content = Message::new("").encode();
        let acceptance = Acceptance {
            sequence: SequenceNumber(number),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: Timestamp::NONE,
            time_to_live_max: TimeSpan::from_minutes(1),
            size: content.size(),
        };
        SampledMessage { content, changes: None, acceptance, copy_count: 0 }
    }

    /// CON-37: differing messages have names up to a maximum of bytes; further ones are counted.
    #[tokio::test]
    async fn differences_have_a_maximum_of_bytes() {
        let limits = Limits::of(Tier::Premium);
        let mut before = TopicTrial::default();
        let ids: Vec<_> = (0..1_000)
            .map(|number| before.add_subscription(format!("{number:050}").into(), SETTINGS))
            .collect();
        let mut after = before.clone();
        for id in &ids {
            after.add_rule(*id, RuleDescription::default_rule(Timestamp::NONE)).unwrap();
        }
        let readable = ids.into_iter().collect();
        let mut comparison = Comparison::new(before, after, readable, 100);
        for number in 1..=50 {
            comparison.add(TriedMessage::of_sample(sample(number)), &limits).await;
        }
        assert_eq!(comparison.difference_count, 50);
        let bytes = 1_000 * (NAME_BYTES + 50);
        assert_eq!(comparison.differences.len(), DIFFERENCE_BYTES_MAX / bytes);
        assert!(comparison.room.is_full);
        assert_eq!(comparison.counts[0].gained, 50);
    }
}
