//! Transfers that a destination refuses.

use super::*;

/// FWD-15, FWD-16, FWD-17, FWD-19, FWD-20, FWD-21: a disabled or absent destination. No failed
/// transfer is repeated by itself.
pub async fn a_refused_transfer_is_dead_lettered_at_the_source(s: &Stage) {
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

/// FWD-15, FWD-23, FWD-24: a full destination, and one that accepts only smaller messages.
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

/// FWD-22, DUP-10: a duplicate is dropped at the destination and removed at its source.
pub async fn a_duplicate_is_a_successful_transfer(s: &Stage) {
    s.open_queue_with("b", detects_duplicates()).await;
    s.open_queue_with("a", forwards_to("b")).await;
    for text in ["1", "2"] {
        s.send("a", message(text).with_message_id("same")).await.unwrap();
    }
    s.until("a", |counts| counts.total() == 0).await;
    assert_eq!(s.drain("b").await, ["1"]);
}

/// DUP-14, DUP-10, MSG-07: a message without an id is no duplicate of itself, however often it
/// returns to a queue that detects duplicates; one with an id is.
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

/// A queue that requires sessions.
fn in_sessions() -> QueueUpdate {
    QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() }
}

/// DLQ-21, SES-03, FWD-10, FWD-16: a session queue accepts no transfer without a session id. The
/// message stays at its source, and later messages arrive.
pub async fn a_message_without_session_is_dead_lettered_at_its_source(s: &Stage) {
    s.open_queue_with("b", in_sessions()).await;
    s.open_queue_with("a", forwards_to("b")).await;
    s.create_topic(EVENTS).await.unwrap();
    let forwards = SubscriptionUpdate { forward_to: Some("b".into()), ..Default::default() };
    s.create_subscription_with(EVENTS, "audit", forwards, vec![]).await.unwrap();
    for source in ["a", EVENTS] {
        s.send(source, message("with").with_session_id("s")).await.unwrap();
        s.send(source, message("without")).await.unwrap();
        s.send(source, message("empty").with_session_id("")).await.unwrap();
    }
    s.until("a", |counts| counts.total() == 1 && counts.transfer_dead_letter == 1).await;
    s.until_subscription(AUDIT, |counts| counts.total() == 1).await;
    s.until("b", |counts| counts.active == 4 && counts.dead_letter == 0).await;
    for source in ["a", AUDIT] {
        let dead = s.take_all(&tdlq(source)).await;
        assert_eq!(texts(&dead), ["without"]);
        let (reason, description) = verdict(&dead[0]);
        assert_eq!(reason, "Session ID is null.");
        assert!(description.contains("The SessionId was not set on a message"), "{description}");
    }
}

/// DLQ-21, FWD-28: a dead letter without a session id stays in its queue and can be received;
/// others are forwarded.
pub async fn a_dead_letter_without_session_stays_in_its_queue(s: &Stage) {
    s.open_queue_with("b", in_sessions()).await;
    s.open_queue("a").await;
    s.put("a", "without").await;
    s.send("a", message("with").with_session_id("s")).await.unwrap();
    for _ in 0..2 {
        let seen = s.take("a").await;
        s.dead_letter("a", &seen).await;
    }
    update(s, "a", forwards_dead_letters_to("b")).await;
    s.until("b", |counts| counts.active == 1 && counts.dead_letter == 0).await;
    assert_eq!(s.drain(&dlq("a")).await, ["without"]);
}

/// ENT-27: forwarding stops while the status of the source blocks receives.
pub async fn a_receive_disabled_source_forwards_nothing(s: &Stage) {
    s.open_queue("b").await;
    let status = Some(EntityStatus::ReceiveDisabled);
    s.open_queue_with("a", QueueUpdate { status, ..forwards_to("b") }).await;
    s.put("a", "1").await;
    assert_eq!(s.counts("a").await.active, 1);
    let status = Some(EntityStatus::Active);
    update(s, "a", QueueUpdate { status, ..forwards_to("b") }).await;
    s.until("b", |counts| counts.active == 1).await;
}

/// VIA-03: with this setting, messages wait in order for room at a full destination.
pub async fn a_full_destination_can_delay_messages(s: &Stage) {
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

pub fn holding_when_full() -> Setup {
    let mut setup = Setup::default();
    setup.settings.forwarding_on_destination_full =
        peeklock_core::description::OnDestinationFull::Hold;
    setup
}
