//! Tests of the duration of lock renewal, in a simulation whose time advances while all tasks are
//! idle.

use std::error::Error;
use std::sync::{Arc, Mutex};

use peeklock_client::{ConsumerOptions, Delivery, SessionConsumerOptions, SessionDelivery};
use peeklock_client_testing::{Simulation, World};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::Notify;

use crate::log::Log;

const LOCK: TimeSpan = TimeSpan::from_minutes(1);
const TOO_LONG: &str = "a lock is no longer renewed";

/// Times at which the handler got the message.
type Begun = Arc<Mutex<Vec<Timestamp>>>;

/// Runs a handler that takes `takes` for the first delivery of a message, and returns the times of
/// its deliveries.
fn begun(takes: TimeSpan, max: Option<TimeSpan>, by_session: bool) -> Vec<Timestamp> {
    let begun = Begun::default();
    let seen = Arc::clone(&begun);
    Simulation::new().seeds(0..1).mishaps_max(0).run(move |world| {
        seen.lock().unwrap().clear();
        work(world, Arc::clone(&seen), takes, max, by_session)
    });
    begun.lock().unwrap().clone()
}

async fn work(
    world: World,
    begun: Begun,
    takes: TimeSpan,
    max: Option<TimeSpan>,
    by_session: bool,
) -> Result<(), Box<dyn Error>> {
    let client = world.client();
    let properties = QueueUpdate {
        requires_session: Some(by_session),
        lock_duration: Some(LOCK),
        ..QueueUpdate::default()
    };
    client.admin().create_queue_with("orders", properties).await?;
    let clock = world.clone();
    let handle = move |count: u32| {
        begun.lock().unwrap().push(clock.now());
        async move {
            if count == 1 {
                tokio::time::sleep(takes.to_std()).await;
            }
            Ok(())
        }
    };
    if by_session {
        let mut options = SessionConsumerOptions::at_once(2);
        options.renewal_max = max.unwrap_or(options.renewal_max);
        let handler = move |step: SessionDelivery| handle(step.delivery_count());
        world.consume_sessions("orders", handler, options).await?;
    } else {
        let mut options = ConsumerOptions::at_once(2);
        options.renewal_max = max.unwrap_or(options.renewal_max);
        let handler = move |order: Delivery| handle(order.delivery_count());
        world.consume("orders", handler, options).await?;
    }
    client.sender("orders")?.send(Message::new("a").with_session_id("s")).await?;
    world.come_to_rest().await;
    Ok(())
}

/// SET-17, SES-14: the lock of a message or session is renewed within the time limit, 5 minutes by
/// default.
#[test]
fn a_lock_is_renewed_while_the_handler_runs() {
    for by_session in [false, true] {
        let (log, _guard) = Log::begin();
        let takes = TimeSpan::from_seconds(290);
        assert_eq!(begun(takes, None, by_session).len(), 1);
        let takes = TimeSpan::from_minutes(19);
        assert_eq!(begun(takes, Some(TimeSpan::from_minutes(20)), by_session).len(), 1);
        assert_eq!(log.text(), "");
    }
}

/// SET-28, SES-15: after the limit the lock expires with a warning, and the message is delivered
/// again.
#[test]
fn a_lock_is_not_renewed_for_ever() {
    for by_session in [false, true] {
        for (max, minutes) in [(None, 5), (Some(TimeSpan::from_minutes(2)), 2)] {
            let (log, _guard) = Log::begin();
            let begun = begun(TimeSpan::from_minutes(10), max, by_session);
            assert_eq!(begun.len(), 2);
            let (bound, after) = (TimeSpan::from_minutes(minutes), begun[1].since(begun[0]));
            assert!(after >= bound && after <= bound.plus(LOCK), "{after}");
            let line = log.line(TOO_LONG);
            let expected = ["WARN", "path=\"orders\"", "sequence_number=1"];
            assert!(expected.iter().all(|part| line.contains(part)), "{line}");
        }
    }
}

/// SET-28: without renewal the lock expires after its duration, without a warning.
#[test]
fn a_lock_without_renewal_expires() {
    for by_session in [false, true] {
        let (log, _guard) = Log::begin();
        let begun = begun(TimeSpan::from_minutes(10), Some(TimeSpan::ZERO), by_session);
        let after = begun[1].since(begun[0]);
        assert!(after >= LOCK && after <= LOCK.plus(TimeSpan::from_seconds(2)), "{after}");
        assert!(!log.text().contains(TOO_LONG));
    }
}

/// RCV-19: a message that has waited gets the whole time limit with its handler.
#[test]
fn the_time_begins_anew_with_the_handler() {
    let begun = Begun::default();
    let seen = Arc::clone(&begun);
    Simulation::new().seeds(0..1).mishaps_max(0).run(move |world| {
        seen.lock().unwrap().clear();
        one_after_the_other(world, Arc::clone(&seen))
    });
    assert_eq!(begun.lock().unwrap().len(), 2, "each is delivered once");
}

/// RCV-19, SET-28: the lock of a message that waits longer than the limit is no longer renewed, and
/// the log names the wait as the reason. Once the handler gets the message while the lock lasts,
/// the lock is renewed again.
#[test]
fn a_lock_is_renewed_again_once_its_handler_runs() {
    let begun = Begun::default();
    let (log, _guard) = Log::begin();
    let seen = Arc::clone(&begun);
    Simulation::new().seeds(0..1).mishaps_max(0).run(move |world| {
        seen.lock().unwrap().clear();
        work_off(world, Arc::clone(&seen), TimeSpan::from_seconds(320))
    });
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun.len(), 2, "each is delivered once: {begun:?}");
    let line = log.line("has waited too long");
    let expected = ["WARN", "path=\"orders\"", "sequence_number=2"];
    assert!(expected.iter().all(|part| line.contains(part)), "{line}");
    let too_long = log.text().matches(TOO_LONG).count();
    assert_eq!(too_long, 3, "{}", log.text());
}

/// SET-28: a message whose lock has expired while it waited is not given to the handler, because it
/// is delivered again.
#[test]
fn a_waiting_message_with_an_expired_lock_is_not_started() {
    for renewal in [TimeSpan::ZERO, TimeSpan::from_minutes(1)] {
        let (seen, counted) = (Arc::new(Mutex::new(Vec::new())), TimeSpan::from_minutes(3));
        let told = Arc::clone(&seen);
        Simulation::new().seeds(0..1).mishaps_max(0).run(move |world| {
            told.lock().unwrap().clear();
            hold_up(world, Arc::clone(&told), counted, renewal)
        });
        let seen = seen.lock().unwrap().clone();
        let b: Vec<_> = seen.iter().filter(|(body, _)| body == "b").map(|(_, n)| *n).collect();
        assert_eq!(b, [2], "its first delivery was over before it was begun: {seen:?}");
    }
}

/// Runs a handler whose first delivery of the first message takes `takes`, and so delays the second
/// message.
async fn hold_up(
    world: World,
    seen: Arc<Mutex<Vec<(String, u32)>>>,
    takes: TimeSpan,
    renewal_max: TimeSpan,
) -> Result<(), Box<dyn Error>> {
    let client = world.client();
    let lock = QueueUpdate { lock_duration: Some(LOCK), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", lock).await?;
    for body in ["a", "b"] {
        client.sender("orders")?.send(Message::new(body)).await?;
    }
    let handler = move |order: Delivery| {
        let body = String::from_utf8(order.body().to_vec()).unwrap();
        let is_first = body == "a" && order.delivery_count() == 1;
        seen.lock().unwrap().push((body, order.delivery_count()));
        async move {
            if is_first {
                tokio::time::sleep(takes.to_std()).await;
            }
            Ok(())
        }
    };
    let options = ConsumerOptions::at_once(1).with_prefetch(1).with_renewal_max(renewal_max);
    world.consume("orders", handler, options).await?;
    world.come_to_rest().await;
    Ok(())
}

/// SET-18, SET-28: next to a lock with a long duration, locks received after LockDuration was
/// lowered are renewed in time, so no other receiver gets their messages.
#[test]
fn a_shorter_lock_does_not_wait_for_a_longer_one() {
    let begun = Begun::default();
    let seen = Arc::clone(&begun);
    Simulation::new().seeds(0..1).mishaps_max(0).run(move |world| {
        seen.lock().unwrap().clear();
        lower(world, Arc::clone(&seen))
    });
    assert_eq!(begun.lock().unwrap().len(), 2, "each is delivered once");
}

/// Sends the second of two messages after LockDuration was lowered, while the first is with its
/// handler.
async fn lower(world: World, begun: Begun) -> Result<(), Box<dyn Error>> {
    let client = world.client();
    let lasting = |span| QueueUpdate { lock_duration: Some(span), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", lasting(TimeSpan::from_minutes(5))).await?;
    let (clock, first) = (world.clone(), Arc::new(Notify::new()));
    let is_begun = Arc::clone(&first);
    let handler = move |_: Delivery| {
        begun.lock().unwrap().push(clock.now());
        is_begun.notify_one();
        async {
            tokio::time::sleep(LOCK.to_std()).await;
            Ok(())
        }
    };
    world.consume("orders", handler, ConsumerOptions::at_once(2)).await?;
    client.sender("orders")?.send(Message::new("a")).await?;
    first.notified().await;
    client.admin().update_queue("orders", lasting(TimeSpan::from_seconds(5))).await?;
    client.sender("orders")?.send(Message::new("b")).await?;
    world.come_to_rest().await;
    Ok(())
}

async fn one_after_the_other(world: World, begun: Begun) -> Result<(), Box<dyn Error>> {
    work_off(world, begun, TimeSpan::from_minutes(4)).await
}

/// Processes two messages, one at a time, each for `takes`; the other waits.
async fn work_off(world: World, begun: Begun, takes: TimeSpan) -> Result<(), Box<dyn Error>> {
    let client = world.client();
    let lock = QueueUpdate { lock_duration: Some(LOCK), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", lock).await?;
    for body in ["a", "b"] {
        client.sender("orders")?.send(Message::new(body)).await?;
    }
    let clock = world.clone();
    let handler = move |_: Delivery| {
        begun.lock().unwrap().push(clock.now());
        async move {
            tokio::time::sleep(takes.to_std()).await;
            Ok(())
        }
    };
    let options = ConsumerOptions::at_once(1).with_prefetch(1);
    world.consume("orders", handler, options).await?;
    world.come_to_rest().await;
    Ok(())
}
