//! The timer of a session: the end of its lock, and of the calls of its holder.

use std::sync::Arc;

use peeklock_core::command::Outcome;
use peeklock_core::condition::Condition;
use peeklock_core::time::TimeSpan;

use crate::stand::{LOCK, Log, Stand, receive, submit};

/// RCV-11, DESIGN D3: a waiting call ends in time without further commands. The lock stays.
#[tokio::test]
async fn a_call_ends_by_the_timer_of_its_session() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    let log = Arc::new(Log::default());
    let calls = [30, 10, 20].map(|seconds| {
        let command = receive(TimeSpan::from_seconds(seconds));
        (held.command(command), log.reply(u64::try_from(seconds).unwrap()))
    });
    submit(&held.entity, calls.into());
    assert_eq!(held.renewal().await, Ok(()));
    for number in [10, 20, 30] {
        stand.clock.advance(TimeSpan::from_seconds(10));
        let answers = log.answers(1).await;
        assert_eq!(answers.len(), 1);
        let (of, answer) = answers.into_iter().next().unwrap();
        assert_eq!(of, number);
        assert!(matches!(answer, Ok(Outcome::Received(messages)) if messages.is_empty()));
    }
    assert_eq!(held.renewal().await, Ok(()));
    stand.stop().await;
}

/// SES-13, SES-15, SES-30: the timer of the session ends its lock: waiting calls get errors
/// immediately, deliveries are counted, and the actor ends.
#[tokio::test]
async fn a_lock_ends_by_the_timer_of_its_session() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let message = held.receive(TimeSpan::ZERO).await.unwrap().remove(0);
    let log = Arc::new(Log::default());
    let waits = held.command(receive(TimeSpan::from_seconds(600)));
    submit(&held.entity, vec![(waits, log.reply(0))]);
    stand.clock.advance(TimeSpan::from_seconds(30));
    assert_eq!(held.renewal().await, Ok(()), "a renewal moves the end");
    stand.clock.advance(TimeSpan::from_seconds(59));
    assert_eq!(stand.locked_count().await, 1);
    assert!(log.is_empty());
    stand.clock.advance(TimeSpan::from_seconds(1));
    let (_, answer) = log.answers(1).await.remove(0);
    assert_eq!(answer.unwrap_err(), Condition::SessionLockLost);
    stand.actors(0).await;
    assert_eq!(stand.locked_count().await, 0);
    let late = held.complete(message.facts.lock.unwrap().token).await.unwrap_err();
    assert_eq!(late.condition(), Condition::SessionLockLost);
    let next = stand.accept("a").await.unwrap();
    let again = next.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(again[0].facts.delivery_count, 1);
    stand.stop().await;
}

/// SES-16: the locks of several sessions each end at their own time.
#[tokio::test]
async fn each_session_has_a_timer_of_its_own() {
    let stand = Stand::new().await;
    let first = stand.accept("a").await.unwrap();
    stand.clock.advance(TimeSpan::from_seconds(20));
    let second = stand.accept("b").await.unwrap();
    stand.clock.advance(TimeSpan::from_seconds(20));
    let third = stand.accept("c").await.unwrap();
    assert_eq!(second.renewal().await, Ok(()));
    stand.clock.advance(TimeSpan::from_seconds(20));
    stand.actors(2).await;
    assert_eq!(first.renewal().await, Err(Condition::SessionLockLost));
    assert_eq!(second.renewal().await, Ok(()));
    stand.clock.advance(TimeSpan::from_seconds(40));
    stand.actors(1).await;
    assert_eq!(third.renewal().await, Err(Condition::SessionLockLost));
    assert_eq!(second.renewal().await, Ok(()));
    stand.clock.advance(LOCK);
    stand.actors(0).await;
    stand.stop().await;
}
