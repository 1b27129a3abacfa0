//! Tests of request and reply as a call: requesters, responders, and leftovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use peeklock_client::{
    Consumer, ConsumerOptions, Failure, Job, JobError, JobType, Refusal, RequestError,
    RequesterOptions, ResponseError, job_message,
};
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::condition::Condition;
use peeklock_core::description::Settings;
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::local::Local;

const WAIT: TimeSpan = TimeSpan::from_seconds(30);
const SHORT: TimeSpan = TimeSpan::from_ms(20);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Order {
    cups: u32,
}

impl JobType for Order {
    const NAME: &'static str = "order";
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Total {
    cents: u32,
}

impl JobType for Total {
    const NAME: &'static str = "total";
}

async fn client() -> (Arc<ManualClock>, Local) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker = Broker::builder().arbiters(1).clock(Arc::clone(&clock) as Arc<_>);
    let client = Local::new(broker.start().await.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    (clock, client)
}

/// Starts a responder that returns the price of each order, after a permit of the gate.
async fn priced(client: &Local, gate: &Arc<Semaphore>) -> Consumer {
    let gate = Arc::clone(gate);
    let handler = client.responder(move |order: Job<Order>| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, ResponseError>(Total { cents: order.value.cups * 250 })
        }
    });
    client.consume("orders", handler, ConsumerOptions::default()).await.unwrap()
}

async fn left(client: &Local, queue: &str) -> u64 {
    client.admin().queue(queue).await.unwrap().counts.total()
}

/// SES-34: each request gets its own reply; requests over the limit wait for places.
#[tokio::test]
async fn every_request_gets_its_own_reply() {
    let (_, client) = client().await;
    let gate = Arc::new(Semaphore::new(1_000));
    let consumer = priced(&client, &gate).await;
    let requester = client.requester("replies", RequesterOptions::at_once(2)).await.unwrap();
    let totals =
        join_all(
            (0..40).map(|cups| {
                let requester = requester.clone();
                async move {
                    requester.request::<_, Total>("orders", &Order { cups }, WAIT).await.unwrap()
                }
            }),
        )
        .await;
    let expected: Vec<_> = (0..40).map(|cups| Total { cents: cups * 250 }).collect();
    assert_eq!(totals, expected);
    consumer.stop().await;
    assert_eq!(left(&client, "orders").await, 0);
    requester.close().await;
    client.stop().await;
}

/// A request over the limit is not sent, and its timeout runs.
#[tokio::test]
async fn a_request_waits_for_its_turn_within_its_time_out() {
    let (_, client) = client().await;
    let requester = client.requester("replies", RequesterOptions::at_once(1)).await.unwrap();
    let first = {
        let requester = requester.clone();
        tokio::spawn(async move {
            requester.request::<_, Total>("orders", &Order { cups: 1 }, WAIT).await
        })
    };
    while left(&client, "orders").await == 0 {
        tokio::task::yield_now().await;
    }
    let second = requester.request::<_, Total>("orders", &Order { cups: 2 }, SHORT).await;
    assert!(matches!(second, Err(RequestError::Timeout)), "{second:?}");
    assert_eq!(left(&client, "orders").await, 1);
    let gate = Arc::new(Semaphore::new(9));
    let consumer = priced(&client, &gate).await;
    assert_eq!(first.await.unwrap().unwrap(), Total { cents: 250 });
    consumer.stop().await;
    client.stop().await;
}

/// TMP-20: an absent reply queue is created as a temporary one; several requesters share it.
#[tokio::test]
async fn the_reply_queue_is_made_and_shared() {
    let (_, client) = client().await;
    let options = RequesterOptions::default();
    let (one, other) = (
        client.requester("replies", options).await.unwrap(),
        client.requester("replies", options).await.unwrap(),
    );
    let made = client.admin().queue("replies").await.unwrap().description;
    assert_eq!(
        (made.requires_session, made.auto_delete_on_idle),
        (true, TimeSpan::from_minutes(5))
    );
    let gate = Arc::new(Semaphore::new(9));
    let consumer = priced(&client, &gate).await;
    for (requester, cups) in [(&one, 1), (&other, 2), (&one, 3)] {
        let total: Total = requester.request("orders", &Order { cups }, WAIT).await.unwrap();
        assert_eq!(total.cents, cups * 250);
    }
    let without_sessions = client.requester("orders", options).await.map(drop).unwrap_err();
    assert_eq!(without_sessions.condition(), Condition::InvalidOperation);
    consumer.stop().await;
    client.stop().await;
}

/// Each failure of a responder has its own error: a failure from its handler, a request that it
/// cannot read, which is also dead-lettered, and a reply of another type.
#[tokio::test]
async fn a_requester_gets_the_kind_of_failure() {
    let (_, client) = client().await;
    let handler = client.responder(|order: Job<Order>| async move {
        match order.value.cups {
            0 => Ok(Order { cups: 0 }),
            cups => Err(Failure::new("OutOfStock", format!("{cups} are too many")).into()),
        }
    });
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let failed = requester.request::<_, Total>("orders", &Order { cups: 9 }, WAIT).await;
    match failed {
        Err(RequestError::Failed(failure)) => {
            assert_eq!(failure, Failure::new("OutOfStock", "9 are too many"));
        }
        other => panic!("{other:?}"),
    }
    let other = requester.request::<_, Total>("orders", &Order { cups: 0 }, WAIT).await;
    assert!(matches!(other, Err(RequestError::Reply(JobError::Type { .. }))), "{other:?}");
    assert_eq!(left(&client, "orders").await, 0);
    let unread = requester.request::<_, Total>("orders", &Total { cents: 1 }, WAIT).await;
    match unread {
        Err(RequestError::Failed(failure)) => assert_eq!(failure.reason, "JobTypeNotExpected"),
        other => panic!("{other:?}"),
    }
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    let letter = dead.receive(WAIT).await.unwrap().unwrap();
    assert_eq!(letter.dead_letter_reason(), Some("JobTypeNotExpected"));
    let nowhere = requester.request::<_, Total>("nowhere", &Order { cups: 1 }, WAIT).await;
    match nowhere {
        Err(RequestError::Broker(error)) => {
            assert_eq!(error.condition(), Condition::EntityNotFound);
        }
        other => panic!("{other:?}"),
    }
    consumer.stop().await;
    client.stop().await;
}

/// A request that a handler refuses is delivered again. A request without ReplyTo is completed.
#[tokio::test]
async fn a_refused_request_comes_again() {
    let (_, client) = client().await;
    let count = Arc::new(AtomicUsize::new(0));
    let handler = {
        let count = Arc::clone(&count);
        client.responder(move |order: Job<Order>| {
            let is_first = count.fetch_add(1, SeqCst) == 0;
            async move {
                match is_first {
                    true => Err(ResponseError::Refused(Refusal::abandon())),
                    false => Ok(Total { cents: order.message.delivery_count() }),
                }
            }
        })
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::at_once(1)).await.unwrap();
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let total: Total = requester.request("orders", &Order { cups: 1 }, WAIT).await.unwrap();
    assert_eq!(total.cents, 2);
    client.sender("orders").unwrap().send_job(&Order { cups: 1 }).await.unwrap();
    while left(&client, "orders").await > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count.load(SeqCst), 3);
    assert_eq!(left(&client, "replies").await, 0);
    consumer.stop().await;
    client.stop().await;
}

/// A reply after the timeout is taken and dropped, and does not block others.
#[tokio::test]
async fn a_reply_after_the_time_out_is_dropped() {
    let (_, client) = client().await;
    let gate = Arc::new(Semaphore::new(0));
    let consumer = priced(&client, &gate).await;
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let late = requester.request::<_, Total>("orders", &Order { cups: 1 }, SHORT).await;
    assert!(matches!(late, Err(RequestError::Timeout)), "{late:?}");
    gate.add_permits(2);
    let total: Total = requester.request("orders", &Order { cups: 2 }, WAIT).await.unwrap();
    assert_eq!(total.cents, 500);
    consumer.stop().await;
    while left(&client, "replies").await > 0 {
        tokio::task::yield_now().await;
    }
    client.stop().await;
}

/// EXP-07: a request that timed out is not handled any more, and its unread reply expires: both
/// have the timeout as their time to live.
#[tokio::test]
async fn a_time_out_leaves_nothing_behind() {
    let (clock, client) = client().await;
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let lost = requester.request::<_, Total>("orders", &Order { cups: 1 }, SHORT).await;
    assert!(matches!(lost, Err(RequestError::Timeout)), "{lost:?}");
    let orders = client.receiver("orders").unwrap();
    let seen = orders.peek(peeklock_core::ids::SequenceNumber(0), 9).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].own_time_to_live(), Some(SHORT));
    clock.advance(SHORT);
    assert!(orders.receive(TimeSpan::ZERO).await.unwrap().is_none());
    assert_eq!(left(&client, "orders").await, 0);
    requester.close().await;

    // A requester has sent a request and is gone when the reply is sent.
    let gate = Arc::new(Semaphore::new(9));
    let asked = job_message(&Order { cups: 1 })
        .unwrap()
        .with_message_id("m")
        .with_reply_to("replies")
        .with_reply_to_session_id("gone")
        .with_time_to_live(WAIT);
    client.sender("orders").unwrap().send(asked).await.unwrap();
    let consumer = priced(&client, &gate).await;
    while left(&client, "replies").await == 0 {
        tokio::task::yield_now().await;
    }
    consumer.stop().await;
    clock.advance(WAIT);
    let gone = client.accept_session("replies", "gone").await.unwrap();
    assert!(gone.receive(TimeSpan::ZERO).await.unwrap().is_none());
    assert_eq!(left(&client, "replies").await, 0);
    client.stop().await;
}

/// When a requester is closed or loses its broker, all waiting requests get the error, and the
/// session is given back.
#[tokio::test]
async fn a_closed_requester_fails_waiting_requests() {
    let (_, client) = client().await;
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let waits = {
        let requester = requester.clone();
        tokio::spawn(async move {
            requester.request::<_, Total>("orders", &Order { cups: 1 }, WAIT).await
        })
    };
    while left(&client, "orders").await == 0 {
        tokio::task::yield_now().await;
    }
    let held = async || client.admin().queue("replies").await.unwrap().sessions.unwrap().locked;
    assert_eq!(held().await, 1);
    let clone = requester.clone();
    requester.close().await;
    assert_eq!(held().await, 0);
    let told = waits.await.unwrap();
    assert!(matches!(told, Err(RequestError::Closed(_))), "{told:?}");
    let after = clone.request::<_, Total>("orders", &Order { cups: 1 }, WAIT).await;
    assert!(matches!(after, Err(RequestError::Closed(_))), "{after:?}");
    // Dropping the last clone does the same without waiting.
    drop(client.requester("replies", RequesterOptions::default()).await.unwrap());
    while held().await > 0 {
        tokio::task::yield_now().await;
    }
    client.stop().await;
}

/// A reply queue deleted in the meantime is created again.
#[tokio::test]
async fn a_deleted_reply_queue_is_created_again() {
    let (_, client) = client().await;
    let gate = Arc::new(Semaphore::new(9));
    let consumer = priced(&client, &gate).await;
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    client.admin().delete_queue("replies").await.unwrap();
    while client.admin().queue("replies").await.is_err() {
        tokio::task::yield_now().await;
    }
    let total: Total = requester.request("orders", &Order { cups: 3 }, WAIT).await.unwrap();
    assert_eq!(total.cents, 750);
    // A message in the session that is not a reply is dropped too.
    let made = client.admin().queue("replies").await.unwrap();
    assert!(made.description.requires_session);
    let session = client.sessions("replies", SessionFilter::All, 0, 1).await.unwrap().remove(0);
    let odd = Message::new("odd").with_session_id(&*session);
    client.sender("replies").unwrap().send(odd).await.unwrap();
    while left(&client, "replies").await > 0 {
        tokio::task::yield_now().await;
    }
    consumer.stop().await;
    client.stop().await;
}

/// RTY-01: if the reply queue has no room, the request is handled again after a delay. Without the
/// delay its attempts would end before anybody could make room.
#[tokio::test]
async fn a_request_comes_again_while_there_is_no_room_for_its_reply() {
    let mut settings = Settings::default();
    settings.limits.broker_message_count_max = 2;
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker =
        Broker::builder().settings(settings).arbiters(1).clock(Arc::clone(&clock) as Arc<_>);
    let client = Local::new(broker.start().await.unwrap());
    for queue in ["orders", "ballast"] {
        client.admin().create_queue(queue).await.unwrap();
    }
    client.sender("ballast").unwrap().send(Message::new("heavy")).await.unwrap();
    let ballast = client.receiver_in("ballast", ReceiveMode::ReceiveAndDelete).unwrap();
    let ballast = Arc::new(ballast);
    let (begun, mut attempts) = tokio::sync::mpsc::unbounded_channel();
    let handler = client.responder(move |order: Job<Order>| {
        let (ballast, begun) = (Arc::clone(&ballast), begun.clone());
        async move {
            let attempt = order.message.delivery_count();
            begun.send(attempt).unwrap();
            if attempt == 3 {
                drop(ballast.receive(TimeSpan::ZERO).await?);
            }
            Ok::<_, ResponseError>(Total { cents: attempt })
        }
    });
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    let waiting = async {
        for attempt in 1..3 {
            assert_eq!(attempts.recv().await, Some(attempt));
            while client.admin().queue("orders").await.unwrap().counts.delayed == 0 {
                assert!(attempts.try_recv().is_err(), "it has come again at once");
                tokio::task::yield_now().await;
            }
            clock.advance(TimeSpan::from_seconds(5));
        }
    };
    let order = Order { cups: 1 };
    let (total, ()) = tokio::join!(requester.request::<_, Total>("orders", &order, WAIT), waiting);
    assert_eq!(total.unwrap(), Total { cents: 3 });
    consumer.stop().await;
    assert_eq!(left(&client, "orders").await, 0);
    client.stop().await;
}

/// A reply that exceeds the limit of a queue.
#[derive(Debug, Serialize, Deserialize)]
struct Menu {
    text: String,
}

impl JobType for Menu {
    const NAME: &'static str = "menu";
}

/// SND-22: the requester learns that the reply is too large for its queue, and the request is
/// completed.
#[tokio::test]
async fn a_reply_over_the_limit_is_reported() {
    let (_, client) = client().await;
    let handler = client.responder(|_: Job<Order>| async {
        Ok::<_, ResponseError>(Menu { text: "x".repeat(2 << 20) })
    });
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    match requester.request::<_, Menu>("orders", &Order { cups: 1 }, WAIT).await {
        Err(RequestError::Failed(failure)) => {
            assert_eq!(failure.reason, "ReplyTooLarge");
            assert!(failure.description.contains("larger than"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    consumer.stop().await;
    assert_eq!(left(&client, "orders").await, 0);
    client.stop().await;
}
