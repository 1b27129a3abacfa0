//! A broker with a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::server::{AmqpConfig, AmqpTransport};
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Counts, Outcome};
use peeklock_core::contract::{AllowAll, Authorizer, RunningTransport, Transport as _};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;

use crate::client::Client;

pub struct Server {
    pub broker: Broker,
    pub address: SocketAddr,
    running: Box<dyn RunningTransport>,
}

impl Server {
    /// A listener with a queue `q`, for everybody.
    pub async fn start() -> Self {
        Self::start_for(Arc::new(AllowAll)).await
    }

    pub async fn start_for(authorizer: Arc<dyn Authorizer>) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let builder = Broker::builder().arbiters(1).clock(clock as Arc<_>).authorizer(authorizer);
        let broker = builder.start().await.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        let mut config = AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.workers = 1;
        let running = Box::new(AmqpTransport::new(config)).start(broker.clone()).await.unwrap();
        let address = running.local_address();
        Self { broker, address, running }
    }

    /// A client with a session on channel 0.
    pub async fn client(&self) -> Client {
        Client::open(self.address).await
    }

    /// Sends texts to the queue, past the transport.
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

    /// The stored delivery counts of what is in the queue.
    pub async fn delivery_counts(&self) -> Vec<u32> {
        let entity = self.broker.entity("q").unwrap();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else { panic!() };
        peeked.iter().map(|one| one.facts.delivery_count).collect()
    }

    pub async fn stop(self) {
        self.running.stop(Duration::ZERO).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}
