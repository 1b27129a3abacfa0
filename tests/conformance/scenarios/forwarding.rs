//! Auto-forwarding, the hop limit, the transfer dead-letter queue (file 10).

use peeklock_core::command::Counts;
use peeklock_core::description::{EntityStatus, SubscriptionUpdate, TopicUpdate};
use peeklock_core::rule::{Filter, RuleDescription, SqlText};

use super::*;
use crate::subjects::Transport;

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

/// The reason and the description with which a message was dead-lettered.
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

/// FWD-01, FWD-09, FWD-10, FWD-24, MSG-06, MSG-15, SET-39, SND-28: a message arrives whole, with a
/// number and an instant of its own, and leaves nothing behind.
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
pub async fn a_destination_must_be_there_and_be_another(s: &Stage) {
    refused(s.create("a", forwards_to("b")).await, "EntityNotFound");
    refused(s.create("a", forwards_dead_letters_to("b")).await, "EntityNotFound");
    refused(s.create("a", forwards_to("A")).await, "InvalidOperation");
    s.open_queue("b").await;
    refused(s.create("a", forwards_to("b/$deadletterqueue")).await, "ArgumentError");
    refused(s.create("a", forwards_to("b/Subscriptions/one")).await, "ArgumentError");
    let in_sessions = QueueUpdate { requires_session: Some(true), ..forwards_to("b") };
    refused(s.create("a", in_sessions).await, "InvalidOperation");
    s.open_queue_with("a", forwards_to("b")).await;
    refused(s.update("b", forwards_to("b")).await, "InvalidOperation");
    refused(s.update("b", forwards_to("absent")).await, "EntityNotFound");
    let described = s.update("b", forwards_to("a")).await.unwrap();
    assert_eq!(described.description.forward_to.as_deref(), Some("a"));
    let described = s.update("b", QueueUpdate::default()).await.unwrap();
    assert_eq!(described.description.forward_to, None);
}

/// FWD-06: what is there when ForwardTo is set goes too, locked ones after their lock, scheduled ones
/// when they materialise, deferred ones never; what is left can be received when it is removed.
pub async fn messages_that_are_there_are_forwarded_too(s: &Stage) {
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

/// FWD-06: a lock that ends by time counts, and the message leaves when the count is stored.
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

/// FWD-09, EXP-16: the time to live counts anew, with the ceiling of the destination.
pub async fn the_time_to_live_counts_anew_at_the_destination(s: &Stage) {
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

/// RCV-29, FWD-08, MAT-03: nobody receives from a source; peek goes on, and so do its dead-letter
/// queues and locks that were taken before.
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

/// FWD-07, TMP-12, TMP-18: a source is never idle; a transfer is a use of its destination.
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

/// FWD-15, FWD-16, FWD-17, FWD-19, FWD-20, FWD-21: a destination that is disabled or absent; nothing comes back by
/// itself.
pub async fn what_a_destination_does_not_take_is_dead_lettered_at_the_source(s: &Stage) {
    for status in [EntityStatus::Disabled, EntityStatus::SendDisabled] {
        let status = Some(status);
        s.open_queue("b").await;
        s.open_queue_with("a", forwards_to("B")).await;
        update(s, "b", QueueUpdate { status, ..QueueUpdate::default() }).await;
        s.put("a", "disabled").await;
        s.until("a", |counts| counts.transfer_dead_letter == 1).await;
        s.delete("b").await.unwrap();
        s.put("a", "deleted").await;
        s.until("a", |counts| counts.transfer_dead_letter == 2).await;
        s.open_queue("b").await;
        s.put("a", "there again").await;
        s.until("b", |counts| counts.active == 1).await;
        assert_eq!(s.drain("b").await, ["there again"]);
        let refused = s.take_all(&tdlq("a")).await;
        assert_eq!(texts(&refused), ["disabled", "deleted"]);
        assert_eq!(verdict(&refused[0]).0, "MessagingEntityDisabled");
        assert_eq!(verdict(&refused[1]).0, "MessagingEntityNotFound");
        for seen in &refused {
            assert!(verdict(seen).1.contains("`B`"), "{:?}", verdict(seen));
        }
        s.delete("a").await.unwrap();
        s.delete("b").await.unwrap();
    }
}

/// FWD-15, FWD-23, FWD-24: a destination that is full, and one that takes only smaller messages.
pub async fn a_full_destination_and_a_small_one_dead_letter_at_the_source(s: &Stage) {
    let small = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
    s.open_queue_with("b", small).await;
    let large = QueueUpdate { max_message_size_in_kilobytes: Some(2_048), ..forwards_to("b") };
    s.open_queue_with("a", large).await;
    s.send("a", sized(600 << 10, "1")).await.unwrap();
    s.send("a", sized(600 << 10, "2")).await.unwrap();
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    s.send("b", sized(1 << 10, "3")).await.unwrap();
    let seen = s.take(&tdlq("a")).await;
    assert_eq!(seen.message.message_id.as_ref().unwrap().to_string(), "2");
    assert_eq!(verdict(&seen).0, "QuotaExceeded");
    assert!(verdict(&seen).1.contains("`b`"));
    s.complete(&tdlq("a"), &seen).await;
    s.purge("b").await.unwrap();
    let message = sized((1 << 20) + 1, "4");
    if s.transport == Transport::Http {
        s.in_process().sender("a").unwrap().send(message).await.unwrap();
    } else {
        s.send("a", message).await.unwrap();
    }
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    let seen = s.take(&tdlq("a")).await;
    assert_eq!(verdict(&seen).0, "MessageSizeExceeded");
}

/// FWD-18
pub async fn failures_can_go_to_the_dead_letter_queue(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_to("b")).await;
    s.delete("b").await.unwrap();
    s.put("a", "1").await;
    s.until("a", |counts| counts.dead_letter == 1).await;
    let seen = s.take(&dlq("a")).await;
    assert_eq!(verdict(&seen).0, "MessagingEntityNotFound");
}

pub fn into_the_dead_letter_queue() -> Setup {
    let mut setup = Setup::default();
    setup.settings.forwarding_failure_target =
        peeklock_core::description::FailureTarget::DeadLetter;
    setup
}

/// FWD-22, DUP-10: a duplicate is dropped at the destination, and is gone at its source.
pub async fn a_duplicate_is_a_successful_transfer(s: &Stage) {
    s.open_queue_with("b", detects_duplicates()).await;
    s.open_queue_with("a", forwards_to("b")).await;
    for text in ["1", "2"] {
        s.send("a", message(text).with_message_id("same")).await.unwrap();
    }
    s.until("a", |counts| counts.total() == 0).await;
    assert_eq!(s.drain("b").await, ["1"]);
}

/// DUP-14, DUP-10, MSG-07: a message without id is no duplicate of itself, however often it comes back to a
/// queue that detects them; one with an id is.
pub async fn a_message_without_id_is_no_duplicate_after_a_transfer(s: &Stage) {
    s.open_queue_with("a", detects_duplicates()).await;
    s.open_queue_with("b", forwards_to("a")).await;
    update(s, "a", forwards_to("b")).await;
    s.put("b", "round").await;
    s.until("b", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(verdict(&s.take(&tdlq("b")).await).0, "MaxTransferHopCountExceeded");
    s.send("b", message("round").with_message_id("id")).await.unwrap();
    s.until("a", |counts| counts.total() == 0).await;
    s.until("b", |counts| counts.total() == 1).await;
}

/// DLQ-21: a transfer into a session queue without session id is dead-lettered there.
pub async fn a_message_without_session_is_dead_lettered_at_a_session_queue(s: &Stage) {
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    s.open_queue_with("b", sessions).await;
    s.open_queue_with("a", forwards_to("b")).await;
    s.send("a", message("with").with_session_id("s")).await.unwrap();
    s.send("a", message("without")).await.unwrap();
    s.send("a", message("empty").with_session_id("")).await.unwrap();
    s.until("b", |counts| counts.active == 1 && counts.dead_letter == 2).await;
    let dead = s.take_all(&dlq("b")).await;
    assert_eq!(texts(&dead), ["without", "empty"]);
    for seen in &dead {
        assert_eq!(verdict(seen).0, "Session ID is null.");
    }
}

/// ENT-27: forwarding stops while the status of the source blocks receives.
pub async fn a_source_that_gives_no_receives_forwards_nothing(s: &Stage) {
    s.open_queue("b").await;
    let status = Some(EntityStatus::ReceiveDisabled);
    s.open_queue_with("a", QueueUpdate { status, ..forwards_to("b") }).await;
    s.put("a", "1").await;
    assert_eq!(s.counts("a").await.active, 1);
    let status = Some(EntityStatus::Active);
    update(s, "a", QueueUpdate { status, ..forwards_to("b") }).await;
    s.until("b", |counts| counts.active == 1).await;
}

/// FWD-26, FWD-13, FWD-30: dead letters go on with their reason, also those of a session queue.
pub async fn dead_letters_are_forwarded_with_their_reason(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("a").await;
    s.put("a", "1").await;
    let seen = s.take("a").await;
    let decision = Decision::DeadLetter {
        reason: Some("broken".into()),
        description: Some("in two".into()),
        properties: vec![],
    };
    s.settle("a", seen.token(), decision).await.unwrap();
    update(s, "a", forwards_dead_letters_to("b")).await;
    s.until("b", |counts| counts.active == 1).await;
    let seen = s.take("b").await;
    assert_eq!((seen.text(), seen.enqueued_sequence, seen.delivery_count), ("1", 1, 1));
    assert_eq!(verdict(&seen), ("broken".to_owned(), "in two".to_owned()));
    s.until("a", |counts| counts.total() == 0).await;
}

/// FWD-27: nobody receives from a dead-letter queue that is forwarded; peek goes on. FWD-29: the
/// transfer dead-letter queue is not forwarded.
pub async fn a_forwarded_dead_letter_queue_is_not_received_from(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("c").await;
    let both = QueueUpdate { forward_to: Some("c".into()), ..forwards_dead_letters_to("b") };
    s.open_queue_with("a", both).await;
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        refused(s.receive(&dlq("a"), mode, 1, TimeSpan::ZERO).await, "InvalidOperation");
    }
    assert!(s.look(&dlq("a")).await.is_empty());
    s.delete("c").await.unwrap();
    s.put("a", "1").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(s.take(&tdlq("a")).await.text(), "1");
    assert_eq!(s.counts("b").await.total(), 0);
}

/// FWD-28: a dead letter stays while its destination is gone, and is tried again within 30 s.
pub async fn a_dead_letter_waits_for_its_destination(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_dead_letters_to("b")).await;
    s.delete("b").await.unwrap();
    for text in ["1", "2"] {
        s.put("a", text).await;
        let seen = s.take("a").await;
        s.dead_letter("a", &seen).await;
    }
    s.until("a", |counts| counts.dead_letter == 2).await;
    s.open_queue("b").await;
    assert_eq!(texts(&s.look(&dlq("a")).await), ["1", "2"]);
    s.advance(seconds(30)).await;
    s.until("b", |counts| counts.active == 2).await;
    assert_eq!(s.drain("b").await, ["1", "2"]);
    s.until("a", |counts| counts.total() == 0).await;
}

/// FWD-28: a dead letter that has made all its hops stays for good, and can be received.
pub async fn a_dead_letter_that_may_not_hop_can_be_received(s: &Stage) {
    s.open_queue("end").await;
    s.open_queue_with("q4", forwards_dead_letters_to("end")).await;
    for number in (0..4).rev() {
        s.open_queue_with(&format!("q{number}"), forwards_to(&format!("q{}", number + 1))).await;
    }
    s.put("q0", "far").await;
    s.until("q4", |counts| counts.active == 1).await;
    s.put("q4", "near").await;
    for _ in 0..2 {
        let seen = s.take("q4").await;
        s.dead_letter("q4", &seen).await;
    }
    s.until("end", |counts| counts.active == 1).await;
    assert_eq!(s.drain("end").await, ["near"]);
    let seen = s.take(&dlq("q4")).await;
    assert_eq!(seen.text(), "far");
    s.complete(&dlq("q4"), &seen).await;
    refused(
        s.receive(&dlq("q4"), ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await,
        "InvalidOperation",
    );
}

/// FND-03, FWD-01: what waits to be forwarded is forwarded after a restart; the destination may be
/// opened after its source.
pub async fn forwarding_goes_on_after_a_restart(s: &Stage) {
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

/// FWD-10: a backlog of many lists arrives in its order.
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

/// FWD-11: a message that can be forwarded is, without time passing; one that was kept is offered again
/// within a second.
pub async fn forwarding_takes_no_time(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue_with("a", forwards_to("b")).await;
    let before = s.now();
    s.put("a", "1").await;
    s.until("b", |counts| counts.active == 1).await;
    assert_eq!(s.take("b").await.enqueued_at, before);
}

/// FWD-26: DeadLetterSource names the entity in which a message was dead-lettered, also after further
/// transfers; before it leaves it has none.
pub async fn dead_letter_source_names_where_it_was_dead_lettered(s: &Stage) {
    s.open_queue("c").await;
    s.open_queue_with("b", forwards_to("c")).await;
    s.open_queue("Orders/A").await;
    s.put("orders/a", "1").await;
    let seen = s.take("orders/a").await;
    s.dead_letter("orders/a", &seen).await;
    let source = async |path: &str| s.look(path).await[0].dead_letter_source.clone();
    assert_eq!(source(&dlq("orders/a")).await, None);
    update(s, "orders/a", forwards_dead_letters_to("b")).await;
    s.until("c", |counts| counts.active == 1).await;
    assert_eq!(source("c").await.as_deref(), Some("Orders/A"));
    assert_eq!(s.take("c").await.message.application_properties, []);
}

/// VIA-03: a full destination can hold messages up, in their order, until there is room.
pub async fn a_full_destination_can_hold_messages_up(s: &Stage) {
    let small = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
    s.open_queue_with("b", small).await;
    s.open_queue_with("a", forwards_to("b")).await;
    s.open_queue("via").await;
    for id in ["1", "2", "3"] {
        let bytes = if id == "3" { 1 << 10 } else { 600 << 10 };
        s.send("a", sized(bytes, id)).await.unwrap();
    }
    s.until("a", |counts| counts.active == 2).await;
    s.sender_via("b", "via").await.unwrap().send(sized(600 << 10, "4")).await.unwrap();
    s.advance(seconds(1)).await;
    assert_eq!(s.counts("a").await.transfer_dead_letter, 0);
    s.purge("b").await.unwrap();
    s.advance(seconds(1)).await;
    while s.counts("a").await.total() + s.counts("via").await.total() > 0 {
        if s.counts("b").await.total() > 0 {
            s.drain("b").await;
        }
        s.advance(seconds(1)).await;
    }
    assert_eq!(s.counts("via").await.transfer_dead_letter, 0);
}

pub fn that_holds() -> Setup {
    let mut setup = Setup::default();
    setup.settings.forwarding_on_destination_full =
        peeklock_core::description::OnDestinationFull::Hold;
    setup
}

/// VIA-01, VIA-06, MSG-13, MSG-15, SCH-02: what is sent by way of a queue is seen by nobody there, and
/// moves on; a schedule is kept at the destination.
pub async fn a_message_can_be_sent_by_way_of_a_queue(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue("via").await;
    let sender = s.sender_via("B", "via").await.unwrap();
    s.put("via", "own").await;
    let number = sender.send(message("1").with_session_id("s")).await.unwrap();
    assert_eq!(number.0, 2);
    let batch = vec![message("2"), message("3")];
    let numbers = sender.send_batch(batch).await.unwrap();
    assert_eq!(numbers.iter().map(|number| number.0).collect::<Vec<_>>(), [3, 4]);
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

/// VIA-02, VIA-03, VIA-06, FWD-15: the destination must be there when a sender attaches; what fails
/// later goes into the transfer dead-letter queue of the queue on the way.
pub async fn what_cannot_be_sent_on_is_dead_lettered_on_the_way(s: &Stage) {
    s.open_queue("via").await;
    use peeklock_core::condition::Condition;
    let refused = async |destination, via| s.sender_via(destination, via).await.map(drop);
    assert_eq!(refused("b", "via").await, Err(Condition::EntityNotFound));
    s.open_queue("b").await;
    assert_eq!(refused("b", "absent").await, Err(Condition::EntityNotFound));
    assert_eq!(refused("via", "via").await, Err(Condition::InvalidOperation));
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

/// VIA-01, LIF-05: a message on its way outlives a restart, and neither expires nor shows.
pub async fn a_message_on_its_way_outlives_a_restart(s: &Stage) {
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

/// MAT-01, DEL-04: an operator can delete what waits to be forwarded, and nobody cancels or settles it.
pub async fn what_waits_to_be_forwarded_can_be_deleted(s: &Stage) {
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

/// DLQ-20: a message whose header grows over the limit on its way is dead-lettered where it arrives,
/// with its properties whole: in the queue, or in the subscription.
pub async fn a_header_that_grows_too_large_is_dead_lettered_where_it_arrives(s: &Stage) {
    s.open_queue("b").await;
    open_events(s, None, None).await;
    s.open_queue_with("a", forwards_dead_letters_to("b")).await;
    s.open_queue_with("c", forwards_dead_letters_to(EVENTS)).await;
    let large = |more: usize| {
        ["x", "y", "z"].into_iter().fold(message("1").with_message_id("1"), |message, key| {
            let bytes = if key == "z" { more } else { 21_000 };
            message.with_application_property(key, "v".repeat(bytes))
        })
    };
    let header = |more| large(more).encode().header_size() as usize;
    let most = 65_536 - header(20_000) + 20_000;
    for source in ["a", "c"] {
        s.send(source, large(most)).await.unwrap();
        let seen = s.take(source).await;
        s.dead_letter(source, &seen).await;
    }
    s.until("b", |counts| counts.dead_letter == 1).await;
    until_subscription(s, |counts| counts.dead_letter == 1).await;
    for destination in ["b", AUDIT] {
        let seen = s.take(&dlq(destination)).await;
        assert_eq!(verdict(&seen).0, "HeaderSizeExceeded");
        let z = Value::from("v".repeat(most));
        assert_eq!(seen.message.application_property("z"), Some(&z));
    }
}

const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";

async fn open_events(s: &Stage, forward_to: Option<&str>, rule: Option<RuleDescription>) {
    s.create_topic(EVENTS).await.unwrap();
    let properties = SubscriptionUpdate {
        forward_to: forward_to.map(Into::into),
        ..SubscriptionUpdate::default()
    };
    let rules = rule.into_iter().collect();
    s.create_subscription_with(EVENTS, "audit", properties, rules).await.unwrap();
}

async fn until_subscription(s: &Stage, is_so: impl Fn(&Counts) -> bool) {
    loop {
        if is_so(&s.broker.describe_subscription(AUDIT).await.unwrap().counts) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// FWD-01, FWD-09, FWD-24, MSG-15: what is forwarded to a topic is published, in its order; its first
/// number stays; its source is empty.
pub async fn a_topic_is_a_destination_and_its_subscriptions_are_sources(s: &Stage) {
    s.open_queue("end").await;
    open_events(s, Some("end"), None).await;
    s.open_queue_with("a", forwards_to("EVENTS")).await;
    for text in ["1", "2", "3"] {
        s.put("a", text).await;
    }
    s.until("end", |counts| counts.active == 3).await;
    let arrived = s.take_all("end").await;
    assert_eq!(texts(&arrived), ["1", "2", "3"]);
    assert_eq!(arrived.iter().map(|seen| seen.enqueued_sequence).collect::<Vec<_>>(), [1, 2, 3]);
    s.until("a", |counts| counts.total() == 0).await;
    until_subscription(s, |counts| counts.total() == 0).await;
    assert_eq!(s.topic(EVENTS).await.unwrap().size_bytes, 0);
}

/// FWD-26, TOP-11: the rules of a topic see why a message was dead-lettered, and the copy says from where.
pub async fn rules_see_what_was_set_on_a_forwarded_dead_letter(s: &Stage) {
    let filter = Filter::Sql(SqlText::new("DeadLetterReason = 'broken'"));
    open_events(s, None, Some(RuleDescription::new("broken", filter, s.now()))).await;
    s.open_queue_with("a", forwards_dead_letters_to(EVENTS)).await;
    for (text, reason) in [("1", "broken"), ("2", "late")] {
        s.put("a", text).await;
        let seen = s.take("a").await;
        let decision = Decision::DeadLetter {
            reason: Some(reason.into()),
            description: Some("why".into()),
            properties: vec![],
        };
        s.settle("a", seen.token(), decision).await.unwrap();
    }
    s.until("a", |counts| counts.total() == 0).await;
    let seen = s.take(AUDIT).await;
    assert_eq!((seen.text(), verdict(&seen).0.as_str()), ("1", "broken"));
    assert_eq!(seen.dead_letter_source.as_deref(), Some("a"));
    s.assert_empty(AUDIT).await;
}

/// SQL-08, SQL-09, MSG-15, FWD-26: rules see where a forwarded message comes from, also when it has waited for
/// its instant at the topic; one that was sent to the topic has nothing of it.
pub async fn rules_see_where_a_forwarded_message_comes_from(s: &Stage) {
    let rules = [
        ("dead", "sys.DeadLetterSource = 'dead' AND sys.EnqueuedSequenceNumber = 1"),
        ("first", "sys.DeadLetterSource IS NULL AND sys.EnqueuedSequenceNumber > 0"),
        ("sent", "sys.DeadLetterSource IS NULL AND sys.EnqueuedSequenceNumber = 0"),
    ];
    s.broker.create_topic(EVENTS, TopicUpdate::default()).await.unwrap();
    for (name, text) in rules {
        let rule = RuleDescription::new(name, Filter::Sql(SqlText::new(text)), s.now());
        let properties = SubscriptionUpdate::default();
        s.broker.create_subscription(EVENTS, name, properties, vec![rule]).await.unwrap();
    }
    s.open_queue_with("dead", forwards_dead_letters_to(EVENTS)).await;
    s.open_queue_with("plain", forwards_to(EVENTS)).await;
    s.open_queue("via").await;
    s.put("dead", "dead").await;
    let seen = s.take("dead").await;
    s.dead_letter("dead", &seen).await;
    s.put("plain", "forwarded").await;
    s.put(EVENTS, "sent").await;
    let sender = s.sender_via(EVENTS, "via").await.unwrap();
    sender.schedule(message("later"), s.now().plus(minutes(5))).await.unwrap();
    for source in ["dead", "plain", "via"] {
        s.until(source, |counts| counts.total() == 0).await;
    }
    s.advance(minutes(5)).await;
    for (name, expected) in
        [("dead", ["dead"].as_slice()), ("first", &["forwarded", "later"]), ("sent", &["sent"])]
    {
        let seen = s.take_all(&format!("{EVENTS}/Subscriptions/{name}")).await;
        assert_eq!(texts(&seen), expected, "{name}");
    }
}

/// FWD-03, FWD-08, FWD-13, FWD-15, FWD-16, FWD-17, TMP-12: a subscription cannot forward to its own topic; it
/// is received from by nobody while it forwards; a circle over a topic ends in its transfer dead-letter queue.
pub async fn a_circle_over_a_topic_ends_at_its_subscription(s: &Stage) {
    open_events(s, None, None).await;
    let to = |path: &str| SubscriptionUpdate {
        forward_to: Some(path.into()),
        ..SubscriptionUpdate::default()
    };
    refused(s.update_subscription(AUDIT, to("Events")).await, "InvalidOperation");
    refused(s.update_subscription(AUDIT, to("absent")).await, "EntityNotFound");
    s.open_queue_with("a", forwards_to(EVENTS)).await;
    let described = s.update_subscription(AUDIT, to("a")).await.unwrap();
    assert_eq!(described.description.auto_delete_on_idle, TimeSpan::MAX);
    refused(s.receive(AUDIT, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await, "InvalidOperation");
    s.put(EVENTS, "round").await;
    until_subscription(s, |counts| counts.transfer_dead_letter == 1).await;
    let seen = s.take(&tdlq(AUDIT)).await;
    assert_eq!(verdict(&seen).0, "MaxTransferHopCountExceeded");
    s.until("a", |counts| counts.total() == 0).await;
}

/// FWD-15, FWD-21: a disabled topic takes nothing over, and takes over again when it is not.
pub async fn a_disabled_topic_dead_letters_at_the_source(s: &Stage) {
    open_events(s, None, None).await;
    let disabled =
        TopicUpdate { status: Some(EntityStatus::SendDisabled), ..TopicUpdate::default() };
    s.update_topic(EVENTS, disabled).await.unwrap();
    s.open_queue_with("a", forwards_to(EVENTS)).await;
    s.put("a", "1").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(verdict(&s.take(&tdlq("a")).await).0, "MessagingEntityDisabled");
    let active = TopicUpdate { status: Some(EntityStatus::Active), ..TopicUpdate::default() };
    s.update_topic(EVENTS, active).await.unwrap();
    s.put("a", "2").await;
    until_subscription(s, |counts| counts.active == 1).await;
    assert_eq!(texts(&s.take_all(AUDIT).await), ["2"]);
}
