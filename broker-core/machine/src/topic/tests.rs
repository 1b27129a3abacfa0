//! What the machine of a topic makes of a publish, by itself.

use super::*;
use crate::change::SubscriptionCopy;
use crate::command::{InboundMessage, RuleCommand, TopicCommand};
use crate::condition::Condition;
use crate::description::SubscriptionDescription;
use crate::limits::{Limits, Tier};
use crate::message::{Message, PropertyLimits};
use crate::rule::{Filter, RuleDescription};
use crate::store::{ContentOp, Record, Reserved};

const KEY: [u8; 16] = [7; 16];

struct Stand {
    topic: Topic,
    limits: Limits,
    now: Timestamp,
    stored_bytes: u64,
}

impl Stand {
    /// A topic with so many subscriptions that get everything.
    fn new(subscriptions: u64) -> Self {
        let limits = Limits::of(Tier::Premium);
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: crate::queue::ForwardingConfig::default(),
        };
        let description = TopicDescription {
            max_size_in_megabytes: 1,
            ..TopicDescription::new("events", &limits)
        };
        let topic = Topic::new(EntityId(1), description, config, now);
        let mut stand = Self { topic, limits, now, stored_bytes: 0 };
        for number in 0..subscriptions {
            let id = EntityId(number + 2);
            let name = number.to_string();
            let description = SubscriptionDescription::new("events", name, &stand.limits);
            let description = Box::new(description);
            let command = Command::OfTopic(TopicCommand::CreateSubscription {
                id,
                description,
                rules: vec![],
            });
            stand.apply(command).unwrap();
        }
        stand
    }

    fn apply(&mut self, command: Command) -> Result<(Answer, Step), Rejection> {
        let mut step = Step::default();
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        let result = self.topic.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step);
        self.topic.check_invariants().unwrap();
        assert!(result.is_ok() || step.changes.is_empty(), "a rejection has changed something");
        result.map(|answer| (answer, step))
    }

    fn send(&mut self, bytes: usize) -> Result<(Answer, Step), Rejection> {
        let content = Message::new(vec![0; bytes]).encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        self.apply(Command::Send { message: InboundMessage { content, envelope } })
    }
}

fn copies(step: &Step) -> &[SubscriptionCopy] {
    match step.changes.as_slice() {
        [Change::OfTopic(TopicChange::Published { copies, .. })] => copies,
        other => panic!("a publish is one change, not {other:?} (TOP-07)"),
    }
}

/// TOP-07, TOP-10, DESIGN D8: one change, whose records hold the content once and whose account counts it
/// for each copy.
#[test]
fn a_publish_is_one_change_with_its_content_once() {
    let mut stand = Stand::new(3);
    let (_, step) = stand.send(1_000).unwrap();
    let size: u64 = copies(&step).iter().map(|copy| u64::from(copy.slot.size)).sum();
    assert_eq!((copies(&step).len(), step.bytes_added), (3, size));
    assert!(size >= 3_000);
    let mut batch = Batch::default();
    stand.topic.records(&step.changes[0], &mut batch);
    let contents: Vec<bool> = batch
        .records()
        .map(|record| match record {
            Record::Put { content: ContentOp::New(_), .. } => true,
            Record::Put { content: ContentOp::Of(_), .. } => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(contents, [true, false, false]);
    assert!(batch.bytes() < 1_000 + 3 * 100);
}

/// TOP-10, QUO-03, QUO-07: what would be too much for the quota, or for one atomic step, is refused and has
/// changed nothing.
#[test]
fn a_publish_that_is_too_much_is_refused_whole() {
    let mut stand = Stand::new(3);
    let refused = stand.send(400_000).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    stand.limits.atomic_bytes_max = 2 * 128;
    let refused = stand.send(10).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    stand.limits.atomic_bytes_max = 3 * 128;
    let (answer, _) = stand.send(10).unwrap();
    assert!(matches!(answer, Answer::Now(Outcome::Accepted(SequenceNumber(1)), Gate::Commit)));
}

/// TOP-09, TOP-24: a rule applies to what comes after it.
#[test]
fn a_rule_applies_to_what_is_published_afterwards() {
    let mut stand = Stand::new(1);
    let (_, before) = stand.send(10).unwrap();
    let rule = RuleDescription::new("$Default", Filter::False, stand.now);
    let command = RuleCommand::Update(Box::new(rule));
    stand
        .apply(Command::OfTopic(TopicCommand::InSubscription {
            subscription: EntityId(2),
            command,
        }))
        .unwrap();
    let (_, after) = stand.send(10).unwrap();
    assert_eq!((copies(&before).len(), copies(&after).len()), (1, 0));
}
