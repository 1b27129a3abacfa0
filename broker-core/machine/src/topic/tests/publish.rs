//! Results of a publish.

use super::*;
use crate::record::{ContentOp, Record};

/// TOP-07, TOP-10, DESIGN D8: a publish is one change. Its records have the content once, and the
/// quota counts it for each copy.
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

/// TOP-10, QUO-03, QUO-07: a publish that exceeds the quota or an atomic step is refused and
/// changes nothing.
#[test]
fn oversized_publish_is_refused_and_changes_nothing() {
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

/// TOP-09, TOP-24: a rule applies to messages published after it.
#[test]
fn rule_applies_to_later_publishes() {
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

/// TOP-29, TOP-07, TOP-10: the copy of a catch-all is stored by the change of the publish, and
/// counted.
#[test]
fn a_catch_all_gets_its_copy_by_the_same_change() {
    let mut stand = Stand::new(1);
    stand.add_catch_all(9);
    let of =
        |step: &StepOutput| copies(step).iter().map(|copy| copy.subscription.0).collect::<Vec<_>>();
    let (_, selected) = stand.send(1_000).unwrap();
    assert_eq!(of(&selected), [2]);
    stand.topic.matcher.remove_rule(EntityId(2), "$default").unwrap();
    let (_, caught) = stand.send(1_000).unwrap();
    assert_eq!(of(&caught), [9]);
    assert_eq!(caught.bytes_added, u64::from(copies(&caught)[0].slot.size));
    assert_eq!(caught.bytes_added, selected.bytes_added);
}
