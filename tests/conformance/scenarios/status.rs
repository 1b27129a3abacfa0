//! Operations that a status blocks, and those that continue (file 03, "Status").

use super::*;

async fn set(s: &Stage, status: EntityStatus) {
    let update = QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    let described = s.update(ORDERS, update).await.unwrap();
    assert_eq!(described.description.status, status);
}

const BLOCKING: [EntityStatus; 3] =
    [EntityStatus::Disabled, EntityStatus::SendDisabled, EntityStatus::ReceiveDisabled];

/// ENT-20, ENT-23, ENT-24
pub async fn each_status_blocks_sends_or_receives_or_both_and_keeps_the_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "kept").await;
    let cases = [
        (EntityStatus::SendDisabled, false, true),
        (EntityStatus::ReceiveDisabled, true, false),
        (EntityStatus::Disabled, false, false),
        (EntityStatus::Active, true, true),
    ];
    for (status, sends, receives) in cases {
        set(s, status).await;
        let sent = s.send(ORDERS, message("x")).await;
        let received = s.receive(ORDERS, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await;
        if sends {
            sent.unwrap();
        } else {
            assert!(!refused(sent, "EntityDisabled").retryable);
        }
        if receives {
            let seen = received.unwrap().remove(0);
            assert_eq!(seen.text(), "kept");
            s.abandon(ORDERS, &seen).await;
        } else {
            refused(received, "EntityDisabled");
        }
    }
    assert_eq!(s.drain(ORDERS).await, ["kept", "x", "x"]);
}

/// ENT-25
pub async fn locked_messages_can_be_settled_and_peeked_in_every_status(s: &Stage) {
    s.open_queue(ORDERS).await;
    for status in BLOCKING {
        let at = s.now().plus(days(1));
        let scheduled = s.schedule(ORDERS, message("scheduled"), at).await.unwrap();
        for text in ["a", "b", "c", "d"] {
            s.put(ORDERS, text).await;
        }
        let seen = s.take_all(ORDERS).await;
        set(s, status).await;
        s.advance(seconds(30)).await;
        assert_eq!(s.renew(ORDERS, seen[0].token()).await.unwrap(), s.now().plus(minutes(1)));
        for (seen, decision) in seen.iter().zip(Decision::all()) {
            s.settle(ORDERS, seen.token(), decision).await.unwrap();
        }
        assert_eq!(s.look(ORDERS).await.len(), 3);
        assert_eq!(s.look(DLQ).await.len(), 1);
        s.cancel(ORDERS, &[scheduled]).await.unwrap();
        assert_eq!(s.counts(ORDERS).await.total(), 3);
        s.delete(ORDERS).await.unwrap();
        s.open_queue(ORDERS).await;
    }
}

/// ENT-26
pub async fn schedules_and_time_to_live_run_in_every_status(s: &Stage) {
    for status in BLOCKING {
        s.open_queue(ORDERS).await;
        s.send(ORDERS, message("expires").with_time_to_live(seconds(30))).await.unwrap();
        s.schedule(ORDERS, message("due"), s.now().plus(seconds(10))).await.unwrap();
        s.put(ORDERS, "locked").await;
        set(s, status).await;
        s.advance(seconds(10)).await;
        assert_eq!(s.counts(ORDERS).await.scheduled, 0);
        s.advance(seconds(20)).await;
        set(s, EntityStatus::Active).await;
        assert_eq!(s.drain(ORDERS).await, ["locked", "due"]);
        s.delete(ORDERS).await.unwrap();
    }
}

/// ENT-25, ENT-26, SET-16
pub async fn locks_end_in_every_status(s: &Stage) {
    for status in BLOCKING {
        s.open_queue_with(ORDERS, max_delivery_count(1)).await;
        s.put(ORDERS, "a").await;
        s.take(ORDERS).await;
        set(s, status).await;
        s.advance(minutes(1)).await;
        assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
        s.delete(ORDERS).await.unwrap();
    }
}

/// ENT-28
pub async fn a_status_of_the_system_cannot_be_set(s: &Stage) {
    s.open_queue(ORDERS).await;
    for status in [
        EntityStatus::Unknown,
        EntityStatus::Restoring,
        EntityStatus::Creating,
        EntityStatus::Deleting,
        EntityStatus::Renaming,
    ] {
        let update = QueueUpdate { status: Some(status), ..QueueUpdate::default() };
        refused(s.update(ORDERS, update.clone()).await, "ArgumentError");
        refused(s.create("other", update).await, "ArgumentError");
    }
    assert_eq!(s.describe(ORDERS).await.unwrap().description.status, EntityStatus::Active);
}

/// ENT-29
pub async fn the_status_applies_to_the_dead_letter_queue_too(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    for (status, receives) in [
        (EntityStatus::Disabled, false),
        (EntityStatus::ReceiveDisabled, false),
        (EntityStatus::SendDisabled, true),
    ] {
        set(s, status).await;
        for path in [DLQ, TDLQ] {
            let received = s.receive(path, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await;
            let deleted = s.delete_batch(path, 10, Some(Timestamp::NONE)).await;
            if receives {
                for seen in received.unwrap() {
                    s.abandon(path, &seen).await;
                }
                assert_eq!(deleted.unwrap(), 0);
            } else {
                refused(received, "EntityDisabled");
                refused(deleted, "EntityDisabled");
            }
        }
        assert_eq!(s.look(DLQ).await.len(), 1);
    }
}

/// ENT-24: a waiting receive is refused.
pub async fn a_waiting_receive_is_refused_when_receiving_is_disabled(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let mode = ReceiveMode::PeekLock;
    let (received, ()) = tokio::join!(s.receive(ORDERS, mode, 1, minutes(1)), async {
        s.until_used(ORDERS).await;
        set(s, EntityStatus::ReceiveDisabled).await;
    });
    refused(received, "EntityDisabled");
}
