//! Readings of the entities of the wanted kinds, and rates out of two readings (CNT-13). `top.rs`
//! reads and prints them.

use std::collections::HashMap;
use std::time::Instant;

use clap::ValueEnum;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use peeklock::command::{Described, DescribedSubscription, DescribedTopic};
use peeklock::websocket::client::Client;

use crate::cli::{Failure, exit, queue, subscription, topic};

/// Kind of an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    Queue,
    Topic,
    Subscription,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Queue, Self::Topic, Self::Subscription];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
            Self::Subscription => "subscription",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Queue => "queues",
            Self::Topic => "topics",
            Self::Subscription => "subscriptions",
        }
    }
}

/// Entity at one reading. Counts that its kind does not have are none.
#[derive(Clone, Debug)]
pub struct Row {
    pub kind: Kind,
    pub path: String,
    pub active: Option<u64>,
    pub dead: Option<u64>,
    pub scheduled: Option<u64>,
    pub deferred: Option<u64>,
    /// Stored bytes; the bytes of a subscription also count for its topic.
    pub size_bytes: u64,
    /// Messages accepted per second; none at the first reading.
    pub rate_in: Option<f64>,
    /// Messages removed per second; none for a topic, whose subscriptions store its messages.
    pub rate_out: Option<f64>,
    seen: Snapshot,
}

/// Values of the last reading.
#[derive(Default)]
pub struct Rates {
    last: Option<(Instant, HashMap<String, Snapshot>)>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Snapshot {
    /// Creation time: another entity may have the path meanwhile.
    created: i64,
    last_sequence: u64,
    /// Number of messages; none for a topic.
    total: Option<u64>,
}

impl From<&Described> for Row {
    fn from(queue: &Described) -> Self {
        Self {
            kind: Kind::Queue,
            path: queue.description.path.to_string(),
            active: Some(queue.counts.active),
            dead: Some(queue.counts.dead_letter),
            scheduled: Some(queue.counts.scheduled),
            deferred: Some(queue.counts.deferred),
            size_bytes: queue.size_bytes,
            rate_in: None,
            rate_out: None,
            seen: Snapshot {
                created: queue.created_at.ticks(),
                last_sequence: queue.last_sequence.0,
                total: Some(queue.counts.total()),
            },
        }
    }
}

impl From<&DescribedTopic> for Row {
    fn from(topic: &DescribedTopic) -> Self {
        Self {
            kind: Kind::Topic,
            path: topic.description.path.to_string(),
            active: None,
            dead: None,
            scheduled: Some(topic.scheduled),
            deferred: None,
            size_bytes: topic.size_bytes,
            rate_in: None,
            rate_out: None,
            seen: Snapshot {
                created: topic.created_at.ticks(),
                last_sequence: topic.last_sequence.0,
                total: None,
            },
        }
    }
}

impl From<&DescribedSubscription> for Row {
    fn from(subscription: &DescribedSubscription) -> Self {
        Self {
            kind: Kind::Subscription,
            path: subscription.description.path(),
            active: Some(subscription.counts.active),
            dead: Some(subscription.counts.dead_letter),
            scheduled: None,
            deferred: Some(subscription.counts.deferred),
            size_bytes: subscription.size_bytes,
            rate_in: None,
            rate_out: None,
            seen: Snapshot {
                created: subscription.created_at.ticks(),
                last_sequence: subscription.last_sequence.0,
                total: Some(subscription.counts.total()),
            },
        }
    }
}

#[cfg(test)]
impl Row {
    /// Queue with constant rates.
    pub fn for_test(path: &str, active: Option<u64>, dead: Option<u64>) -> Self {
        Self {
            kind: Kind::Queue,
            path: path.to_owned(),
            active,
            dead,
            scheduled: Some(0),
            deferred: Some(0),
            size_bytes: 123_456,
            rate_in: Some(1_234.5),
            rate_out: Some(1_234.5),
            seen: Snapshot { created: 1, last_sequence: 1, total: Some(1) },
        }
    }
}

impl Rates {
    /// Records a reading, and sets the rates of its rows.
    pub fn read(&mut self, rows: &mut [Row], now: Instant) {
        if let Some((at, last)) = &self.last {
            let passed = now.saturating_duration_since(*at).as_secs_f64();
            for row in &mut *rows {
                let before = last.get(&row.path);
                (row.rate_in, row.rate_out) =
                    before.map_or((None, None), |before| rates(*before, row.seen, passed));
            }
        }
        let last = rows.iter().map(|row| (row.path.clone(), row.seen)).collect();
        self.last = Some((now, last));
    }
}

/// Messages accepted and removed per second.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
fn rates(before: Snapshot, after: Snapshot, passed: f64) -> (Option<f64>, Option<f64>) {
    if before.created != after.created || passed <= 0.0 {
        return (None, None);
    }
    let come = after.last_sequence.saturating_sub(before.last_sequence);
    let gone = before.total.zip(after.total).map(|(before, after)| {
        let gone = (before + come).saturating_sub(after);
        gone as f64 / passed
    });
    (Some(come as f64 / passed), gone)
}

/// Topics whose subscriptions are requested at the same time.
const TOPICS_AT_ONCE: usize = 16;

/// Reads all entities of these kinds.
pub async fn read(client: &Client, kinds: &[Kind]) -> Result<Vec<Row>, Failure> {
    let wants = |kind| kinds.contains(&kind);
    let mut rows: Vec<Row> = Vec::new();
    if wants(Kind::Queue) {
        rows.extend(queue::all(client).await?.iter().map(Row::from));
    }
    if !wants(Kind::Topic) && !wants(Kind::Subscription) {
        return Ok(rows);
    }
    let topics = topic::all(client).await?;
    if wants(Kind::Topic) {
        rows.extend(topics.iter().map(Row::from));
    }
    if wants(Kind::Subscription) {
        let some = topics.iter().filter(|topic| topic.subscription_count > 0);
        let lists = some.map(|topic| of_topic(client, &topic.description.path));
        let lists: Vec<Vec<Row>> =
            stream::iter(lists).buffered(TOPICS_AT_ONCE).try_collect().await?;
        rows.extend(lists.into_iter().flatten());
    }
    Ok(rows)
}

/// Subscriptions of a topic; empty if it was deleted meanwhile.
async fn of_topic(client: &Client, topic: &str) -> Result<Vec<Row>, Failure> {
    match subscription::all(client, topic).await {
        Ok(subscriptions) => Ok(subscriptions.iter().map(Row::from).collect()),
        Err(Failure::Ended { code: exit::NOT_FOUND, .. }) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CNT-13
    #[test]
    fn rates_follow_from_two_readings() {
        let seen =
            |last_sequence, total| Snapshot { created: 1, last_sequence, total: Some(total) };
        let both = |come, gone| (Some(come), Some(gone));
        assert_eq!(rates(seen(10, 5), seen(30, 15), 2.0), both(10.0, 5.0));
        assert_eq!(rates(seen(10, 5), seen(10, 5), 2.0), both(0.0, 0.0));
        assert_eq!(rates(seen(10, 5), seen(10, 0), 1.0), both(0.0, 5.0));
        assert_eq!(rates(seen(10, 5), seen(20, 10), 0.0), (None, None));
        assert_eq!(rates(seen(10, 5), Snapshot { created: 2, ..seen(1, 1) }, 1.0), (None, None));
        let topic = |last_sequence| Snapshot { total: None, ..seen(last_sequence, 0) };
        assert_eq!(rates(topic(10), topic(20), 2.0), (Some(5.0), None));
    }
}
