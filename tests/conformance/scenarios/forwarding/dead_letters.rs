//! Dead letters that are forwarded.

use super::*;

/// FWD-26, FWD-13: dead letters are forwarded with their reason.
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

/// FWD-27: a dead-letter queue that forwards cannot be received from, but peeked. FWD-29: the
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

/// FWD-28: a dead letter stays while its destination is absent, and is tried again within 30 s.
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

/// FWD-28: a dead letter at its hop limit stays permanently and can be received.
pub async fn a_dead_letter_at_the_hop_limit_can_be_received(s: &Stage) {
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

/// FWD-26: DeadLetterSource names the entity that dead-lettered a message, also after further
/// transfers. Before the first transfer there is no value.
pub async fn dead_letter_source_names_the_dead_lettering_entity(s: &Stage) {
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
