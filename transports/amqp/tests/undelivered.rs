//! Tests of the counter of messages that were received and deleted but never written (RCV-02). The
//! counter belongs to the process, so a single test runs at a time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "listener/client.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod client;
#[path = "listener/request.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod request;
#[path = "listener/server.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod server;
#[path = "listener/types.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod types;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use peeklock_amqp::performative::{Close, Open, Performative, SenderSettleMode};
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::contract::AllowAll;
use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_metrics_prometheus::{EntityGauges, PrometheusMetrics, install};
use peeklock_store_testing::{Fate, FaultStore};
use tokio::sync::{Mutex, MutexGuard};

use self::client::Client;
use self::request::{longs, map, request, value};
use self::server::Server;

const FOR_GOOD: SenderSettleMode = SenderSettleMode::Settled;
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
/// More bytes than sockets buffer, in messages of 10 kB, some of which sockets buffer.
const MESSAGES: u32 = 3_000;
/// Content that cannot be read.
const BAD: &str = "a bad block";
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

static METRICS: LazyLock<PrometheusMetrics> = LazyLock::new(|| install().unwrap());
static ALONE: Mutex<()> = Mutex::const_new(());

/// Call before the broker is started.
async fn alone() -> MutexGuard<'static, ()> {
    LazyLock::force(&METRICS);
    ALONE.lock().await
}

/// Returns the value on the metrics page.
fn counted(server: &Server) -> u64 {
    let page = METRICS.render(&server.broker, EntityGauges::None);
    let name = "peeklock_messages_undelivered_total ";
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Returns the number counted since `before`, once it has changed: a connection counts all its
/// losses at once.
async fn lost(server: &Server, before: u64) -> u64 {
    let looking = async {
        let mut looks = tokio::time::interval(LOOK);
        while counted(server) == before {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("nothing is counted");
    counted(server) - before
}

/// Closes the connection, and waits until the broker has ended it.
async fn close(mut client: Client) {
    client.send_frame(&Performative::Close(Close { error: None })).await;
    assert!(matches!(client.next_frame().await, (Performative::Close(_), _)));
    assert!(client.is_closed().await);
}

/// RCV-02: a client that reads nothing is disconnected. Deleted messages that it can still read are
/// not counted. All others are: waiting ones, and ones in the output.
#[tokio::test]
async fn unread_messages_are_counted() {
    let _alone = alone().await;
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.write_timeout = Duration::from_millis(300);
    })
    .await;
    let before = counted(&server);
    let body = "x".repeat(10_000);
    for _ in 0..MESSAGES {
        server.put(&[&body]).await;
    }
    let mut client = server.client().await;
    client.receiver(0, "q", FOR_GOOD).await.unwrap();
    client.credit(0, 0, MESSAGES, false).await;
    let lost = lost(&server, before).await;
    // The broker has ended the connection: these frames are in socket buffers.
    let mut taken = 0;
    while let Some(frame) = client.any_frame().await {
        if let Ok((Performative::Transfer(transfer), _)) = Performative::read(&frame) {
            taken += u64::from(!transfer.more);
        }
    }
    assert!(taken > 0);
    assert_eq!(lost + taken + server.total().await, u64::from(MESSAGES));
    server.stop().await;
}

/// RCV-02: a message belongs to the client with its last frame. A message with unsent frames is
/// counted, whether the client disconnects or closes in order. A completely sent one is not
/// counted.
#[tokio::test]
async fn partly_sent_messages_are_counted() {
    let _alone = alone().await;
    let server = Server::start().await;
    let before = counted(&server);
    let long = "x".repeat(100_000);
    server.put(&["a", &long, &long, &long]).await;
    let narrow = || Open { max_frame_size: Some(4_096), ..Open::default() };
    let mut client = Client::open_with(server.address, narrow(), 1_000).await;
    client.receiver(0, "q", FOR_GOOD).await.unwrap();
    client.credit(0, 0, 2, false).await;
    for _ in 0..2 {
        client.message().await;
    }
    close(client).await;
    assert_eq!((counted(&server), server.total().await), (before, 2));
    for (is_cut, count) in [(true, 1), (false, 2)] {
        let mut client = Client::open_with(server.address, narrow(), 0).await;
        client.receiver(0, "q", FOR_GOOD).await.unwrap();
        client.credit_within(0, 0, 1, false, 1).await;
        let (Performative::Transfer(first), _) = client.next_frame().await else { panic!() };
        assert!(first.more);
        match is_cut {
            true => drop(client),
            false => close(client).await,
        }
        assert_eq!(lost(&server, before + count - 1).await, 1);
    }
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// Behaviour of a client that waits for a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Takes,
    IsCut,
    Detaches,
}

/// RCV-02, AMQP-84: messages that were deleted for a reply are lost with a waiting reply, and
/// counted. With a reply that the client takes they are not counted.
#[tokio::test]
async fn messages_in_unsent_reply_are_counted() {
    let _alone = alone().await;
    let server = Server::start().await;
    for then in [Then::Takes, Then::IsCut, Then::Detaches] {
        let before = counted(&server);
        let number = deferred(&server, "a").await;
        let mut client = Client::open_with(server.address, Open::default(), 0).await;
        client.sender(0, "q/$management").await.unwrap();
        client.receiver(1, "q/$management", LOCKED).await.unwrap();
        client.credit_within(1, 0, 100, false, 0).await;
        let mode = ("receiver-settle-mode", value(0_u32));
        let body = map(&[("sequence-numbers", longs(&[number])), mode]);
        let receive = request(1, "com.microsoft:receive-by-sequence-number", &[], &body);
        client.send(0, 0, true, receive.as_bytes()).await;
        while server.total().await > 0 {
            tokio::task::yield_now().await;
        }
        match then {
            Then::Takes => {
                client.window(0, 100).await;
                let (Performative::Transfer(reply), _) = client.next_frame().await else {
                    panic!()
                };
                assert!(!reply.more);
                close(client).await;
                assert_eq!(counted(&server), before);
                continue;
            }
            Then::IsCut => drop(client),
            Then::Detaches => {
                client.detach(1).await;
                close(client).await;
            }
        }
        assert_eq!(lost(&server, before).await, 1);
    }
    server.stop().await;
}

/// RCV-02: a deleted message that cannot be read is counted, in a delivery and in a reply.
#[tokio::test]
async fn unreadable_removed_messages_are_counted() {
    let _alone = alone().await;
    let store = FaultStore::at_once(1, u64::MAX);
    store.spoil(BAD);
    let server = Server::start_over(store).await;
    let before = counted(&server);
    let number = deferred(&server, BAD).await;
    let mut client = server.client().await;
    client.manager(0, "q").await;
    let entries = [("sequence-numbers", longs(&[number])), ("receiver-settle-mode", value(0_u32))];
    let reply = client.ask(0, "receive-by-sequence-number", &entries).await;
    assert_eq!((reply.status(), server.total().await), (500, 0));
    server.put(&[BAD]).await;
    client.receiver(2, "q", FOR_GOOD).await.unwrap();
    client.credit(2, 0, 1, false).await;
    assert_eq!(client.detached().await, "amqp:link:detach-forced");
    drop(client);
    assert_eq!(lost(&server, before).await, 2);
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// RCV-02: messages that were deleted for a reply above the limit of waiting replies are lost with
/// it, and counted.
#[tokio::test]
async fn messages_in_dropped_reply_are_counted() {
    let _alone = alone().await;
    let server = Server::start().await;
    let before = counted(&server);
    let number = deferred(&server, "a").await;
    let mut client = server.client().await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", LOCKED).await.unwrap();
    client.begin_on(1).await;
    client.restart_deliveries();
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", LOCKED).await.unwrap();
    client.manager(2, "q").await;
    // The maximum number of waiting replies, over both sessions.
    for (channel, count) in [(0, 200_u64), (1, 56)] {
        client.on(channel);
        client.restart_deliveries();
        for number in 0..count {
            let properties = [("type", "jwt"), ("name", "q")];
            let put = request(number, "put-token", &properties, &value("t"));
            client.send(0, 0, true, put.as_bytes()).await;
        }
    }
    let mode = ("receiver-settle-mode", value(0_u32));
    let body = map(&[("sequence-numbers", longs(&[number])), mode]);
    let receive = request(1, "com.microsoft:receive-by-sequence-number", &[], &body);
    client.send(2, 0, true, receive.as_bytes()).await;
    let detached = loop {
        match client.next_frame().await {
            (Performative::Detach(detach), _) => break detach,
            (Performative::Flow(_), _) => {}
            other => panic!("{other:?}"),
        }
    };
    let condition = detached.error.map(|error| error.condition().to_owned());
    assert_eq!((detached.handle, condition.as_deref()), (3, Some("amqp:resource-limit-exceeded")));
    drop(client);
    assert_eq!(lost(&server, before).await, 1);
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// RCV-02: a message whose deletion is stored only after its connection has ended is counted too.
#[tokio::test]
async fn messages_removed_after_the_end_are_counted() {
    let _alone = alone().await;
    let store = FaultStore::at_once(1, u64::MAX);
    let server = Server::start_over(Arc::clone(&store) as _).await;
    let before = counted(&server);
    server.put(&["a"]).await;
    let mut client = server.client().await;
    client.receiver(0, "q", FOR_GOOD).await.unwrap();
    store.complete_at_once(false);
    client.credit(0, 0, 1, false).await;
    while store.queued(Shard(0)) == 0 {
        tokio::task::yield_now().await;
    }
    // The end does not wait for the store.
    close(client).await;
    assert_eq!(counted(&server), before);
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    assert_eq!(lost(&server, before).await, 1);
    server.stop().await;
}

/// Defers a message without the transport; returns its number.
async fn deferred(server: &Server, body: &str) -> i64 {
    server.put(&[body]).await;
    let entity = server.broker.entity("q").unwrap();
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
    let facts = &messages[0].facts;
    let defer = Settlement::Defer { properties: None };
    let settle = Command::Settle { token: facts.lock.unwrap().token, settlement: defer };
    entity.call(settle).await.unwrap();
    i64::try_from(facts.sequence.0).unwrap()
}
