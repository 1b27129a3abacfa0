//! A broker with a listener, for the tests.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::server::{AmqpConfig, AmqpTransport};
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Counts, Outcome, ReceiveMode};
use peeklock_core::contract::{AllowAll, Authorizer, RunningTransport, Transport as _};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::{Content, Message};
use peeklock_core::policies::Policies;
use peeklock_core::store::Store;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, BrokerBuilder};

use crate::client::{Client, hang_up};

pub struct Server {
    pub broker: Broker,
    pub address: SocketAddr,
    pub clock: Arc<ManualClock>,
    running: Box<dyn RunningTransport>,
}

impl Server {
    /// A listener for everybody, with a queue `q`.
    pub async fn start() -> Self {
        Self::start_for(Arc::new(AllowAll)).await
    }

    pub async fn start_for(authorizer: Arc<dyn Authorizer>) -> Self {
        Self::start_with(authorizer, |_| {}).await
    }

    pub async fn start_with(
        authorizer: Arc<dyn Authorizer>,
        adjust: impl FnOnce(&mut AmqpConfig),
    ) -> Self {
        let builder = Broker::builder().authorizer(authorizer);
        Self::start_as(builder, QueueUpdate::default(), adjust).await
    }

    /// A listener of a broker with these policies.
    pub async fn start_with_policies(authorizer: Arc<dyn Authorizer>, policies: &Policies) -> Self {
        let builder = Broker::builder().authorizer(authorizer).policies(policies);
        Self::start_as(builder, QueueUpdate::default(), |_| {}).await
    }

    /// A listener of a broker with these limits.
    pub async fn start_under(limits: Limits) -> Self {
        Self::start_of(Settings { limits, ..Settings::default() }).await
    }

    /// A listener of a broker with these settings.
    pub async fn start_of(settings: Settings) -> Self {
        let builder = Broker::builder().settings(settings);
        Self::start_as(builder, QueueUpdate::default(), |_| {}).await
    }

    /// A listener of a broker that releases the locks of a lost connection.
    pub async fn start_releasing() -> Self {
        let settings = Settings { locks_release_on_connection_loss: true, ..Settings::default() };
        Self::start_of(settings).await
    }

    /// A listener of a broker with this store.
    pub async fn start_over(store: Arc<dyn Store>) -> Self {
        Self::start_as(Broker::builder().store(store), QueueUpdate::default(), |_| {}).await
    }

    /// A listener whose queue `q` takes messages of 100 MiB.
    pub async fn start_large() -> Self {
        Self::start_large_with(|_| {}).await
    }

    /// A listener for large messages with other settings.
    pub async fn start_large_with(adjust: impl FnOnce(&mut AmqpConfig)) -> Self {
        Self::start_large_under(Limits::of(Tier::Premium), adjust).await
    }

    /// A listener for large messages with other limits and settings.
    pub async fn start_large_under(limits: Limits, adjust: impl FnOnce(&mut AmqpConfig)) -> Self {
        let builder = Broker::builder().settings(Settings { limits, ..Settings::default() });
        let most = Some(100 << 10);
        let queue = QueueUpdate { max_message_size_in_kilobytes: most, ..QueueUpdate::default() };
        Self::start_as(builder, queue, |config| {
            config.message_bytes_max = NonZero::new(128 << 20).unwrap();
            adjust(config);
        })
        .await
    }

    /// A listener of such a broker, with such a queue `q`.
    pub async fn start_as(
        builder: BrokerBuilder,
        queue: QueueUpdate,
        adjust: impl FnOnce(&mut AmqpConfig),
    ) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let builder = builder.arbiters(1).clock(Arc::clone(&clock) as Arc<_>);
        let broker = builder.start().await.unwrap();
        broker.create_queue("q", queue).await.unwrap();
        let mut config = AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.workers = 1;
        adjust(&mut config);
        let running = Box::new(AmqpTransport::new(config)).start(broker.clone()).await.unwrap();
        let address = running.local_address();
        Self { broker, address, clock, running }
    }

    /// A client with a session on channel 0.
    pub async fn client(&self) -> Client {
        Client::open(self.address).await
    }

    /// Sends texts to the queue, without the transport.
    pub async fn put(&self, texts: &[&str]) {
        let entity = self.broker.entity("q").unwrap();
        for text in texts {
            let message = self.broker.inbound(Message::new((*text).to_owned()));
            entity.call(Command::Send { message }).await.unwrap();
        }
    }

    /// Creates a queue `s` with sessions, and sends these messages to it.
    pub async fn put_in_sessions(&self, messages: &[(&str, &str)]) {
        let update = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        self.broker.create_queue("s", update).await.unwrap();
        for (session, text) in messages {
            self.put_message("s", session, text).await;
        }
    }

    /// Sends a message of a session, without the transport.
    pub async fn put_message(&self, queue: &str, session: &str, text: &str) {
        let message = Message::new(text.to_owned()).with_session_id(session);
        let message = self.broker.inbound(message);
        let entity = self.broker.entity(queue).unwrap();
        entity.call(Command::Send { message }).await.unwrap();
    }

    /// Locks a message without a holder, without the transport; returns its token.
    pub async fn lock_one(&self) -> u128 {
        let entity = self.broker.entity("q").unwrap();
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: 1,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
        messages[0].facts.lock.unwrap().token.0
    }

    /// Returns the bodies of the messages in the queue.
    pub async fn bodies(&self) -> Vec<Bytes> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        let mut bodies = Vec::new();
        for one in peeked {
            let content = Content::parse(one.content.load().await.unwrap()).unwrap();
            bodies.push(content.body_bytes());
        }
        bodies
    }

    /// Returns the sequence numbers of the messages in the queue.
    pub async fn numbers(&self) -> Vec<i64> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        peeked.iter().map(|one| one.facts.sequence.0.cast_signed()).collect()
    }

    /// Returns the time of the broker.
    pub fn now(&self) -> Timestamp {
        self.broker.now()
    }

    /// Number of messages in the queue, in any state.
    pub async fn total(&self) -> u64 {
        self.counts().await.total()
    }

    /// Returns the dead letters of the queue.
    pub async fn dead_letters(&self) -> Vec<Message> {
        let entity = self.broker.entity("q/$DeadLetterQueue").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        let mut messages = Vec::new();
        for one in peeked {
            messages.push(one.load().await.unwrap().message);
        }
        messages
    }

    pub async fn counts(&self) -> Counts {
        self.broker.describe_queue("q").await.unwrap().counts
    }

    /// Returns the stored delivery counts of the messages in the queue.
    pub async fn delivery_counts(&self) -> Vec<u32> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        peeked.iter().map(|one| one.facts.delivery_count).collect()
    }

    pub async fn stop(self) {
        hang_up();
        self.stop_in_order().await;
    }

    /// Stops the server with clients that answer.
    pub async fn stop_in_order(self) {
        self.running.stop(Duration::ZERO).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}
