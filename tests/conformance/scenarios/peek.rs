//! Browsing (file 08, "Browsing").

use super::*;

/// PEK-01, PEK-02, PEK-04
pub async fn peek_shows_messages_by_number_without_changing_them(s: &Stage) {
    s.open_queue(ORDERS).await;
    assert!(s.peek(ORDERS, 0, 10).await.unwrap().is_empty());
    for text in ["a", "b", "c", "d"] {
        s.put(ORDERS, text).await;
    }
    for _ in 0..2 {
        assert_eq!(texts(&s.peek(ORDERS, 0, 3).await.unwrap()), ["a", "b", "c"]);
    }
    assert_eq!(texts(&s.peek(ORDERS, 2, 2).await.unwrap()), ["b", "c"]);
    assert_eq!(texts(&s.peek(ORDERS, 4, 10).await.unwrap()), ["d"]);
    assert!(s.peek(ORDERS, 5, 10).await.unwrap().is_empty());
    let received = s.take_all(ORDERS).await;
    assert!(received.iter().all(|seen| seen.delivery_count == 1));
    assert_eq!(received.len(), 4);
}

/// PEK-03, PEK-05, PEK-06
pub async fn peek_shows_messages_in_every_state_of_one_sub_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "dead").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.put(ORDERS, "locked").await;
    s.take(ORDERS).await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(days(1))).await.unwrap();
    s.send(ORDERS, message("expired").with_time_to_live(seconds(1))).await.unwrap();
    s.put(ORDERS, "active").await;
    s.advance(seconds(1)).await;
    let peeked = s.look(ORDERS).await;
    assert_eq!(texts(&peeked), ["deferred", "locked", "scheduled", "expired", "active"]);
    let states: Vec<MessageState> = peeked.iter().map(|seen| seen.state).collect();
    let (active, deferred, scheduled) =
        (MessageState::Active, MessageState::Deferred, MessageState::Scheduled);
    assert_eq!(states, [deferred, active, scheduled, active, active]);
    assert!(peeked.iter().all(|seen| seen.lock_token.is_none() && seen.locked_until.is_none()));
    assert_eq!(texts(&s.look(DLQ).await), ["dead"]);
    assert!(s.look(TDLQ).await.is_empty());
}

/// PEK-08
pub async fn one_peek_shows_at_most_250_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    for _ in 0..3 {
        s.send_batch(ORDERS, (0..100).map(|_| message("x")).collect()).await.unwrap();
    }
    let peeked = s.peek(ORDERS, 0, 1_000).await.unwrap();
    assert_eq!(sequences(&peeked), (1..=250).collect::<Vec<_>>());
    assert_eq!(s.peek(ORDERS, 251, 1_000).await.unwrap().len(), 50);
}

/// PEK-08
pub async fn one_peek_shows_at_most_a_mebibyte_but_always_one_message(s: &Stage) {
    s.open_queue(ORDERS).await;
    for id in ["a", "b", "c"] {
        s.send(ORDERS, sized(MIB / 2, id)).await.unwrap();
    }
    s.send(ORDERS, sized(MIB, "d")).await.unwrap();
    assert_eq!(sequences(&s.peek(ORDERS, 0, 10).await.unwrap()), [1, 2]);
    assert_eq!(sequences(&s.peek(ORDERS, 3, 10).await.unwrap()), [3]);
    assert_eq!(sequences(&s.peek(ORDERS, 4, 10).await.unwrap()), [4]);
}

/// A peek must request at least one message (ERR-01).
pub async fn a_peek_for_no_message_is_refused(s: &Stage) {
    s.open_queue(ORDERS).await;
    refused(s.peek(ORDERS, 0, 0).await, "ArgumentOutOfRange");
}
