//! Tests with two brokers in one process that forward to each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome, ReceiveMode, ReceivedMessage};
use peeklock_core::contract::{RunningTransport, Transport as _};
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{Content, Message};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::TimeSpan;
use peeklock_forward_peeklock::PeerForwarder;
use peeklock_websocket::{WebSocketConfig, WebSocketTransport};

use crate::peer::{Peer, config, run};
use crate::proxy::Proxy;

/// A forwarding broker on a store that outlives it.
struct Sending {
    broker: Broker,
    running: Box<dyn RunningTransport>,
    address: SocketAddr,
}

impl Sending {
    async fn start(store: &Arc<MemoryStore>) -> Self {
        Self::start_with(store, Settings::default().limits.message_copy_count_max).await
    }

    /// Starts a broker that limits the copies of a message to `copy_count_max`.
    async fn start_with(store: &Arc<MemoryStore>, copy_count_max: u16) -> Self {
        let mut settings = Settings::default();
        settings.limits.message_copy_count_max = copy_count_max;
        let broker = Broker::builder()
            .arbiters(1)
            .settings(settings)
            .store(Arc::clone(store) as Arc<_>)
            .forwarder(Arc::new(PeerForwarder::new(config())))
            .start()
            .await
            .unwrap();
        let mut listener = WebSocketConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        listener.workers = 1;
        let transport = Box::new(WebSocketTransport::new(listener));
        let running = transport.start(broker.clone()).await.unwrap();
        Self { address: running.local_address(), broker, running }
    }

    async fn stop(self) {
        self.running.stop(Duration::ZERO).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }

    async fn create(&self, path: &str, forward_to: String) {
        let forward_to = Some(forward_to.into());
        let update = QueueUpdate { forward_to, ..QueueUpdate::default() };
        self.broker.create_queue(path, update).await.unwrap();
    }

    /// Creates a topic with `count` subscriptions, which forward to the destination if given.
    async fn topic(&self, path: &str, count: usize, forward_to: Option<String>) {
        self.broker.create_topic(path, TopicUpdate::default()).await.unwrap();
        for number in 0..count {
            let forward_to = forward_to.clone().map(Into::into);
            let update = SubscriptionUpdate { forward_to, ..SubscriptionUpdate::default() };
            let name = format!("s{number}");
            self.broker.create_subscription(path, &name, update, Vec::new()).await.unwrap();
        }
    }

    async fn send(&self, path: &str, body: &str) {
        let message = self.broker.inbound(Message::new(body.to_owned()));
        let entity = self.broker.entity(path).unwrap();
        entity.call(Command::Send { message }).await.unwrap();
    }

    /// Waits for a message and removes it.
    async fn receive(&self, path: &str) -> ReceivedMessage {
        let command = Command::Receive {
            mode: ReceiveMode::ReceiveAndDelete,
            count_max: 1,
            bytes_max: u64::MAX,
            wait: TimeSpan::from_seconds(30),
            holder: None,
        };
        match self.broker.entity(path).unwrap().call(command).await.unwrap() {
            Outcome::Received(mut messages) => messages.pop().expect("a message in time"),
            other => panic!("{other:?}"),
        }
    }

    async fn active(&self, path: &str) -> u64 {
        self.broker.describe_queue(path).await.unwrap().counts.active
    }
}

async fn reason(message: &ReceivedMessage) -> String {
    let content = message.content.load().await.unwrap();
    let mut read = Content::parse(content).unwrap().decode().unwrap();
    for overlay in &message.overlays {
        let map = overlay.load().await.unwrap();
        read.apply_overlay(&peeklock_core::message::Overlay::from_bytes(map));
    }
    format!("{:?}", read.application_property("DeadLetterReason"))
}

/// FWD-12, FWD-13, FWD-14: the hop count is forwarded. A message sent to A passes B, A, B, A, and
/// stops.
#[test]
fn a_circle_of_two_brokers_ends_by_the_hop_limit() {
    run(async {
        let a = Sending::start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
        let b = Sending::start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
        a.create("there", format!("peeklock+ws://{}/back", b.address)).await;
        b.create("back", format!("peeklock+ws://{}/there", a.address)).await;
        a.send("there", "round and round").await;
        let stopped = a.receive("there/$Transfer/$deadletterqueue").await;
        assert!(reason(&stopped).await.contains("MaxTransferHopCountExceeded"));
        // It received four more sequence numbers: two at A, two at B.
        assert_eq!(a.broker.describe_queue("there").await.unwrap().last_sequence.0, 3);
        assert_eq!(b.broker.describe_queue("back").await.unwrap().last_sequence.0, 2);
        assert_eq!((a.active("there").await, b.active("back").await), (0, 0));
        // It keeps its first sequence number (MSG-15).
        assert_eq!(stopped.facts.enqueued_sequence.0, 1);
        a.stop().await;
        b.stop().await;
    });
}

/// FWD-33: the count of copies is forwarded. Both copies of a topic at A carry the spent count to
/// B, so a topic at B may make only the remaining number of copies.
#[test]
fn the_count_of_copies_goes_to_the_other_broker() {
    run(async {
        let a = Sending::start_with(&Arc::new(MemoryStore::new(2, u64::MAX)), 10).await;
        let b = Sending::start_with(&Arc::new(MemoryStore::new(2, u64::MAX)), 10).await;
        // Two subscriptions at A leave each copy about half of ten; eight subscriptions at B exceed
        // that.
        b.topic("many", 8, None).await;
        a.topic("events", 2, Some(format!("peeklock+ws://{}/many", b.address))).await;
        a.send("events", "to each").await;
        for subscription in ["s0", "s1"] {
            let path = format!("events/Subscriptions/{subscription}/$Transfer/$deadletterqueue");
            let stopped = a.receive(&path).await;
            assert!(reason(&stopped).await.contains("MaxTransferCopiesExceeded"));
        }
        let counts = b.broker.describe_subscription("many/Subscriptions/s0").await.unwrap().counts;
        assert_eq!(counts.total(), 0);
        // A new message at B is accepted.
        b.send("many", "new").await;
        let counts = b.broker.describe_subscription("many/Subscriptions/s0").await.unwrap().counts;
        assert_eq!(counts.active, 1);
        a.stop().await;
        b.stop().await;
    });
}

/// FWD-15, FWD-16: a message refused by the other broker stays at the source with the reason.
#[test]
fn messages_refused_by_the_other_broker_stay_at_the_source() {
    run(async {
        let a = Sending::start(&Arc::new(MemoryStore::new(2, u64::MAX))).await;
        let peer = Peer::start().await;
        a.create("orders", format!("peeklock+ws://{}/nowhere", peer.address)).await;
        a.send("orders", "lost").await;
        let kept = a.receive("orders/$Transfer/$deadletterqueue").await;
        assert!(reason(&kept).await.contains("MessagingEntityNotFound"));
        a.stop().await;
        peer.stop().await;
    });
}

/// FWD-10: connections are cut, and the forwarding broker restarts on its store. Each message is
/// stored exactly once at the other broker, in order.
#[test]
fn each_message_is_stored_once_despite_cuts_and_restarts() {
    const COUNT: u64 = 120;
    run(async {
        let peer = Peer::start().await;
        let cuts = (0..12).map(|cut| 900 + cut * 377).collect();
        let proxy = Proxy::start(peer.address, cuts).await;
        let store = Arc::new(MemoryStore::new(2, u64::MAX));
        let mut sent = 0;
        for round in 0..6 {
            let a = Sending::start(&store).await;
            if round == 0 {
                a.create("orders", format!("peeklock+ws://{}/q", proxy.address)).await;
            }
            for _ in 0..COUNT / 6 {
                sent += 1;
                a.send("orders", &sent.to_string()).await;
            }
            // Stop while lists are in transit; only the last round waits for all messages.
            while round == 5 && a.active("orders").await > 0 {
                tokio::task::yield_now().await;
            }
            a.stop().await;
        }
        let expected: Vec<String> = (1..=COUNT).map(|number| number.to_string()).collect();
        assert_eq!(peer.bodies().await, expected);
        peer.stop().await;
    });
}
