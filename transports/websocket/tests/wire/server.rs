//! A broker with a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Counts, Outcome};
use peeklock_core::contract::{AllowAll, Authorizer, RunningTransport, Transport};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::policies::Policies;
use peeklock_core::store::Store;
use peeklock_core::time::Timestamp;
use peeklock_websocket::{WebSocketConfig, WebSocketTransport};

use super::client::Client;

/// Maximum duration of a test; a longer one hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(120);

pub struct Server {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    pub address: SocketAddr,
    pub running: Box<dyn RunningTransport>,
}

/// Settings that a test changes before the start.
pub struct Plan {
    pub config: WebSocketConfig,
    pub settings: Settings,
    pub authorizer: Arc<dyn Authorizer>,
    /// Policies to look up; none without a lookup.
    pub policies: Option<Policies>,
    /// Store; none for a store in memory.
    pub store: Option<Arc<dyn Store>>,
    /// Directory of the messages; none for memory.
    pub data_dir: Option<std::path::PathBuf>,
}

/// Runs a test body with a guard against hanging.
pub fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIME_MAX, body).await }).unwrap();
}

impl Plan {
    pub fn new() -> Self {
        let mut config = WebSocketConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.workers = 1;
        let authorizer = Arc::new(AllowAll);
        Self {
            config,
            settings: Settings::default(),
            authorizer,
            policies: None,
            store: None,
            data_dir: None,
        }
    }

    pub async fn start(self) -> Server {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let mut builder = Broker::builder();
        if let Some(path) = &self.data_dir {
            builder = builder.data_dir(path).unwrap();
        }
        builder = builder
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<_>)
            .settings(self.settings)
            .authorizer(self.authorizer);
        if let Some(policies) = &self.policies {
            builder = builder.policies(policies);
        }
        if let Some(store) = self.store {
            builder = builder.store(store);
        }
        let broker = builder.start().await.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        let transport = Box::new(WebSocketTransport::new(self.config));
        let running = transport.start(broker.clone()).await.unwrap();
        let address = running.local_address();
        Server { broker, clock, address, running }
    }
}

impl Server {
    /// Starts a listener with a queue `q` that admits every client.
    pub async fn start() -> Self {
        Plan::new().start().await
    }

    /// Returns a client that has sent its hello.
    pub async fn client(&self) -> Client {
        Client::open(self.address).await
    }

    /// Sends texts to the queue without the transport.
    pub async fn put(&self, texts: &[&str]) {
        let entity = self.broker.entity("q").unwrap();
        for text in texts {
            let message = self.broker.inbound(Message::new((*text).to_owned()));
            entity.call(Command::Send { message }).await.unwrap();
        }
    }

    pub async fn counts(&self) -> Counts {
        self.broker.describe_queue("q").await.unwrap().counts
    }

    /// Returns the stored delivery counts of the messages in the queue, by sequence number.
    pub async fn delivery_counts(&self) -> Vec<(u64, u32)> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        peeked.iter().map(|one| (one.facts.sequence.0, one.facts.delivery_count)).collect()
    }

    pub async fn stop(self) {
        self.stop_within(Duration::ZERO).await;
    }

    pub async fn stop_within(self, grace: Duration) {
        self.running.stop(grace).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}
