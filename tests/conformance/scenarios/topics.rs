//! Files 13 and 09: topics, subscriptions and rules.

mod rules;

use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{RetryKind, SubscriptionUpdate, TopicUpdate};
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, Verdict};

pub use self::rules::*;
use super::*;
use crate::subject::{Answer, Refusal, Subject};
use crate::subjects::Transport;

const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";
const BILLING: &str = "events/Subscriptions/billing";
const AUDIT_DLQ: &str = "events/Subscriptions/audit/$DeadLetterQueue";

/// The transport as an administrator.
fn admin(s: &Stage) -> &dyn Subject {
    &**s
}

/// Creates a topic with two subscriptions that get all messages.
async fn open(s: &Stage) -> &dyn Subject {
    let admin = admin(s);
    admin.create_topic(EVENTS).await.unwrap();
    admin.create_subscription(EVENTS, "audit").await.unwrap();
    admin.create_subscription(EVENTS, "billing").await.unwrap();
    admin
}

/// Creates a topic with one subscription with these properties and rules.
async fn open_with(
    s: &Stage,
    properties: SubscriptionUpdate,
    rules: Vec<RuleDescription>,
) -> &dyn Subject {
    let admin = admin(s);
    admin.create_topic(EVENTS).await.unwrap();
    admin.create_subscription_with(EVENTS, "audit", properties, rules).await.unwrap();
    admin
}

fn sql(name: &str, text: &str) -> RuleDescription {
    RuleDescription::new(name, Filter::sql(text), Timestamp::NONE)
}

fn all(name: &str) -> RuleDescription {
    RuleDescription::new(name, Filter::True, Timestamp::NONE)
}

fn by_subject(name: &str, subject: &str) -> RuleDescription {
    let filter =
        CorrelationFilter { subject: Some(subject.into()), ..CorrelationFilter::default() };
    RuleDescription::new(name, Filter::Correlation(filter), Timestamp::NONE)
}

fn priced(text: &str, price: i32) -> Message {
    message(text).with_application_property("price", Value::I32(price))
}

#[track_caller]
fn fails<T>(result: Answer<T>, condition: &str) -> Refusal {
    refused(result.map(|_| ()), condition)
}

async fn audit(s: &Stage) -> DescribedSubscription {
    admin(s).subscription(AUDIT).await.unwrap()
}

async fn events(s: &Stage) -> DescribedTopic {
    admin(s).topic(EVENTS).await.unwrap()
}

fn names(rules: &[RuleDescription]) -> Vec<&str> {
    rules.iter().map(|rule| &*rule.name).collect()
}

/// TOP-01, TOP-08, TOP-12, DLQ-33, MSG-15, MSG-16
pub async fn a_published_message_is_in_every_subscription_when_it_is_acknowledged(s: &Stage) {
    let admin = open(s).await;
    assert_eq!(s.put(EVENTS, "first").await, 1);
    admin.create_subscription(EVENTS, "late").await.unwrap();
    assert_eq!(s.put(EVENTS, "second").await, 2);
    let seen = s.take_all(AUDIT).await;
    assert_eq!(
        (texts(&seen), sequences(&seen)),
        (vec!["first".into(), "second".into()], vec![1, 2])
    );
    let late = s.take("events/Subscriptions/late").await;
    assert_eq!((late.text(), late.sequence, late.enqueued_sequence), ("second", 1, 2));
    s.complete(AUDIT, &seen[0]).await;
    s.abandon(AUDIT, &seen[1]).await;
    assert_eq!(s.drain(BILLING).await, ["first", "second"]);
    assert_eq!(texts(&s.take_all(AUDIT).await), ["second"]);
    let described = events(s).await;
    assert_eq!((described.subscription_count, described.last_sequence.0), (3, 2));
}

/// TOP-06, SND-27, CNT-04
pub async fn an_unselected_message_is_accepted_and_dropped(s: &Stage) {
    let admin = open(s).await;
    admin.delete_rule(AUDIT, "$default").await.unwrap();
    admin.delete_subscription(BILLING).await.unwrap();
    assert_eq!(s.put(EVENTS, "nobody").await, 1);
    s.assert_empty(AUDIT).await;
    assert_eq!(events(s).await.size_bytes, 0);
    admin.create_rule(AUDIT, all("again")).await.unwrap();
    assert_eq!(s.put(EVENTS, "somebody").await, 2);
    let seen = s.take(AUDIT).await;
    assert_eq!((seen.sequence, seen.enqueued_sequence), (1, 2));
    let s = s.restart().await;
    assert_eq!(s.put(EVENTS, "third").await, 3);
    s.stop().await;
}

/// TOP-10, CNT-04, CNT-08, QUO-04, FND-11
pub async fn the_quota_of_a_topic_counts_every_copy(s: &Stage) {
    let admin = admin(s);
    let one = TopicUpdate { max_size_in_megabytes: Some(1), ..TopicUpdate::default() };
    admin.create_topic_with(EVENTS, one).await.unwrap();
    admin.create_subscription(EVENTS, "audit").await.unwrap();
    admin.create_subscription(EVENTS, "billing").await.unwrap();
    s.send(EVENTS, sized(MIB / 4, "a")).await.unwrap();
    assert_eq!(events(s).await.size_bytes, MIB / 2);
    let batch = vec![sized(MIB / 8, "b"), sized(MIB / 4, "c")];
    refused(s.send_batch(EVENTS, batch).await, "QuotaExceeded");
    let refusal = refused(s.send(EVENTS, sized(MIB / 4 + 1, "d")).await, "QuotaExceeded");
    assert!(refusal.text.contains("524288") && refusal.text.contains("1048576"));
    s.send(EVENTS, sized(MIB / 4, "e")).await.unwrap();
    refused(s.send(EVENTS, sized(300, "f")).await, "QuotaExceeded");
    let seen = s.take(AUDIT).await;
    s.complete(AUDIT, &seen).await;
    s.send(EVENTS, sized(MIB / 8, "g")).await.unwrap();
    admin.delete_subscription(BILLING).await.unwrap();
    assert_eq!(events(s).await.size_bytes, MIB / 4 + MIB / 8);
    s.send(EVENTS, sized(MIB / 2 + MIB / 8, "h")).await.unwrap();
    refused(s.send(EVENTS, sized(300, "i")).await, "QuotaExceeded");
    let s = s.restart().await;
    assert_eq!(s.topic(EVENTS).await.unwrap().size_bytes, MIB);
    refused(s.send(EVENTS, sized(300, "j")).await, "QuotaExceeded");
    s.stop().await;
}

/// SCH-02, SCH-03, SCH-05, SCH-10, TOP-09, MSG-15, CNT-04
pub async fn a_scheduled_message_meets_the_rules_of_its_instant(s: &Stage) {
    let admin = open(s).await;
    let at = s.now().plus(minutes(5));
    assert_eq!(s.schedule(EVENTS, priced("x", 4), at).await.unwrap(), 1);
    let cancelled = s.schedule(EVENTS, message("cancelled"), at).await.unwrap();
    let described = events(s).await;
    assert_eq!((described.scheduled, described.size_bytes > 0), (2, true));
    s.cancel(EVENTS, &[cancelled]).await.unwrap();
    refused(s.cancel(EVENTS, &[cancelled]).await, "MessageNotFound");
    s.assert_empty(AUDIT).await;
    admin.delete_rule(AUDIT, "$Default").await.unwrap();
    admin.create_rule(AUDIT, sql("new", "price = 4").with_action("SET price = 5")).await.unwrap();
    let s = s.restart().await;
    s.advance(minutes(5)).await;
    let seen = s.take(AUDIT).await;
    assert_eq!((seen.sequence, seen.enqueued_sequence, seen.enqueued_at), (1, 3, at));
    assert_eq!(seen.property("price"), Some(&Value::I32(5)));
    assert_eq!(seen.message.scheduled_enqueue_time, Some(at));
    assert_eq!(s.take(BILLING).await.property("price"), Some(&Value::I32(4)));
    refused(s.cancel(EVENTS, &[1]).await, "MessageNotFound");
    assert_eq!(s.topic(EVENTS).await.unwrap().scheduled, 0);
    s.stop().await;
}

/// DUP-01, DUP-02, DUP-06, DUP-08, DUP-09, DUP-12
pub async fn duplicates_are_dropped_at_the_topic_and_never_in_a_subscription(s: &Stage) {
    let admin = admin(s);
    let detects =
        TopicUpdate { requires_duplicate_detection: Some(true), ..TopicUpdate::default() };
    admin.create_topic_with(EVENTS, detects).await.unwrap();
    let same = all("same").with_action("SET sys.MessageId = 'same'");
    admin
        .create_subscription_with(EVENTS, "audit", SubscriptionUpdate::default(), vec![same])
        .await
        .unwrap();
    let of = |id: &str| message(id).with_message_id(id);
    assert_eq!(s.send(EVENTS, of("a")).await.unwrap(), 1);
    assert_eq!(s.send(EVENTS, of("a")).await.unwrap(), 0);
    let batch = vec![of("b"), of("a"), of("b"), of("c")];
    assert_eq!(s.send_batch(EVENTS, batch).await.unwrap(), [2, 0, 0, 3]);
    let at = s.now().plus(minutes(1));
    assert_eq!(s.schedule(EVENTS, of("d"), at).await.unwrap(), 4);
    assert_eq!(s.schedule(EVENTS, of("d"), at).await.unwrap(), 4);
    assert_eq!(s.send(EVENTS, of("d")).await.unwrap(), 0);
    let s = s.restart().await;
    assert_eq!(s.send(EVENTS, of("c")).await.unwrap(), 0);
    let seen = s.take_all(AUDIT).await;
    assert_eq!(texts(&seen), ["a", "b", "c"]);
    assert!(seen.iter().all(|one| one.message.message_id == Some("same".into())));
    s.advance(minutes(10)).await;
    assert_eq!(s.send(EVENTS, of("a")).await.unwrap(), 6);
    s.stop().await;
}

/// DLQ-21, SND-26, ACT-09
pub async fn a_copy_without_session_goes_to_the_dead_letter_queue(s: &Stage) {
    let properties =
        SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
    let rules = vec![
        sql("plain", "user.kind IS NULL"),
        sql("removed", "kind = 'removed'").with_action("REMOVE sys.SessionId"),
        sql("given", "kind = 'given'").with_action("SET sys.SessionId = 'given'"),
    ];
    open_with(s, properties, rules).await;
    s.put(EVENTS, "none").await;
    s.send(EVENTS, message("own").with_session_id("own")).await.unwrap();
    for kind in ["removed", "given"] {
        let message = message(kind).with_session_id("own");
        s.send(EVENTS, message.with_application_property("kind", kind)).await.unwrap();
    }
    let dead = s.take_all(AUDIT_DLQ).await;
    assert_eq!(texts(&dead), ["none", "removed"]);
    assert!(dead.iter().all(|one| one.reason() == Some("Session ID is null.")));
    for session in ["own", "given"] {
        // HTTP has no link to hold a session with.
        if s.transport == Transport::Http {
            let receiver = s.in_process().accept_session(AUDIT, session).await.unwrap();
            let received = receiver.receive_many(10, TimeSpan::ZERO).await.unwrap();
            assert_eq!(received.len(), 1);
            assert_eq!(received[0].body(), session.as_bytes());
            receiver.close().await.unwrap();
            continue;
        }
        let (mode, wait) = (ReceiveMode::PeekLock, TimeSpan::ZERO);
        let receiver = s.accept(AUDIT, Some(session), mode, wait).await.unwrap();
        assert_eq!(texts(&receiver.receive(10, wait).await.unwrap()), [session]);
        receiver.close().await.unwrap();
    }
    let counts = audit(s).await.counts;
    assert_eq!((counts.active, counts.dead_letter), (2, 2));
}

/// EXP-06, EXP-07, EXP-13, EXP-14, ACT-09
pub async fn the_lowest_time_to_live_counts(s: &Stage) {
    let admin = admin(s);
    let topic =
        TopicUpdate { default_message_time_to_live: Some(seconds(20)), ..TopicUpdate::default() };
    admin.create_topic_with(EVENTS, topic).await.unwrap();
    for (name, span) in [("audit", 10), ("billing", 30)] {
        let properties = SubscriptionUpdate {
            default_message_time_to_live: Some(seconds(span)),
            ..SubscriptionUpdate::default()
        };
        admin.create_subscription_with(EVENTS, name, properties, vec![]).await.unwrap();
    }
    s.put(EVENTS, "none").await;
    for span in [5, 15, 60] {
        let own = message(&span.to_string()).with_time_to_live(seconds(span));
        s.send(EVENTS, own).await.unwrap();
    }
    let left = |seen: &[Seen]| {
        let spans = seen.iter().map(|one| one.expires_at.unwrap().since(one.enqueued_at));
        spans.collect::<Vec<_>>()
    };
    let peeked = s.look(AUDIT).await;
    assert_eq!(peeked[0].expires_at, None);
    assert_eq!(left(&peeked[1..]), [seconds(5), seconds(10), seconds(10)]);
    let seen = s.take_all(AUDIT).await;
    assert_eq!(left(&seen), [seconds(10), seconds(5), seconds(10), seconds(10)]);
    assert_eq!(left(&s.take_all(BILLING).await), [20, 5, 15, 20].map(seconds));
    for one in seen {
        s.abandon(AUDIT, &one).await;
    }
    let shorter =
        TopicUpdate { default_message_time_to_live: Some(seconds(2)), ..TopicUpdate::default() };
    admin.update_topic(EVENTS, shorter).await.unwrap();
    s.advance(seconds(2)).await;
    assert_eq!(s.drain(AUDIT).await, ["5", "15", "60"]);
}

/// ENT-21, ENT-22, ENT-23, ENT-24, ENT-26
pub async fn statuses_block_sends_and_receives(s: &Stage) {
    let admin = open(s).await;
    s.put(EVENTS, "first").await;
    for status in [EntityStatus::Disabled, EntityStatus::SendDisabled] {
        let update = TopicUpdate { status: Some(status), ..TopicUpdate::default() };
        admin.update_topic(EVENTS, update).await.unwrap();
        refused(s.send(EVENTS, message("no")).await, "EntityDisabled");
        // AMQP sends no request for an empty batch (AMQP-42).
        if s.transport != Transport::Amqp {
            refused(s.send_batch(EVENTS, vec![]).await, "EntityDisabled");
        }
        let seen = s.take(AUDIT).await;
        s.abandon(AUDIT, &seen).await;
    }
    let of_topic = |status| TopicUpdate { status: Some(status), ..TopicUpdate::default() };
    fails(
        admin.update_topic(EVENTS, of_topic(EntityStatus::ReceiveDisabled)).await,
        "ArgumentError",
    );
    admin.update_topic(EVENTS, of_topic(EntityStatus::Active)).await.unwrap();
    let of = |status| SubscriptionUpdate { status: Some(status), ..SubscriptionUpdate::default() };
    fails(admin.update_subscription(AUDIT, of(EntityStatus::SendDisabled)).await, "ArgumentError");
    for status in [EntityStatus::Disabled, EntityStatus::ReceiveDisabled] {
        admin.update_subscription(AUDIT, of(status)).await.unwrap();
        s.put(EVENTS, status.name()).await;
        let received = s.receive(AUDIT, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await;
        refused(received, "EntityDisabled");
        let received = s.receive(AUDIT_DLQ, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await;
        refused(received, "EntityDisabled");
    }
    admin.update_subscription(AUDIT, of(EntityStatus::Active)).await.unwrap();
    assert_eq!(s.drain(AUDIT).await, ["first", "Disabled", "ReceiveDisabled"]);
}

/// ADR-01, ADR-12, ADR-14, ENT-13, ENT-30, RCV-30, PEK-11, SND-20, SND-21, DLQ-02, DLQ-32
pub async fn paths_identify_topics_and_subscriptions(s: &Stage) {
    let admin = open(s).await;
    s.open_queue(ORDERS).await;
    fails(admin.create_topic("ORDERS").await, "EntityAlreadyExists");
    refused(s.create("Events", QueueUpdate::default()).await, "EntityAlreadyExists");
    fails(admin.create_subscription(EVENTS, "AUDIT").await, "EntityAlreadyExists");
    fails(admin.create_subscription(ORDERS, "audit").await, "EntityNotFound");
    fails(admin.create_subscription("none", "audit").await, "EntityNotFound");
    fails(admin.create_subscription(EVENTS, "a/b").await, "ArgumentError");
    fails(admin.create_subscription(EVENTS, "$a").await, "ArgumentError");
    if s.transport != Transport::Http {
        // Over HTTP an empty segment is no resource.
        fails(admin.create_subscription(EVENTS, "").await, "ArgumentOutOfRange");
    }
    fails(admin.create_subscription(EVENTS, &"x".repeat(51)).await, "ArgumentOutOfRange");
    for wait in [TimeSpan::ZERO, seconds(1)] {
        refused(s.receive(EVENTS, ReceiveMode::PeekLock, 1, wait).await, "InvalidOperation");
    }
    refused(s.peek(EVENTS, 0, 1).await, "InvalidOperation");
    for path in [AUDIT, AUDIT_DLQ] {
        refused(s.send(path, message("x")).await, "InvalidOperation");
        refused(s.send_batch(path, vec![message("x")]).await, "InvalidOperation");
    }
    refused(s.take_from("events/$DeadLetterQueue").await, "EntityNotFound");
    refused(s.take_from("events/Subscriptions/none").await, "EntityNotFound");
    refused(s.describe(EVENTS).await, "EntityNotFound");
    refused(s.describe(AUDIT).await, "EntityNotFound");
    fails(admin.topic(ORDERS).await, "EntityNotFound");
    fails(admin.subscription(AUDIT_DLQ).await, "InvalidOperation");
    fails(admin.delete_subscription(AUDIT_DLQ).await, "InvalidOperation");
    fails(admin.delete(EVENTS).await, "EntityNotFound");
    fails(admin.delete_topic(ORDERS).await, "EntityNotFound");
    admin.create_topic("more/Events").await.unwrap();
    assert_eq!(admin.list(0, 10).await.unwrap(), ["orders"]);
    assert_eq!(admin.topic_paths(0, 10).await.unwrap(), ["events", "more/Events"]);
    assert_eq!(admin.topic_paths(1, 10).await.unwrap(), ["more/Events"]);
    let paths = admin.subscription_paths("EVENTS", 0, 10).await.unwrap();
    assert_eq!(paths, [AUDIT, BILLING]);
    assert_eq!(admin.subscription_paths(EVENTS, 1, 10).await.unwrap(), [BILLING]);
    s.put("EVENTS", "x").await;
    assert_eq!(s.drain("Events/subscriptions/AUDIT").await, ["x"]);
    let described = admin.subscription(AUDIT).await.unwrap().description;
    assert_eq!((&*described.topic, &*described.name), (EVENTS, "audit"));
}

/// ENT-14, ENT-15
pub async fn a_deleted_topic_deletes_its_subscriptions(s: &Stage) {
    let admin = open(s).await;
    s.put(EVENTS, "x").await;
    s.advance(seconds(1)).await;
    s.drain(AUDIT).await;
    s.drain(BILLING).await;
    s.advance(seconds(1)).await;
    let wait = async |path| s.receive(path, ReceiveMode::PeekLock, 1, minutes(1)).await;
    let waits = async { tokio::join!(wait(AUDIT), wait(BILLING)) };
    let deletes = async {
        s.until_subscription_is_used(AUDIT).await;
        s.until_subscription_is_used(BILLING).await;
        admin.delete_topic(EVENTS).await.unwrap();
    };
    let ((first, second), ()) = tokio::join!(waits, deletes);
    for ended in [first, second] {
        refused(ended, "EntityNotFound");
    }
    for path in [EVENTS, AUDIT, BILLING, AUDIT_DLQ] {
        refused(s.take_from(path).await, "EntityNotFound");
    }
    open(s).await;
    s.assert_empty(AUDIT).await;
    assert_eq!(s.put(EVENTS, "new").await, 1);
    admin.delete_subscription(AUDIT).await.unwrap();
    let s = s.restart().await;
    assert_eq!(s.topic_paths(0, 10).await.unwrap(), [EVENTS]);
    assert_eq!(s.subscription_paths(EVENTS, 0, 10).await.unwrap(), [BILLING]);
    assert_eq!(s.drain(BILLING).await, ["new"]);
    s.stop().await;
}

/// TMP-10, TMP-11, TMP-13, TMP-19, CNT-09
pub async fn idle_subscriptions_are_deleted_alone_and_idle_topics_with_all(s: &Stage) {
    let admin = admin(s);
    let idle = |span| TopicUpdate { auto_delete_on_idle: Some(span), ..TopicUpdate::default() };
    admin.create_topic_with(EVENTS, idle(minutes(20))).await.unwrap();
    for (name, span) in [("audit", 6), ("billing", 60)] {
        let properties = SubscriptionUpdate {
            auto_delete_on_idle: Some(minutes(span)),
            ..SubscriptionUpdate::default()
        };
        admin.create_subscription_with(EVENTS, name, properties, vec![]).await.unwrap();
    }
    s.advance(minutes(5)).await;
    admin.create_rule(AUDIT, all("new")).await.unwrap();
    s.advance(minutes(5)).await;
    s.put(EVENTS, "copies are no use").await;
    assert_eq!(audit(s).await.counts.active, 1);
    s.advance(minutes(2)).await;
    fails(admin.subscription(AUDIT).await, "EntityNotFound");
    let seen = s.take(BILLING).await;
    assert_eq!(events(s).await.accessed_at, s.now());
    s.advance(minutes(19)).await;
    assert_eq!(admin.topic(EVENTS).await.unwrap().subscription_count, 1);
    refused(s.settle(BILLING, seen.token(), Decision::Complete).await, "MessageLockLost");
    let from = s.now();
    s.look(BILLING).await;
    s.advance(minutes(19)).await;
    assert_eq!(events(s).await.accessed_at, from);
    s.advance(minutes(2)).await;
    fails(admin.topic(EVENTS).await, "EntityNotFound");
    fails(admin.subscription(BILLING).await, "EntityNotFound");
}

/// TMP-11, TMP-16: each use of a subscription restarts its own time.
pub async fn each_use_of_a_subscription_ends_its_idleness(s: &Stage) {
    let admin = admin(s);
    let idle = || SubscriptionUpdate {
        auto_delete_on_idle: Some(minutes(10)),
        ..SubscriptionUpdate::default()
    };
    admin.create_topic(EVENTS).await.unwrap();
    admin.create_subscription_with(EVENTS, "audit", idle(), vec![]).await.unwrap();
    s.put(EVENTS, "a").await;
    let step = minutes(9);
    s.advance(step).await;
    let seen = s.take(AUDIT).await;
    s.complete(AUDIT, &seen).await;
    s.advance(step).await;
    s.assert_empty(AUDIT).await;
    s.advance(step).await;
    admin.update_subscription(AUDIT, idle()).await.unwrap();
    s.advance(step).await;
    admin.create_rule(AUDIT, all("new")).await.unwrap();
    s.advance(step).await;
    s.look(AUDIT).await;
    s.advance(step).await;
    assert!(admin.subscription(AUDIT).await.is_ok());
    s.advance(minutes(2)).await;
    fails(admin.subscription(AUDIT).await, "EntityNotFound");
}

/// TMP-10, TMP-16: each use of a topic or of its subscriptions restarts its time.
pub async fn each_use_of_a_topic_ends_its_idleness(s: &Stage) {
    let admin = admin(s);
    let idle = || TopicUpdate { auto_delete_on_idle: Some(minutes(10)), ..TopicUpdate::default() };
    admin.create_topic_with(EVENTS, idle()).await.unwrap();
    admin.create_subscription(EVENTS, "audit").await.unwrap();
    let step = minutes(9);
    s.advance(step).await;
    s.put(EVENTS, "a").await;
    s.advance(step).await;
    admin.update_topic(EVENTS, idle()).await.unwrap();
    s.advance(step).await;
    let at = s.now().plus(days(1));
    let scheduled = s.schedule(EVENTS, message("b"), at).await.unwrap();
    s.cancel(EVENTS, &[scheduled]).await.unwrap();
    s.advance(step).await;
    s.look(AUDIT).await;
    s.advance(step).await;
    admin.update_subscription(AUDIT, SubscriptionUpdate::default()).await.unwrap();
    s.advance(step).await;
    assert!(admin.topic(EVENTS).await.is_ok());
    s.advance(minutes(2)).await;
    fails(admin.topic(EVENTS).await, "EntityNotFound");
}

/// QUO-01, RCV-22
pub async fn subscriptions_rules_and_receivers_of_a_topic_are_limited(s: &Stage) {
    let admin = open(s).await;
    fails(admin.create_subscription(EVENTS, "third").await, "QuotaExceeded");
    for number in 0..2 {
        admin.create_rule(AUDIT, sql(&format!("sql{number}"), "1=1")).await.unwrap();
    }
    fails(admin.create_rule(BILLING, sql("one more", "1=1")).await, "ArgumentError");
    fails(admin.create_rule(BILLING, sql("more", "1=1")).await, "QuotaExceeded");
    admin.create_rule(BILLING, by_subject("third", "x")).await.unwrap();
    fails(admin.create_rule(AUDIT, by_subject("fourth", "x")).await, "QuotaExceeded");
    let other = s.another().await;
    let wait = async |path| s.receive(path, ReceiveMode::PeekLock, 1, minutes(1)).await;
    let waits = async { tokio::join!(wait(AUDIT), wait(BILLING)) };
    let more = async {
        s.until_subscription_is_used(AUDIT).await;
        s.until_subscription_is_used(BILLING).await;
        let received = other.receive(BILLING, ReceiveMode::PeekLock, 1, minutes(1)).await;
        fails(received, "QuotaExceeded");
        s.put(EVENTS, "x").await;
    };
    s.advance(seconds(1)).await;
    let ((first, second), ()) = tokio::join!(waits, more);
    assert_eq!((first.unwrap().len(), second.unwrap().len()), (1, 1));
    other.stop().await;
}

/// Low limits of subscriptions, rules and receivers.
pub fn few() -> Setup {
    let mut setup = Setup::default();
    setup.settings.limits.subscription_count_max = 2;
    setup.settings.limits.rule_sql_count_max = 2;
    setup.settings.limits.rule_correlation_count_max = 3;
    setup.settings.limits.receiver_count_max = 2;
    setup
}

/// SND-29, SND-31, TOP-05, TOP-07
pub async fn a_batch_is_published_whole_and_in_order(s: &Stage) {
    open(s).await;
    let batch = ["a", "b", "c"].map(message).to_vec();
    assert_eq!(s.send_batch(EVENTS, batch).await.unwrap(), [1, 2, 3]);
    let invalid = message("y").with_message_id("x".repeat(129));
    refused(s.send_batch(EVENTS, vec![message("x"), invalid]).await, "ArgumentOutOfRange");
    for path in [AUDIT, BILLING] {
        let seen = s.take_all(path).await;
        assert_eq!(texts(&seen), ["a", "b", "c"]);
        assert_eq!(sequences(&seen), [1, 2, 3]);
    }
    assert!(s.send_batch(EVENTS, vec![]).await.unwrap().is_empty());
}

/// FND-02, LIF-04, TOP-08, SES-24: all state of a topic survives a restart.
pub async fn a_topic_survives_a_restart_with_all_state(s: &Stage) {
    let admin = open(s).await;
    admin.create_rule(AUDIT, all("more").with_action("SET kind = 'a'")).await.unwrap();
    s.put(EVENTS, "x").await;
    let seen = s.take_all(AUDIT).await;
    s.dead_letter(AUDIT, &seen[0]).await;
    s.complete(AUDIT, &seen[1]).await;
    let before = (events(s).await, audit(s).await);
    let s = s.restart().await;
    let after = (events(&s).await, audit(&s).await);
    assert_eq!(after.0.description, before.0.description);
    assert_eq!(after.1.description, before.1.description);
    assert_eq!(after.1.counts, before.1.counts);
    assert_eq!(
        (after.0.size_bytes, after.1.size_bytes),
        (before.0.size_bytes, before.1.size_bytes)
    );
    assert_eq!(after.1.updated_at, before.1.updated_at);
    assert_eq!(s.drain(BILLING).await, ["x"]);
    assert_eq!(s.drain(AUDIT_DLQ).await, ["x"]);
    assert_eq!(s.put(EVENTS, "y").await, 2);
    let seen = s.take_all(AUDIT).await;
    assert_eq!(sequences(&seen), [3, 4]);
    assert_eq!(seen[1].text_of("kind"), Some("a"));
    s.stop().await;
}

/// RTY-16, RTY-17, RTY-20: a subscription has its own policy, independent of other subscriptions.
pub async fn a_subscription_retries_by_its_policy(s: &Stage) {
    let policy = super::retry::policy(RetryKind::Linear, seconds(10));
    let retries =
        |policy| SubscriptionUpdate { retry_policy: Some(policy), ..SubscriptionUpdate::default() };
    let admin = open_with(s, retries(Some(policy)), vec![]).await;
    admin.create_subscription(EVENTS, "billing").await.unwrap();
    assert_eq!(audit(s).await.description.retry_policy, Some(policy));
    s.put(EVENTS, "x").await;
    for path in [AUDIT, BILLING] {
        let seen = s.take(path).await;
        s.abandon(path, &seen).await;
    }
    assert_eq!(s.drain(BILLING).await, ["x"]);
    for failures in 1..3 {
        let counts = audit(s).await.counts;
        assert_eq!((counts.active, counts.delayed), (1, 1));
        s.advance(before(seconds(10 * failures))).await;
        s.assert_empty(AUDIT).await;
        s.advance(TICK).await;
        let seen = s.take(AUDIT).await;
        s.abandon(AUDIT, &seen).await;
    }
    s.advance(seconds(30)).await;
    let seen = s.take(AUDIT).await;
    admin.update_subscription(AUDIT, retries(None)).await.unwrap();
    s.abandon(AUDIT, &seen).await;
    assert_eq!(s.take(AUDIT).await.delivery_count, 5);
}
