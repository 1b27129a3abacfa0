//! The destination broker, and messages as from a forwarding broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, MessageFacts, MessageState, Outcome, ReceivedMessage};
use peeklock_core::contract::{
    AllowAll, Authorizer, Forwarder as _, Outgoing, Route, RunningTransport, Source,
    Transport as _, Verdict,
};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::store::MemoryStore;
use peeklock_core::time::Timestamp;
use peeklock_forward_peeklock::{PeerConfig, PeerForwarder};
use peeklock_reach::Reach;
use peeklock_websocket::{WebSocketConfig, WebSocketTransport};

/// Time after which a test fails.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);

pub struct Peer {
    pub broker: Broker,
    pub address: SocketAddr,
    store: Arc<MemoryStore>,
    running: Box<dyn RunningTransport>,
}

/// Runs a test body with a time limit.
pub fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIME_MAX, body).await }).unwrap();
}

impl Peer {
    /// Starts a broker with a queue `q`.
    pub async fn start() -> Self {
        Self::start_with(QueueUpdate::default(), Arc::new(AllowAll)).await
    }

    pub async fn start_with(update: QueueUpdate, authorizer: Arc<dyn Authorizer>) -> Self {
        let store = Arc::new(MemoryStore::new(4, u64::MAX));
        let peer = Self::on(SocketAddr::from(([127, 0, 0, 1], 0)), store, authorizer).await;
        peer.broker.create_queue("q", update).await.unwrap();
        peer
    }

    async fn on(
        address: SocketAddr,
        store: Arc<MemoryStore>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        let broker = Broker::builder()
            .arbiters(1)
            .settings(Settings::default())
            .store(Arc::clone(&store) as Arc<_>)
            .authorizer(authorizer)
            .start()
            .await
            .unwrap();
        let mut config = WebSocketConfig::at(address);
        config.workers = 1;
        let transport = Box::new(WebSocketTransport::new(config));
        let running = transport.start(broker.clone()).await.unwrap();
        Self { address: running.local_address(), broker, store, running }
    }

    /// Stops everything and restarts it on the same store and address.
    pub async fn restart(self) -> Self {
        let (address, store) = (self.address, Arc::clone(&self.store));
        self.stop().await;
        Self::on(address, store, Arc::new(AllowAll)).await
    }

    /// Returns the bodies of the messages in the queue, in order.
    pub async fn bodies(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        let mut from = 0;
        loop {
            let messages = self.peek(from).await;
            let Some(last) = messages.last() else { return bodies };
            from = last.facts.sequence.0 + 1;
            for message in &messages {
                let content = message.content.load().await.unwrap();
                let content = peeklock_core::message::Content::parse(content).unwrap();
                bodies.push(String::from_utf8(content.body_bytes().to_vec()).unwrap());
            }
        }
    }

    pub async fn peek(&self, from: u64) -> Vec<ReceivedMessage> {
        let command = Command::Peek { from: SequenceNumber(from), count_max: 250 };
        match self.broker.entity("q").unwrap().call(command).await.unwrap() {
            Outcome::Peeked(messages) => messages,
            other => panic!("{other:?}"),
        }
    }

    pub async fn stop(self) {
        self.running.stop(Duration::ZERO).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

pub fn source() -> Source {
    Source { broker: 0xab, entity: EntityId(18), path: "orders".into(), sub_queue: SubQueue::Main }
}

/// Returns settings that permit only loopback hosts, also without TLS.
pub fn config() -> PeerConfig {
    let mut config = PeerConfig::default();
    let hosts = ["127.0.0.1", "localhost"].map(|host| host.parse().unwrap());
    config.reach = Reach::new(hosts.to_vec(), Vec::new());
    config
}

pub fn route_of(
    config: PeerConfig,
    source: Source,
    address: SocketAddr,
    path: &str,
) -> Box<dyn Route> {
    let destination = format!("peeklock+ws://{address}/{path}");
    PeerForwarder::new(config).route(&destination, source).unwrap()
}

/// Returns a route to the queue `q`.
pub fn route(address: SocketAddr) -> Box<dyn Route> {
    route_of(config(), source(), address, "q")
}

pub fn outgoing(sequence: u64, message: &Message) -> Outgoing {
    let content = message.encode();
    Outgoing {
        facts: MessageFacts {
            sequence: SequenceNumber(sequence),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: Timestamp::parse("2026-05-01T11:59:59Z").unwrap(),
            expires_at: None,
            time_to_live: None,
            delivery_count: 0,
            state: MessageState::Active,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: None,
            size: content.size(),
            overlay_count: 0,
            was_scheduled: false,
        },
        content,
        overlays: Vec::new(),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        never_duplicate: false,
    }
}

/// Returns messages with the numbers 1 to `count` as bodies.
pub fn messages(count: u64) -> Vec<Outgoing> {
    (1..=count).map(|number| outgoing(number, &Message::new(number.to_string()))).collect()
}

/// Returns the bodies of [`messages`].
pub fn numbers(count: u64) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

/// Returns the verdict of an outage.
pub fn postponed() -> Verdict {
    Verdict::Postponed { retry_after: None }
}

/// Returns the number of delivered messages; all others must have the verdict of an outage.
pub fn delivered(verdicts: &[Verdict]) -> usize {
    let count = verdicts.iter().take_while(|verdict| **verdict == Verdict::Delivered).count();
    let rest = &verdicts[count..];
    assert!(rest.iter().all(|verdict| *verdict == postponed()), "{verdicts:?}");
    count
}

/// Offers messages as a broker does: undelivered messages are offered again, in order. Returns the
/// number of offers.
pub async fn deliver_all(
    mut offered: &[Outgoing],
    mut route: impl FnMut() -> Box<dyn Route>,
    is_new_each_time: bool,
) -> usize {
    let mut way = route();
    for round in 1..=200 {
        offered = &offered[delivered(&way.forward(offered).await)..];
        if offered.is_empty() {
            return round;
        }
        if is_new_each_time {
            way = route();
        }
    }
    panic!("{} messages were not delivered", offered.len());
}
