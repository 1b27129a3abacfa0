//! Every end of the hold of a session: its actor ends, and commands through its inlet are still
//! answered.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::command::{Command, LinkEnd, ReceiveMode, SessionCommand};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::time::TimeSpan;

use crate::stand::{Held, Log, Stand, receive, submit};

/// SES-13, SES-15, SES-31, SES-33: a session that is closed or broken off, through its own inlet or
/// through the queue.
#[tokio::test]
async fn a_released_session_has_no_actor() {
    let stand = Stand::new().await;
    for end in [LinkEnd::Orderly, LinkEnd::Broken, LinkEnd::ByBroker] {
        for past in [false, true] {
            let held = stand.accept("a").await.unwrap();
            stand.actors(1).await;
            let by = if past { &stand.queue } else { &held.entity };
            by.call(held.detach(end)).await.unwrap();
            stand.actors(0).await;
            assert_eq!(held.renewal().await, Err(Condition::SessionLockLost));
            held.entity.call(held.detach(end)).await.unwrap();
        }
    }
    stand.stop().await;
}

/// SES-08: a session that is accepted for a dropped caller is released.
#[tokio::test]
async fn a_session_accepted_for_a_dropped_caller_is_released() {
    let stand = Stand::new().await;
    let (_, command) = stand.accept_command(Some("a"));
    let go_on = stand.hold_up();
    let queue = stand.queue.clone();
    let accepting = tokio::spawn(async move { queue.call(command).await });
    tokio::task::yield_now().await;
    accepting.abort();
    assert!(accepting.await.unwrap_err().is_cancelled());
    drop(go_on);
    stand.send("a").await;
    let receiver = stand.broker.receiver_id();
    let next = Command::AcceptSession {
        session: None,
        receiver,
        mode: ReceiveMode::PeekLock,
        wait: TimeSpan::from_seconds(60),
    };
    let held = stand.held(stand.queue.call(next).await.unwrap());
    let messages = held.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(messages[0].facts.delivery_count, 0);
    stand.actors(1).await;
    stand.stop().await;
}

/// RCV-14, SES-15: commands after the end of a hold, in the same group and in later ones, are
/// answered in order and return their permits.
#[tokio::test]
async fn commands_after_the_end_of_a_hold_are_answered() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    let log = Arc::new(Log::default());
    let budget = stand.broker.connection_budget();
    let go_on = stand.hold_up();
    let permit = || budget.try_take(COMMAND_BYTES);
    let renew = |number| (held.command(SessionCommand::Renew), log.reply_with(number, permit()));
    let end = (held.detach(LinkEnd::Orderly), log.reply_with(300, permit()));
    submit(&held.entity, (0..300).map(renew).chain([end]).chain((301..600).map(renew)).collect());
    submit(&held.entity, (600..900).map(renew).collect());
    drop(go_on);
    let answers = log.answers(900).await;
    for (place, (number, answer)) in (0..).zip(answers) {
        assert_eq!(number, place);
        match number {
            0..=300 => assert!(answer.is_ok()),
            _ => assert_eq!(answer.unwrap_err(), Condition::SessionLockLost),
        }
    }
    stand.actors(0).await;
    let all = stand.broker.settings().limits.connection_inbound_bytes_max;
    assert!(budget.try_take(all).is_some(), "every permit is back");
    stand.stop().await;
}

/// Starts a receive that waits in the session; the answer to a later command shows that it does.
async fn wait(held: &Held) -> Arc<Log> {
    let log = Arc::new(Log::default());
    let waits = held.command(receive(TimeSpan::from_seconds(60)));
    submit(&held.entity, vec![(waits, log.reply(0))]);
    assert_eq!(held.renewal().await, Ok(()));
    log
}

/// ENT-14: deleting a queue ends its sessions. Waiting calls and later commands get errors.
#[tokio::test]
async fn a_deleted_queue_leaves_no_actor() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    let log = wait(&held).await;
    stand.broker.delete_entity("orders").await.unwrap();
    let (_, answer) = log.answers(1).await.remove(0);
    assert_eq!(answer.unwrap_err(), Condition::EntityNotFound);
    assert_eq!(held.renewal().await, Err(Condition::EntityNotFound));
    stand.actors(0).await;
    stand.stop().await;
}

/// ENT-24, ENT-25: disabling a queue ends waiting calls but not the hold.
#[tokio::test]
async fn a_disabled_queue_leaves_the_session_to_its_holder() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let message = held.receive(TimeSpan::ZERO).await.unwrap().remove(0);
    let log = wait(&held).await;
    let status = |status| QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    let disabled = status(EntityStatus::ReceiveDisabled);
    stand.broker.update_queue("orders", disabled, None).await.unwrap();
    let (_, answer) = log.answers(1).await.remove(0);
    assert_eq!(answer.unwrap_err(), Condition::EntityDisabled);
    assert_eq!(held.renewal().await, Ok(()));
    held.complete(message.facts.lock.unwrap().token).await.unwrap();
    let active = status(EntityStatus::Active);
    stand.broker.update_queue("orders", active, None).await.unwrap();
    held.ask(SessionCommand::Attach).await.unwrap();
    assert!(held.receive(TimeSpan::ZERO).await.unwrap().is_empty());
    stand.actors(1).await;
    stand.stop().await;
}

/// SES-31: a graceful stop ends waiting calls immediately and leaves time to settle. Then the
/// actors end.
#[tokio::test]
async fn a_stop_ends_waits_and_then_actors() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let message = held.receive(TimeSpan::ZERO).await.unwrap().remove(0);
    let log = wait(&held).await;
    let broker = stand.broker.clone();
    let settle = async {
        let (_, answer) = log.answers(1).await.remove(0);
        assert!(answer.is_ok(), "a receive that waits ends with nothing");
        held.complete(message.facts.lock.unwrap().token).await.unwrap();
    };
    let grace = Duration::from_millis(200);
    let (stopped, ()) = tokio::join!(broker.stop(grace), settle);
    stopped.unwrap();
    stand.actors(0).await;
    let late = held.entity.call(Command::Describe).await.unwrap_err();
    assert_eq!(late.condition(), Condition::OperationCancelled);
}

/// SES-31: a stop waits while something is held, a message or only its session, and no longer,
/// regardless of its grace.
#[tokio::test]
async fn a_stop_ends_with_the_last_hold() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let message = held.receive(TimeSpan::ZERO).await.unwrap().remove(0);
    let broker = stand.broker.clone();
    let stopping = tokio::spawn(async move { broker.stop(Duration::from_secs(3_600)).await });
    for is_locked in [true, false] {
        tokio::task::yield_now().await;
        stand.broker.idle().await;
        assert!(!stopping.is_finished());
        if is_locked {
            held.complete(message.facts.lock.unwrap().token).await.unwrap();
        }
    }
    held.entity.call(held.detach(LinkEnd::Orderly)).await.unwrap();
    stopping.await.unwrap().unwrap();
}
