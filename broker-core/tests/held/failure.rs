//! A fault in the turn of a session ends the whole tree, which is rebuilt (DESIGN D3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::command::{Command, LinkEnd, Outcome, SessionCommand};
use peeklock_core::condition::Condition;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

use crate::stand::{Log, Stand, receive, submit};

/// DESIGN D3, SES-18: a panic in the turn of one session ends all sessions. The rebuilt queue
/// answers commands in their inlets, permits are returned, and messages are there.
#[tokio::test]
async fn a_panic_in_the_turn_of_a_session_ends_the_tree() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let (held, other) = (stand.accept("a").await.unwrap(), stand.accept("b").await.unwrap());
    let waiting = Arc::new(Log::default());
    let waits = other.command(receive(TimeSpan::from_seconds(60)));
    submit(&other.entity, vec![(waits, waiting.reply(0))]);
    assert_eq!(other.renewal().await, Ok(()));

    stand.store.panics.store(1, Ordering::SeqCst);
    let log = Arc::new(Log::default());
    let budget = stand.broker.connection_budget();
    let reply = |number| log.reply_with(number, budget.try_take(COMMAND_BYTES));
    let go_on = stand.hold_up();
    // The call is served at the end of its turn, after the other commands.
    let renew = |number| (held.command(SessionCommand::Renew), reply(number));
    let receive = (held.command(receive(TimeSpan::ZERO)), reply(0));
    submit(&held.entity, [receive].into_iter().chain((1..600).map(renew)).collect());
    let renew = |number| (other.command(SessionCommand::Renew), reply(number));
    submit(&other.entity, (600..900).map(renew).collect());
    drop(go_on);
    let mut answers = log.answers(900).await;
    answers.sort_by_key(|(number, _)| *number);
    for (number, answer) in answers {
        match number {
            // Their turn panicked.
            0..256 => assert_eq!(answer.unwrap_err(), Condition::InternalError, "{number}"),
            _ => assert_eq!(answer.unwrap_err(), Condition::SessionLockLost, "{number}"),
        }
    }
    let (_, answer) = waiting.answers(1).await.remove(0);
    assert_eq!(answer.unwrap_err(), Condition::InternalError);
    stand.actors(0).await;
    let all = stand.broker.settings().limits.connection_inbound_bytes_max;
    assert!(budget.try_take(all).is_some(), "every permit is back");

    let again = stand.accept("a").await.unwrap();
    let messages = again.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!((messages.len(), messages[0].facts.delivery_count), (1, 0));
    again.complete(messages[0].facts.lock.unwrap().token).await.unwrap();
    stand.stop().await;
}

/// DESIGN D3, SES-18: so does a failed append of a session's changes.
#[tokio::test]
async fn a_failed_append_of_a_session_ends_the_tree() {
    let stand = Stand::new().await;
    let (held, other) = (stand.accept("a").await.unwrap(), stand.accept("b").await.unwrap());
    let state = |state: &'static str| SessionCommand::SetState { state: Some(state.into()) };
    held.ask(state("first")).await.unwrap();
    stand.store.failures.store(1, Ordering::SeqCst);
    let failed = held.ask(state("second")).await.unwrap_err();
    assert_eq!((failed.condition(), failed.retryable()), (Condition::InternalError, true));
    for lost in [&held, &other] {
        assert_eq!(lost.renewal().await, Err(Condition::SessionLockLost));
    }
    stand.actors(0).await;
    let again = stand.accept("a").await.unwrap();
    let Outcome::SessionState(Some(state)) = again.ask(SessionCommand::GetState).await.unwrap()
    else {
        panic!("the last durable state is there");
    };
    assert_eq!(state.load().await.unwrap(), "first");
    stand.stop().await;
}

/// DESIGN D11, SES-15: a state that waits for room when its session is lost is refused, and later
/// commands are answered.
#[tokio::test]
async fn a_waiting_state_does_not_outlive_its_session() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    stand.store.busy.store(u32::MAX, Ordering::SeqCst);
    let log = Arc::new(Log::default());
    let state = SessionCommand::SetState { state: Some("late".into()) };
    let behind = (held.command(SessionCommand::GetState), log.reply(1));
    submit(&held.entity, vec![(held.command(state), log.reply(0)), behind]);
    stand.store.refused().await;
    submit(&held.entity, vec![(held.command(SessionCommand::Renew), log.reply(2))]);
    stand.clock.advance(crate::stand::LOCK);
    let answers = log.answers(3).await;
    let refused = |answer: &(u64, Result<Outcome, Condition>)| {
        matches!(answer.1, Err(Condition::SessionLockLost | Condition::ServerBusy))
    };
    assert!(answers.iter().all(refused), "{answers:?}");
    stand.actors(0).await;
    stand.store.make_room();
    stand.stop().await;
}

/// DESIGN D3, SES-08: a panic in the turn of the queue that releases a session loses no waiting
/// command: the rebuilt queue carries it out.
#[tokio::test]
async fn a_panic_while_a_session_is_released_loses_no_command() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    stand.store.panics.store(1, Ordering::SeqCst);
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    // The queue is woken first, and processes the end of the hold before the session has its turn.
    submit(&stand.queue, vec![(Command::Describe, log.reply(0))]);
    submit(&held.entity, vec![(held.command(receive(TimeSpan::ZERO)), log.reply(1))]);
    submit(&held.entity, vec![(held.detach(LinkEnd::Orderly), log.reply(2))]);
    submit(&stand.queue, vec![(stand.accept_command(Some("a")).1, log.reply(3))]);
    submit(&stand.queue, vec![(Command::Describe, log.reply(4))]);
    drop(go_on);
    let mut answers = log.answers(5).await;
    answers.sort_by_key(|(number, _)| *number);
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    assert!(answers.next().unwrap().is_ok());
    assert_eq!(answers.next().unwrap().unwrap_err(), Condition::InternalError);
    assert!(answers.next().unwrap().is_ok(), "there is nothing to let go any more");
    let again = stand.held(answers.next().unwrap().unwrap());
    assert!(answers.next().unwrap().is_ok());
    assert_eq!(again.receive(TimeSpan::ZERO).await.unwrap().len(), 1);
    stand.stop().await;
}

/// DESIGN D3: nothing of the old queue remains after a rebuild.
#[tokio::test]
async fn a_rebuilt_queue_keeps_nothing_of_the_old_one() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    held.renewal().await.unwrap();
    // The gauges are referenced by the queue, its session, their opener and this test.
    let (known, own) = (|| Arc::strong_count(&stand.observed), 1);
    let before = known();
    for _ in 0..2 {
        stand.store.failures.store(1, Ordering::SeqCst);
        let message = stand.broker.inbound(Message::new("body").with_session_id("a"));
        stand.queue.call(Command::Send { message }).await.unwrap_err();
        assert_eq!(stand.locked_count().await, 0);
        while known() != before - own {
            tokio::task::yield_now().await;
        }
    }
    stand.stop().await;
}
