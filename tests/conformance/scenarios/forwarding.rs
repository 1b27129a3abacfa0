//! Auto-forwarding, the hop limit, the transfer dead-letter queue (file 10).

mod dead_letters;
mod refused;
mod topics;

use peeklock_core::description::{EntityStatus, SubscriptionUpdate, TopicUpdate};
use peeklock_core::rule::{Filter, RuleDescription, SqlText};

pub use self::dead_letters::*;
pub use self::refused::*;
pub use self::topics::*;
use super::*;
use crate::subjects::Transport;

const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";

/// A queue that forwards its messages.
fn forwards_to(path: &str) -> QueueUpdate {
    QueueUpdate { forward_to: Some(path.into()), ..QueueUpdate::default() }
}

/// A queue that forwards its dead letters.
fn forwards_dead_letters_to(path: &str) -> QueueUpdate {
    QueueUpdate { forward_dead_lettered_messages_to: Some(path.into()), ..QueueUpdate::default() }
}

fn tdlq(path: &str) -> String {
    peeklock_core::path::transfer_dead_letter_path(path)
}

fn dlq(path: &str) -> String {
    peeklock_core::path::dead_letter_path(path)
}

/// Reason and description of a dead letter.
fn verdict(seen: &Seen) -> (String, String) {
    let text = |key: &str| match seen.message.application_property(key) {
        Some(Value::String(text)) => text.to_string(),
        other => panic!("{key} is {other:?}"),
    };
    (text("DeadLetterReason"), text("DeadLetterErrorDescription"))
}

async fn update(s: &Stage, path: &str, properties: QueueUpdate) {
    s.update(path, properties).await.unwrap();
}

/// FWD-01, FWD-09, FWD-10, FWD-24, MSG-06, MSG-15, SET-39, SND-28: a message arrives unchanged,
/// with a new number and enqueued time, and nothing stays at its source.
pub async fn messages_go_to_the_destination_in_their_order(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_to("B")).await;
    s.put("b", "direct").await;
    s.advance(seconds(1)).await;
    for text in ["1", "2", "3"] {
        let message = message(text)
            .with_message_id(text)
            .with_session_id("session")
            .with_application_property("key", text);
        s.send("a", message).await.unwrap();
    }
    s.until("b", |counts| counts.active == 4).await;
    let arrived = s.take_all("b").await;
    assert_eq!(texts(&arrived), ["direct", "1", "2", "3"]);
    assert_eq!(sequences(&arrived), [1, 2, 3, 4]);
    for (seen, number) in arrived[1..].iter().zip(1u64..) {
        assert_eq!(seen.enqueued_sequence, number);
        assert_eq!(seen.enqueued_at, s.now());
        assert_eq!(seen.delivery_count, 1);
        assert_eq!(seen.message.message_id.as_ref().unwrap().to_string(), seen.text());
        assert_eq!(seen.message.session_id.as_deref(), Some("session"));
        let key = seen.message.application_property("key");
        assert_eq!(key, Some(&Value::from(seen.text())));
    }
    s.until("a", |counts| counts.total() == 0).await;
    assert_eq!(s.describe("a").await.unwrap().size_bytes, 0);
    assert_eq!(s.describe("a").await.unwrap().last_sequence.0, 3);
}

/// FWD-02, FWD-03, FWD-04
pub async fn a_destination_must_exist(s: &Stage) {
    refused(s.create("a", forwards_to("b")).await, "EntityNotFound");
    refused(s.create("a", forwards_dead_letters_to("b")).await, "EntityNotFound");
    refused(s.create("a", forwards_to("A")).await, "EntityNotFound");
    s.open_queue("b").await;
    refused(s.create("a", forwards_to("b/$deadletterqueue")).await, "ArgumentError");
    refused(s.create("a", forwards_to("b/Subscriptions/one")).await, "ArgumentError");
    let in_sessions = QueueUpdate { requires_session: Some(true), ..forwards_to("b") };
    refused(s.create("a", in_sessions).await, "InvalidOperation");
    s.open_queue_with("a", forwards_to("b")).await;
    refused(s.update("b", forwards_to("absent")).await, "EntityNotFound");
    let described = s.update("b", forwards_to("a")).await.unwrap();
    assert_eq!(described.description.forward_to.as_deref(), Some("a"));
    let described = s.update("b", QueueUpdate::default()).await.unwrap();
    assert_eq!(described.description.forward_to, None);
}

/// FWD-04: an entity that requires sessions cannot forward its messages, neither at its creation
/// nor by an update. It can forward its dead letters (FWD-30) and be a destination.
pub async fn an_entity_that_requires_sessions_does_not_forward(s: &Stage) {
    let sessions = Some(true);
    s.open_queue("b").await;
    s.open_queue_with("held", QueueUpdate { requires_session: sessions, ..QueueUpdate::default() })
        .await;
    refused(s.update("held", forwards_to("b")).await, "InvalidOperation");
    update(s, "held", forwards_dead_letters_to("b")).await;
    update(s, "b", forwards_to("held")).await;
    s.create_topic(EVENTS).await.unwrap();
    let forwards = |requires_session| SubscriptionUpdate {
        requires_session,
        forward_to: Some("b".into()),
        ..SubscriptionUpdate::default()
    };
    let created = s.create_subscription_with(EVENTS, "audit", forwards(sessions), vec![]).await;
    refused(created, "InvalidOperation");
    let held = SubscriptionUpdate { requires_session: sessions, ..SubscriptionUpdate::default() };
    s.create_subscription_with(EVENTS, "audit", held, vec![]).await.unwrap();
    refused(s.update_subscription(AUDIT, forwards(None)).await, "InvalidOperation");
}

/// FWD-03, FWD-12: a message of a queue that forwards to itself stays in the transfer dead-letter
/// queue.
pub async fn a_queue_that_forwards_to_itself_dead_letters_transfers(s: &Stage) {
    s.open_queue("a").await;
    update(s, "a", forwards_to("A")).await;
    s.put("a", "round").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    let seen = s.take(&tdlq("a")).await;
    assert_eq!(verdict(&seen).0, "MaxTransferHopCountExceeded");
}

/// FWD-06: messages that are stored when ForwardTo is set are forwarded too: locked ones after
/// their lock, scheduled ones when they are enqueued, deferred ones never. The remaining ones can
/// be received after ForwardTo is removed.
pub async fn stored_messages_are_forwarded_too(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("a").await;
    s.put_deferred("a", "deferred").await;
    s.put("a", "locked").await;
    let locked = s.take("a").await;
    s.put("a", "available").await;
    let at = s.now().plus(minutes(5));
    s.schedule("a", message("scheduled"), at).await.unwrap();
    update(s, "a", forwards_to("b")).await;
    s.until("b", |counts| counts.active == 1).await;
    s.abandon("a", &locked).await;
    s.until("b", |counts| counts.active == 2).await;
    s.advance(minutes(5)).await;
    s.until("b", |counts| counts.active == 3).await;
    assert_eq!(s.drain("b").await, ["available", "locked", "scheduled"]);
    assert_eq!(s.counts("a").await.deferred, 1);
    update(s, "a", QueueUpdate::default()).await;
    s.put("a", "stays").await;
    assert_eq!(s.take("a").await.text(), "stays");
}

/// FWD-06: a lock that times out counts a delivery, and the message is forwarded when the count is
/// stored.
pub async fn a_message_leaves_when_its_lock_has_ended(s: &Stage) {
    s.open_queue("b").await;
    let lock_duration = Some(seconds(10));
    s.open_queue_with("a", QueueUpdate { lock_duration, ..QueueUpdate::default() }).await;
    s.put("a", "1").await;
    s.take("a").await;
    update(s, "a", QueueUpdate { lock_duration, ..forwards_to("b") }).await;
    s.advance(seconds(10)).await;
    s.advance(ms(500)).await;
    s.until("b", |counts| counts.active == 1).await;
    assert_eq!(s.take("b").await.delivery_count, 1);
}

/// FWD-06, EXP-21, EXP-22: a message that has expired at its source is not forwarded.
pub async fn an_expired_message_is_not_forwarded(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", keeps_expired()).await;
    s.send("a", message("1").with_time_to_live(seconds(10))).await.unwrap();
    s.advance(seconds(10)).await;
    update(s, "a", QueueUpdate { forward_to: Some("b".into()), ..keeps_expired() }).await;
    s.until("a", |counts| counts.dead_letter == 1).await;
    assert_eq!(s.counts("b").await.total(), 0);
}

/// FWD-09, EXP-16: the time to live starts again, with the maximum of the destination.
pub async fn the_time_to_live_restarts_at_the_destination(s: &Stage) {
    let default_message_time_to_live = Some(seconds(30));
    s.open_queue_with("b", QueueUpdate { default_message_time_to_live, ..QueueUpdate::default() })
        .await;
    s.open_queue("a").await;
    s.send("a", message("long").with_time_to_live(minutes(5))).await.unwrap();
    s.send("a", message("short").with_time_to_live(seconds(20))).await.unwrap();
    s.advance(seconds(10)).await;
    update(s, "a", forwards_to("b")).await;
    s.until("b", |counts| counts.active == 2).await;
    let arrived = s.take_all("b").await;
    assert_eq!(arrived[0].expires_at, Some(s.now().plus(seconds(30))));
    assert_eq!(arrived[1].expires_at, Some(s.now().plus(seconds(20))));
}

/// RCV-29, FWD-08, MAT-03: a source cannot be received from. Peek, its dead-letter queues and
/// existing locks still work.
pub async fn a_source_is_not_received_from(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("a").await;
    let deferred = s.put_deferred("a", "deferred").await;
    s.put("a", "locked").await;
    let locked = s.take("a").await;
    update(s, "a", forwards_to("b")).await;
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        refused(s.receive("a", mode, 1, TimeSpan::ZERO).await, "InvalidOperation");
        refused(s.receive_deferred("a", mode, &[deferred]).await, "InvalidOperation");
    }
    assert_eq!(texts(&s.look("a").await), ["deferred", "locked"]);
    s.dead_letter("a", &locked).await;
    assert_eq!(s.take(&dlq("a")).await.text(), "locked");
    assert!(s.take_all(&tdlq("a")).await.is_empty());
}

/// FWD-07, TMP-12, TMP-18: a source is never idle, and a transfer is a use of its destination.
pub async fn a_source_is_never_idle_and_a_transfer_is_a_use(s: &Stage) {
    let idle = QueueUpdate { auto_delete_on_idle: Some(minutes(10)), ..QueueUpdate::default() };
    s.open_queue_with("b", idle.clone()).await;
    s.open_queue_with("a", QueueUpdate { forward_to: Some("b".into()), ..idle }).await;
    s.advance(minutes(8)).await;
    s.put("a", "1").await;
    s.until("b", |counts| counts.active == 1).await;
    s.advance(minutes(8)).await;
    assert_eq!(s.counts("b").await.active, 1);
    s.advance(minutes(3)).await;
    refused(s.describe("b").await, "EntityNotFound");
    assert!(s.describe("a").await.is_ok());
    s.put("a", "2").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
}

/// FWD-07, EXP-31: forwarding counts as a receiver: a message that cannot be forwarded yet expires
/// on time, unlike in a queue without a receiver.
pub async fn a_source_has_an_active_receiver(s: &Stage) {
    s.open_queue("b").await;
    for source in ["a", "unheard"] {
        s.open_queue_with(source, keeps_expired()).await;
        s.send(source, message("1").with_time_to_live(minutes(2))).await.unwrap();
        let seen = s.take(source).await;
        let later = Decision::Abandon(vec![property("peeklock-delay-ms", 600_000)]);
        s.settle(source, seen.token(), later).await.unwrap();
    }
    update(s, "a", forwards_to("b")).await;
    s.advance(minutes(3)).await;
    s.until("a", |counts| counts.dead_letter == 1).await;
    let unheard = s.counts("unheard").await;
    assert_eq!((unheard.delayed, unheard.dead_letter), (1, 0));
    assert_eq!(s.counts("b").await.total(), 0);
}

/// FWD-12, FWD-13, FWD-14, FWD-16: the documented chain.
pub async fn a_message_makes_four_hops_and_no_fifth(s: &Stage) {
    s.open_queue("q5").await;
    for number in (0..5).rev() {
        s.open_queue_with(&format!("q{number}"), forwards_to(&format!("q{}", number + 1))).await;
    }
    s.put("q1", "near").await;
    s.until("q5", |counts| counts.active == 1).await;
    s.put("q0", "far").await;
    s.until("q4", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(s.drain("q5").await, ["near"]);
    let seen = s.take(&tdlq("q4")).await;
    assert_eq!((seen.text(), seen.enqueued_sequence), ("far", 1));
    let (reason, description) = verdict(&seen);
    assert_eq!(reason, "MaxTransferHopCountExceeded");
    assert_eq!(
        description,
        "the maximum number of forwarding hops, 4, was exceeded on the way to `q5`"
    );
}

/// FWD-03, FWD-14: a circle of two ends where it began.
pub async fn a_circle_ends_by_the_hop_limit(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_to("b")).await;
    update(s, "b", forwards_to("a")).await;
    s.put("a", "1").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(s.counts("b").await.total(), 0);
    assert_eq!(s.take(&tdlq("a")).await.text(), "1");
}

/// FND-03, FWD-01: waiting messages are forwarded after a restart. The destination may be opened
/// after its source.
pub async fn forwarding_continues_after_a_restart(s: &Stage) {
    let status = Some(EntityStatus::ReceiveDisabled);
    for number in 0..8 {
        let (source, destination) = (format!("a{number}"), format!("b{number}"));
        s.open_queue(&destination).await;
        s.open_queue_with(&source, QueueUpdate { status, ..forwards_to(&destination) }).await;
        s.put(&source, "1").await;
        s.put(&source, "2").await;
    }
    let again = s.restart().await;
    let status = Some(EntityStatus::Active);
    for number in 0..8 {
        let (source, destination) = (format!("a{number}"), format!("b{number}"));
        let properties = QueueUpdate { status, ..forwards_to(&destination) };
        update(&again, &source, properties).await;
        again.until(&destination, |counts| counts.active == 2).await;
    }
    let third = again.restart().await;
    for number in 0..8 {
        assert_eq!(third.drain(&format!("b{number}")).await, ["1", "2"]);
        assert_eq!(third.counts(&format!("a{number}")).await.total(), 0);
    }
    third.stop().await;
}

/// FWD-10: a backlog of many transfers arrives in order.
pub async fn a_backlog_arrives_in_its_order(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("a").await;
    for hundred in 0..10 {
        let messages = (0..100).map(|one| message(&(hundred * 100 + one).to_string())).collect();
        s.send_batch("a", messages).await.unwrap();
    }
    update(s, "a", forwards_to("b")).await;
    s.until("b", |counts| counts.active == 1_000).await;
    let arrived: Vec<usize> = s.drain("b").await.iter().map(|text| text.parse().unwrap()).collect();
    assert!(arrived.is_sorted());
    assert_eq!(arrived.len(), 1_000);
}

/// FWD-11: forwarding needs no passing of time.
pub async fn forwarding_takes_no_time(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_to("b")).await;
    let before = s.now();
    s.put("a", "1").await;
    s.until("b", |counts| counts.active == 1).await;
    assert_eq!(s.take("b").await.enqueued_at, before);
}

/// VIA-01, VIA-06, MSG-13, MSG-15, SCH-02: a message sent through a queue is not visible there and
/// moves on. A scheduled one waits at the destination.
pub async fn a_message_can_be_sent_through_a_queue(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("via").await;
    let sender = s.sender_via("B", "via").await.unwrap();
    s.put("via", "own").await;
    let number = sender.send(message("1").with_session_id("s")).await.unwrap();
    assert_eq!(number, 2);
    let batch = vec![message("2"), message("3")];
    assert_eq!(sender.send_batch(batch).await.unwrap(), [3, 4]);
    let at = s.now().plus(minutes(5));
    sender.schedule(message("later"), at).await.unwrap();
    s.until("b", |counts| counts.active == 3 && counts.scheduled == 1).await;
    s.until("via", |counts| counts.total() == 1).await;
    assert_eq!(texts(&s.look("via").await), ["own"]);
    let arrived = s.take_all("b").await;
    assert_eq!(texts(&arrived), ["1", "2", "3"]);
    assert_eq!(arrived[0].enqueued_sequence, 2);
    assert_eq!(arrived[0].message.session_id.as_deref(), Some("s"));
    s.advance(minutes(5)).await;
    assert_eq!(texts(&s.take_all("b").await), ["1", "2", "3", "later"]);
}

/// VIA-02, VIA-03, VIA-06, FWD-15: the destination must exist when a sender attaches. A later
/// failure moves the message to the transfer dead-letter queue of the queue that it passes.
pub async fn a_failed_send_through_a_queue_is_dead_lettered_there(s: &Stage) {
    s.open_queue("via").await;
    refused(s.sender_via("b", "via").await, "EntityNotFound");
    s.open_queue("b").await;
    refused(s.sender_via("b", "absent").await, "EntityNotFound");
    refused(s.sender_via("via", "via").await, "InvalidOperation");
    let sender = s.sender_via("b", "via").await.unwrap();
    let status = Some(EntityStatus::SendDisabled);
    update(s, "b", QueueUpdate { status, ..QueueUpdate::default() }).await;
    sender.send(message("1")).await.unwrap();
    s.until("via", |counts| counts.transfer_dead_letter == 1).await;
    s.delete("b").await.unwrap();
    sender.send(message("2")).await.unwrap();
    s.until("via", |counts| counts.transfer_dead_letter == 2).await;
    let dead = s.take_all(&tdlq("via")).await;
    assert_eq!(texts(&dead), ["1", "2"]);
    assert_eq!(verdict(&dead[0]).0, "MessagingEntityDisabled");
    assert_eq!(verdict(&dead[1]).0, "MessagingEntityNotFound");
}

/// VIA-01, LIF-05: a message in transfer survives a restart, does not expire and is not visible.
pub async fn a_message_in_transfer_survives_a_restart(s: &Stage) {
    let small = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
    s.open_queue_with("b", small).await;
    s.open_queue("via").await;
    s.send("b", sized(1_000 << 10, "full")).await.unwrap();
    let sender = s.sender_via("b", "via").await.unwrap();
    let waits = sized(100 << 10, "waits").with_time_to_live(seconds(10));
    sender.send(waits).await.unwrap();
    s.advance(seconds(60)).await;
    assert_eq!(s.counts("via").await.transfer, 1);
    assert!(s.look("via").await.is_empty());
    s.assert_empty("via").await;
    s.purge("b").await.unwrap();
    let again = s.restart().await;
    again.until("b", |counts| counts.active == 1).await;
    let seen = again.take("b").await;
    assert_eq!(seen.message.message_id.as_ref().unwrap().to_string(), "waits");
    assert_eq!(seen.expires_at, Some(again.now().plus(seconds(10))));
    again.stop().await;
}

/// MAT-01, DEL-04: an operator can delete messages that wait to be forwarded. They cannot be
/// cancelled or settled.
pub async fn messages_waiting_to_be_forwarded_can_be_deleted(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_dead_letters_to("b")).await;
    let status = Some(EntityStatus::SendDisabled);
    update(s, "b", QueueUpdate { status, ..QueueUpdate::default() }).await;
    for text in ["1", "2", "3"] {
        s.put("a", text).await;
        let seen = s.take("a").await;
        s.dead_letter("a", &seen).await;
    }
    s.advance(TICK).await;
    s.until("a", |counts| counts.dead_letter == 3).await;
    assert_eq!(s.delete_batch(&dlq("a"), 2, None).await.unwrap(), 2);
    assert_eq!(texts(&s.look(&dlq("a")).await), ["3"]);
    assert_eq!(s.purge(&dlq("a")).await.unwrap(), 1);
}
