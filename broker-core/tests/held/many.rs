//! Many sessions: ended holds leave nothing, and ten thousand sessions can be held at the same
//! time.

use std::sync::Arc;

use peeklock_core::command::{LinkEnd, SessionCommand};
use peeklock_core::time::TimeSpan;

use crate::stand::{Held, LOCK, Log, Stand, submit};

const HELD: u64 = 10_000;
const ROUNDS: u64 = 10;

/// Accepts `count` sessions at the same time, by their ids.
async fn accept(stand: &Stand, count: u64, first: u64) -> Vec<Held> {
    let log = Arc::new(Log::default());
    let command = |number: u64| {
        let session = format!("session {}", first + number);
        (stand.accept_command(Some(&session)).1, log.reply(number))
    };
    submit(&stand.queue, (0..count).map(command).collect());
    let mut answers = log.answers(usize::try_from(count).unwrap()).await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| stand.held(answer.unwrap())).collect()
}

/// SES-16, DESIGN D3: ten thousand sessions are held at the same time, each by its own actor, and
/// each works. Their own timers end their locks, and nothing remains.
#[tokio::test]
async fn ten_thousand_sessions_are_held_at_once() {
    let stand = Stand::new().await;
    let held = accept(&stand, HELD, 0).await;
    assert_eq!(stand.observed.session_actors(), HELD);
    assert_eq!(stand.locked_count().await, HELD);
    stand.send("session 4711").await;
    assert_eq!(held[4711].receive(TimeSpan::from_seconds(5)).await.unwrap().len(), 1);
    let log = Arc::new(Log::default());
    for (one, number) in held.iter().zip(0..) {
        submit(&one.entity, vec![(one.command(SessionCommand::Renew), log.reply(number))]);
    }
    let answers = log.answers(usize::try_from(HELD).unwrap()).await;
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
    stand.clock.advance(LOCK);
    stand.actors(0).await;
    assert_eq!(stand.locked_count().await, 0);
    stand.stop().await;
}

/// SES-04, DESIGN D3: a hundred thousand accepted and released sessions leave no actor, inlet or
/// entry.
#[tokio::test]
async fn a_hundred_thousand_released_sessions_leave_nothing() {
    let stand = Stand::in_real_time().await;
    for round in 0..ROUNDS {
        let held = accept(&stand, HELD, round * HELD).await;
        let log = Arc::new(Log::default());
        for (one, number) in held.iter().zip(0..) {
            submit(&one.entity, vec![(one.detach(LinkEnd::Orderly), log.reply(number))]);
        }
        let answers = log.answers(usize::try_from(HELD).unwrap()).await;
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
    }
    stand.actors(0).await;
    let described = stand.broker.describe_queue("orders").await.unwrap();
    let sessions = described.sessions.unwrap();
    assert_eq!((sessions.existing, sessions.locked), (0, 0));
    stand.stop().await;
}
