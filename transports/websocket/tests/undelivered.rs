//! Counter of messages that were removed by receive-and-delete but never delivered: it counts each
//! of them, and nothing else. The tests run one at a time, since a process has one counter.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

#[path = "wire/client.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod client;
#[path = "wire/server.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use peeklock_core::store::Shard;
use peeklock_core::telemetry::UNDELIVERED;
use peeklock_store_testing::{Fate, FaultStore};
use serde_json::json;
use tokio::io::AsyncReadExt;

use self::client::Client;
use self::server::{Plan, Server, run};

/// Time within which a lost client may come back.
const GRACE: Duration = Duration::from_millis(200);
/// Text whose content the store cannot read back.
const BAD: &str = "a bad block";

static ALONE: Mutex<()> = Mutex::new(());

static COUNTER: LazyLock<Arc<AtomicU64>> = LazyLock::new(|| {
    let counter = Arc::<AtomicU64>::default();
    assert!(metrics::set_global_recorder(Recorder(Arc::clone(&counter))).is_ok());
    counter
});

/// Records only the counter of undelivered messages.
struct Recorder(Arc<AtomicU64>);

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() == UNDELIVERED {
            true => Counter::from_arc(Arc::clone(&self.0)),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Waits for the other tests; returns their lock, and a function that returns the count since the
/// start of the test.
fn counting() -> (MutexGuard<'static, ()>, impl Fn() -> u64) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = COUNTER.load(Ordering::Acquire);
    (alone, move || COUNTER.load(Ordering::Acquire) - before)
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// Attaches a receiver to `q` as link 1, in the mode receive-and-delete.
async fn attach(client: &mut Client, credit: Option<u32>) {
    let mut attach =
        json!({ "link": 1, "path": "q", "role": "receiver", "mode": "receiveAndDelete" });
    if let Some(credit) = credit {
        attach["credit"] = credit.into();
    }
    let answer = client.ask("attach", attach).await;
    assert_eq!(answer["done"], json!({}), "{answer}");
}

/// Returns a client that may resume, to which one message was delivered that it has not confirmed.
async fn delivered(server: &Server) -> Client {
    let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
    attach(&mut client, Some(1)).await;
    client.deliveries(1).await;
    client
}

/// RCV-02: if a frame is cut after its first piece, each of its messages counts as undelivered,
/// also if the connection could have been resumed.
#[test]
fn messages_in_a_cut_frame_are_counted() {
    /// More bytes than the sockets hold.
    const MESSAGES: usize = 24;

    let (_alone, counted) = counting();
    run(async {
        for hello in [json!({}), json!({ "graceSeconds": 30 })] {
            let before = counted();
            let mut plan = Plan::new();
            plan.config.grace = GRACE;
            // So that one answer contains all messages.
            plan.config.outbound_bytes_max = 32 << 20;
            let server = plan.start().await;
            let text = "x".repeat(900_000);
            server.put(&[text.as_str(); MESSAGES]).await;
            let mut client = Client::hello(server.address, hello).await;
            attach(&mut client, None).await;
            let receive = json!({ "link": 1, "maxCount": MESSAGES, "waitSeconds": 0.0 });
            client.begin("receive", receive).await;
            let mut piece = vec![0; 64 << 10];
            client.socket.get_mut().read_exact(&mut piece).await.unwrap();
            assert_eq!(server.counts().await.active, 0);
            assert_eq!(counted(), before);
            drop(client);
            until(|| counted() > before).await;
            assert_eq!(counted() - before, MESSAGES as u64);
            server.stop().await;
        }
    });
}

/// RCV-02, SET-21: after a connection that may be resumed and is not, confirmed messages are
/// delivered; unconfirmed ones count as undelivered, even if they were sent whole.
#[test]
fn unconfirmed_messages_of_a_lost_client_are_counted() {
    let (_alone, counted) = counting();
    run(async {
        let mut plan = Plan::new();
        plan.config.grace = GRACE;
        let server = plan.start().await;
        server.put(&["a", "b"]).await;
        let mut client = delivered(&server).await;
        // The `seen` of this frame confirms the first delivery.
        client.ask("credit", json!({ "link": 1, "upTo": 2 })).await;
        client.deliveries(1).await;
        assert_eq!(counted(), 0);
        drop(client);
        until(|| counted() > 0).await;
        assert_eq!(counted(), 1);
        server.stop().await;
    });
}

/// RCV-02, SET-21: after an orderly close, or a stop of the broker, sent messages count as
/// delivered, confirmed or not.
#[test]
fn messages_sent_before_an_orderly_end_are_not_counted() {
    let (_alone, counted) = counting();
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        delivered(&server).await.close(Some(1_000)).await;
        let client = delivered(&server).await;
        server.stop().await;
        drop(client);
        assert_eq!(counted(), 0);
    });
}

/// RCV-02, RCV-04: a removed message whose content cannot be read counts as undelivered at once.
/// The messages received with it are still delivered, since they are stored nowhere else.
#[test]
fn removed_unreadable_messages_are_counted() {
    let (_alone, counted) = counting();
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        store.spoil(BAD);
        let mut plan = Plan::new();
        plan.store = Some(store);
        let server = plan.start().await;
        server.put(&["a", BAD]).await;
        let mut client = server.client().await;
        attach(&mut client, None).await;
        let receive = json!({ "link": 1, "maxCount": 2, "waitSeconds": 0.0 });
        let answer = client.ask("receive", receive.clone()).await;
        let messages = answer["received"]["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 1, "{answer}");
        assert_eq!(messages[0]["body"], "a", "{answer}");
        assert_eq!(server.counts().await.active, 0);
        assert_eq!(counted(), 1);
        // Without readable messages the client gets an error.
        server.put(&[BAD]).await;
        let answer = client.ask("receive", receive).await;
        assert_eq!(answer["error"]["condition"], "InternalError", "{answer}");
        assert_eq!(counted(), 2);
        server.put(&[BAD]).await;
        client.ask("credit", json!({ "link": 1, "upTo": 1 })).await;
        client.pushed("detached").await;
        assert_eq!(counted(), 3);
        server.stop().await;
        assert_eq!(counted(), 3);
    });
}

/// RCV-02: a message whose removal becomes durable only after the end of the connection counts as
/// undelivered too.
#[test]
fn messages_removed_after_the_connection_end_are_counted() {
    let (_alone, counted) = counting();
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        let mut plan = Plan::new();
        plan.store = Some(Arc::clone(&store) as _);
        let server = plan.start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        attach(&mut client, None).await;
        store.complete_at_once(false);
        let receive = json!({ "link": 1, "maxCount": 2, "waitSeconds": 0.0 });
        client.begin("receive", receive).await;
        while store.queued(Shard(0)) == 0 {
            tokio::task::yield_now().await;
        }
        client.say_close(Some(1_000)).await;
        // The socket is open until the connection gives up waiting.
        client.socket.get_mut().read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(counted(), 0);
        store.complete_at_once(true);
        while store.complete_next(Shard(0), Fate::Store) {}
        until(|| counted() > 0).await;
        assert_eq!(counted(), 2);
        server.stop().await;
    });
}
