//! A broker with a listener that can be restarted at the same address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::contract::{AllowAll, Authorizer, RunningTransport, Transport};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::store::{MemoryStore, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_websocket::client::{Client, ClientOptions, connect, connect_with};
use peeklock_websocket::{WebSocketConfig, WebSocketTransport};

/// Maximum duration of a test; a longer one hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);

pub struct Server {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    pub address: SocketAddr,
    store: Arc<dyn Store>,
    running: Box<dyn RunningTransport>,
}

/// Runs a test body with a guard against hanging.
pub fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIME_MAX, body).await }).unwrap();
}

impl Server {
    /// Starts a listener with a queue `q` whose locks last `lock_seconds`.
    pub async fn start(lock_seconds: i64) -> Self {
        Self::start_with(lock_seconds, Arc::new(AllowAll)).await
    }

    pub async fn start_with(lock_seconds: i64, authorizer: Arc<dyn Authorizer>) -> Self {
        let store = Arc::new(MemoryStore::new(4, u64::MAX));
        Self::start_on(store, lock_seconds, authorizer).await
    }

    pub async fn start_on(
        store: Arc<dyn Store>,
        lock_seconds: i64,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Self::on(anywhere, clock, store, authorizer).await;
        let lock_duration = Some(TimeSpan::from_seconds(lock_seconds));
        let properties = QueueUpdate { lock_duration, ..QueueUpdate::default() };
        server.broker.create_queue("q", properties).await.unwrap();
        server
    }

    async fn on(
        address: SocketAddr,
        clock: Arc<ManualClock>,
        store: Arc<dyn Store>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        let mut settings = Settings::default();
        settings.limits.lock_duration_min = TimeSpan::from_seconds(1);
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<_>)
            .store(Arc::clone(&store))
            .settings(settings)
            .authorizer(authorizer)
            .start()
            .await
            .unwrap();
        let config = WebSocketConfig::at(address);
        Self::listen(config, broker, clock, store).await
    }

    /// Starts a listener with these settings for a broker.
    pub async fn listen(
        mut config: WebSocketConfig,
        broker: Broker,
        clock: Arc<ManualClock>,
        store: Arc<dyn Store>,
    ) -> Self {
        config.workers = 1;
        let transport = Box::new(WebSocketTransport::new(config));
        let running = transport.start(broker.clone()).await.unwrap();
        Self { address: running.local_address(), broker, clock, store, running }
    }

    /// Stops everything and starts it again on the same store, at the same address.
    pub async fn restart(self) -> Self {
        let (address, clock, store) =
            (self.address, Arc::clone(&self.clock), Arc::clone(&self.store));
        self.stop().await;
        Self::on(address, clock, store, Arc::new(AllowAll)).await
    }

    pub async fn client(&self) -> Client {
        connect(&format!("ws://{}", self.address)).await.unwrap()
    }

    /// Returns a client that reopens its connection without long pauses.
    pub async fn quick_client(address: SocketAddr, mut options: ClientOptions) -> Client {
        options.pause_min = Duration::from_millis(1);
        options.pause_max = Duration::from_millis(20);
        connect_with(&format!("ws://{address}"), options).await.unwrap()
    }

    /// Returns sequence numbers and stored delivery counts of all messages in the queue.
    pub async fn delivery_counts(&self) -> Vec<(u64, u32)> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        peeked.iter().map(|one| (one.facts.sequence.0, one.facts.delivery_count)).collect()
    }

    /// Returns how many messages can be received now.
    pub async fn available(&self) -> usize {
        let command = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: 100,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let entity = self.broker.entity("q").unwrap();
        let Outcome::Received(messages) = entity.call(command).await.unwrap() else { panic!() };
        messages.len()
    }

    pub async fn stop(self) {
        self.running.stop(Duration::ZERO).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}
