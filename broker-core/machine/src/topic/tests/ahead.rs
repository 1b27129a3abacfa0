//! Judging a command ahead, in slices.

use super::*;
use crate::rule::CorrelationFilter;

/// SQL-41, QUO-09: a publish with one slow correlation filter is judged in slices. Their number
/// follows from the steps: four for each property of the message and for each property of the
/// filter.
#[test]
fn one_correlation_filter_is_judged_in_slices() {
    let mut stand = Stand::new(1);
    let mut filter = CorrelationFilter::default();
    let mut message = Message::new("x");
    for number in 0..7_000 {
        if number < stand.limits.rule_property_count_max {
            filter = filter.and_property(format!("p{number}"), 1);
        }
        message = message.with_application_property(format!("p{number}"), 1);
    }
    let rule = RuleDescription::new("r", Filter::Correlation(filter), stand.now);
    let command = RuleCommand::Create(Box::new(rule));
    let subscription = EntityId(2);
    stand.apply(Command::OfTopic(TopicCommand::InSubscription { subscription, command })).unwrap();
    let content = message.encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    let command = Command::Send { message: InboundMessage { content, envelope } };
    let mut slices = 1;
    while !stand.prepare(&command) {
        slices += 1;
    }
    // Lookup and comparison: 2 x 256 x 4 x 7,000 steps in slices of 2^20.
    assert!((13..=18).contains(&slices), "{slices} slices");
    let (_, step) = stand.apply(command).unwrap();
    assert_eq!(copies(&step).len(), 1);
}

/// TOP-17, QUO-09: many rules of a new subscription are judged in slices. The subscription is
/// created with all its rules, or not at all if one is invalid.
#[test]
fn many_rules_of_a_new_subscription_are_judged_in_slices() {
    let mut stand = Stand::new(0);
    let create = |id: u64, wrong: Option<usize>| {
        let rule = |number: usize| {
            let text = if wrong == Some(number) { "a = " } else { "a = 1" };
            let at = Timestamp::from_unix_ms(5);
            RuleDescription::new(format!("r{number}"), Filter::sql(text), at)
        };
        let description =
            SubscriptionDescription::new("events", id.to_string(), &Limits::of(Tier::Premium));
        Command::OfTopic(TopicCommand::CreateSubscription {
            id: EntityId(id),
            description: Box::new(description),
            rules: (0..1_100).map(rule).collect(),
        })
    };
    for (id, wrong, slices_due) in [(2, None, 18), (3, Some(0), 1), (4, Some(700), 11)] {
        let command = create(id, wrong);
        let mut slices = 1;
        while !stand.prepare(&command) {
            slices += 1;
        }
        assert_eq!(slices, slices_due, "{wrong:?}");
        match (stand.apply(command), wrong) {
            (Ok((_, step)), None) => {
                let [Change::OfTopic(TopicChange::SubscriptionCreated { rules, .. })] =
                    step.changes.as_slice()
                else {
                    panic!("{:?}", step.changes)
                };
                let at_once = rules.iter().all(|rule| rule.description().created_at == stand.now);
                assert!(rules.len() == 1_100 && at_once);
            }
            (Err(refused), Some(_)) => assert_eq!(refused.condition(), Condition::ArgumentError),
            (other, _) => panic!("{wrong:?}: {:?}", other.map(|_| ())),
        }
    }
    assert_eq!(stand.topic.memory_use().rules, 1_100);
    // A list is bounded, for any requested number.
    let command = RuleCommand::List { skip: 50, top: usize::MAX };
    let list = TopicCommand::InSubscription { subscription: EntityId(2), command };
    match stand.apply(Command::OfTopic(list)).unwrap().0 {
        Answer::Now(Outcome::Rules(rules), _) => assert_eq!(rules.len(), 1_000),
        other => panic!("{other:?}"),
    }
}

/// TOP-05, TOP-07: a slow publish is judged in slices, and results in the same single change as
/// without slices.
#[test]
fn a_heavy_publish_is_judged_in_slices_and_is_one_change() {
    let mut stand = Stand::with_heavy_rules(12);
    let send = Command::Send { message: stand.heavy() };
    let (_, at_once) = stand.apply(send.clone()).unwrap();
    let slices = stand.slices(&send);
    assert!(slices >= 6, "{slices} slices");
    let before = stand.topic.last_sequence;
    let (_, in_slices) = stand.apply(send).unwrap();
    assert_eq!(stand.topic.last_sequence, before.next());
    let of = |step: &StepOutput| {
        let copies = copies(step).iter();
        copies.map(|copy| (copy.subscription, copy.overlays.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&at_once), of(&in_slices));
    // The rule that selects everything, and half of the others.
    assert_eq!(copies(&in_slices).len(), 7);
    assert!(stand.topic.ahead.is_none());
}

/// TOP-07, SND-29: the same for a batch, with one scheduled message that is judged later.
#[test]
fn a_heavy_batch_is_judged_in_slices_and_is_one_change() {
    let mut stand = Stand::with_heavy_rules(4);
    let mut messages = vec![stand.heavy(), stand.heavy(), stand.heavy()];
    messages[1].envelope.scheduled_enqueue_time = Some(Timestamp::NEVER);
    let batch = Command::SendBatch { messages };
    assert!(stand.slices(&batch) >= 4);
    let (_, step) = stand.apply(batch).unwrap();
    let count = step.changes.iter().filter(|change| matches!(change, Change::OfTopic(_))).count();
    assert_eq!((step.changes.len(), count), (3, 2));
}

/// TOP-25, TOP-30: with slow rules a catch-all is selected and explained in slices, with the same
/// result.
#[test]
fn a_catch_all_behind_heavy_rules_is_judged_in_slices() {
    let mut stand = Stand::with_heavy_rules(12);
    stand.add_catch_all(9);
    let message = stand.heavy();
    let explain = Stand::explain(9, message.clone());
    for selects in [true, false] {
        let expected = match selects {
            true => Verdict::NotEvaluated("0".to_owned()),
            false => Verdict::Matches,
        };
        stand.topic.ahead = None;
        assert_eq!(stand.explained(9, message.clone()), std::slice::from_ref(&expected), "at once");
        assert!(stand.slices(&explain) >= 6);
        assert_eq!(stand.explained(9, message.clone()), [expected], "in slices");
        let send = Command::Send { message: message.clone() };
        assert!(stand.slices(&send) >= 6);
        let (_, step) = stand.apply(send).unwrap();
        assert_eq!(copies(&step).iter().any(|copy| copy.subscription.0 == 9), !selects);
        // From now on no rule of the other subscription selects the message.
        for number in 0..12 {
            let name = format!("r{number}");
            let text = format!("p LIKE '%{}_c%'", "a".repeat(950));
            let rule = RuleDescription::new(name, Filter::sql(&*text), stand.now);
            stand.topic.matcher.update_rule(EntityId(2), rule, &stand.limits).unwrap();
        }
        stand.topic.matcher.remove_rule(EntityId(2), "$default").ok();
    }
}

/// A light publish is not judged ahead.
#[test]
fn a_light_publish_is_judged_when_it_is_applied() {
    let mut stand = Stand::new(3);
    let content = Message::new("x").encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    let send = Command::Send { message: InboundMessage { content, envelope } };
    assert_eq!(stand.slices(&send), 1);
    assert!(stand.topic.ahead.is_none());
}

/// A publish with too many copies or steps is refused completely, and the rejection names the
/// limit.
#[test]
fn a_publish_beyond_its_bounds_is_refused_and_names_the_limit() {
    let mut stand = Stand::with_heavy_rules(4);
    let send = Command::Send { message: stand.heavy() };
    stand.limits.publish_copy_count_max = 2;
    let refused = stand.apply(send.clone()).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    assert!(refused.detail().contains("publish_copy_count_max"), "{refused}");
    stand.limits.publish_copy_count_max = 3;
    stand.limits.publish_step_count_max = 2_000_000;
    stand.slices(&send);
    let refused = stand.apply(send.clone()).map(|_| ()).unwrap_err();
    assert!(refused.detail().contains("publish_step_count_max"), "{refused}");
    stand.limits.publish_step_count_max = u64::MAX;
    stand.slices(&send);
    stand.apply(send).unwrap();
}

/// QUO-10: a batch is judged only up to the bytes of one atomic step, and the rejection names the
/// limit.
#[test]
fn batch_is_judged_up_to_the_bytes_of_one_step() {
    let mut stand = Stand::with_heavy_rules(4);
    let one = Command::Send { message: stand.heavy() };
    stand.slices(&one);
    let bytes = stand.topic.memory_use().judged_bytes;
    // Three copies.
    assert!(bytes >= 3 * 128, "{bytes}");
    stand.apply(one).unwrap();
    assert_eq!(stand.topic.memory_use().judged_bytes, 0);
    let batch = Command::SendBatch {
        messages: vec![stand.heavy(), stand.heavy(), stand.heavy(), stand.heavy()],
    };
    let limits = stand.limits.clone();
    let (mut atomic, mut copies) = (limits.clone(), limits.clone());
    atomic.atomic_bytes_max = bytes;
    copies.publish_copy_count_max = 5;
    for (limits, name) in [(atomic, "`atomic_bytes_max`"), (copies, "`publish_copy_count_max`")] {
        stand.limits = limits;
        stand.slices(&batch);
        assert_eq!(stand.topic.memory_use().judged_bytes, 2 * bytes, "{name}");
        let refused = stand.apply(batch.clone()).map(|_| ()).unwrap_err();
        assert_eq!(refused.condition(), Condition::QuotaExceeded);
        assert!(refused.detail().contains(name), "{refused}");
    }
    stand.limits = limits;
    stand.slices(&batch);
    stand.apply(batch).unwrap();
}

/// QUO-10: when all topics together have reached the limit of judged bytes, further judging is
/// refused unless it is small.
#[test]
fn judged_bytes_of_all_topics_are_bounded() {
    // Each message becomes two copies with 32,000 bytes of properties, and one unchanged copy.
    let mut stand = Stand::with_heavy_rules_that(4, "SET x = p");
    let batch = Command::SendBatch { messages: vec![stand.heavy(), stand.heavy(), stand.heavy()] };
    stand.left.judged_bytes = 1;
    while stand.topic.memory_use().judged_bytes <= 64 << 10 {
        assert!(!stand.prepare(&batch), "there are three messages");
    }
    stand.left.judged_bytes = 0;
    assert!(stand.prepare(&batch));
    let refused = stand.apply(batch.clone()).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::ServerBusy);
    assert!(refused.detail().contains("`broker_judged_bytes_max`"), "{refused}");
    assert_eq!(stand.topic.memory_use().judged_bytes, 0);
    let one = Command::Send { message: stand.heavy() };
    assert!(stand.slices(&one) > 1);
    stand.apply(one).unwrap();
    stand.left = RemainingCapacity::ALL;
    stand.slices(&batch);
    stand.apply(batch).unwrap();
}
