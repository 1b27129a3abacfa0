//! A client of the broker under load: the same operations over every transport. `messages.rs` and
//! the other loads call it.

pub mod amqp;
mod handles;
pub mod http;

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use peeklock::Broker;
use peeklock::condition::Condition;
use peeklock::description::{QueueUpdate, TopicUpdate};
use peeklock::path::{EntityAddress, EntityName};
use peeklock::websocket::Encoding;
use peeklock::websocket::client as ws;

use self::amqp::Amqp;
use self::http::Http;
use super::BenchError;
use super::latency::Latencies;
use super::messages::Run;

/// A client.
#[derive(Clone)]
pub enum Client {
    /// With handles, over one connection or in process.
    Handles(peeklock::Client, Receiving),
    /// With one connection per request in flight.
    Http(Http),
    /// With one connection per activity.
    Amqp(Amqp),
}

/// The connection that creates queues and reads their counts.
enum Manager<'a> {
    Handles(&'a peeklock::Client),
    Http(&'a Http),
}

/// How handles receive under load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// In lists, like programs that embed a broker.
    Lists,
    /// As deliveries are pushed.
    Pushed,
}

impl Client {
    /// Connects to a broker over WebSocket.
    pub async fn websocket(
        url: &str,
        encoding: Encoding,
        tls: &ws::ClientTls,
    ) -> Result<Self, BenchError> {
        let mut options = ws::ClientOptions::default();
        options.encoding = encoding;
        options.tls = tls.clone();
        Ok(Self::Handles(ws::connect_with(url, options).await?, Receiving::Pushed))
    }

    /// A client of a broker in this process.
    pub fn in_process(broker: &Broker) -> Self {
        Self::Handles(peeklock::Client::new(broker), Receiving::Lists)
    }

    async fn manager(&self) -> Result<Manager<'_>, BenchError> {
        Ok(match self {
            Self::Handles(client, _) => Manager::Handles(client),
            Self::Http(client) => Manager::Http(client),
            Self::Amqp(client) => Manager::Handles(client.manager().await?),
        })
    }

    /// Creates a queue of at most `megabytes`.
    pub async fn create_queue(&self, path: &str, megabytes: u64) -> Result<(), BenchError> {
        let update =
            QueueUpdate { max_size_in_megabytes: Some(megabytes), ..QueueUpdate::default() };
        match self.manager().await? {
            Manager::Http(client) => client.create_queue(path, megabytes).await?,
            Manager::Handles(client) => {
                client.admin().create_queue_with(path, update).await?;
            }
        }
        Ok(())
    }

    /// Creates a topic of at most `megabytes`, with subscriptions that select all messages.
    pub async fn create_topic(
        &self,
        path: &str,
        megabytes: u64,
        subscriptions: &[String],
    ) -> Result<(), BenchError> {
        let update =
            TopicUpdate { max_size_in_megabytes: Some(megabytes), ..TopicUpdate::default() };
        match self.manager().await? {
            Manager::Handles(client) => {
                let admin = client.admin();
                admin.create_topic_with(path, update).await?;
                for name in subscriptions {
                    admin.create_subscription(path, name).await?;
                }
            }
            Manager::Http(_) => {
                return Err(BenchError::Http("this client cannot create topics".to_owned()));
            }
        }
        Ok(())
    }

    /// Deletes a queue or a topic with its content.
    pub async fn delete_queue(&self, path: &str) -> Result<(), BenchError> {
        match self.manager().await? {
            Manager::Handles(client) => match client.admin().delete_queue(path).await {
                Err(error) if error.condition() == Condition::EntityNotFound => {
                    client.admin().delete_topic(path).await?;
                }
                deleted => deleted?,
            },
            Manager::Http(client) => client.delete_queue(path).await?,
        }
        Ok(())
    }

    /// Number of messages in a queue or subscription, including dead letters.
    pub async fn messages_in(&self, path: &str) -> Result<u64, BenchError> {
        match self.manager().await? {
            Manager::Handles(client) if is_subscription(path) => {
                Ok(client.admin().subscription(path).await?.counts.total())
            }
            Manager::Handles(client) => Ok(client.admin().queue(path).await?.counts.total()),
            Manager::Http(client) => client.messages_in(path).await,
        }
    }

    /// Sends with the run's number of commands in flight until no message is left to send.
    pub async fn send(self, run: Arc<Run>, took: Arc<Latencies>) -> Result<(), BenchError> {
        match self {
            Self::Handles(client, _) => handles::send(&client, &run, &took).await,
            Self::Http(client) => client.send(&run, &took).await,
            Self::Amqp(client) => client.send(&run, &took).await,
        }
    }

    /// Receives from a path under lock and completes, until all messages are received and this
    /// client's are completed.
    pub async fn receive(
        self,
        path: &str,
        run: Arc<Run>,
        took: Arc<Latencies>,
    ) -> Result<(), BenchError> {
        match self {
            Self::Handles(client, Receiving::Lists) => {
                handles::receive_lists(&client, path, &run, &took).await
            }
            Self::Handles(client, Receiving::Pushed) => {
                handles::receive_pushed(&client, path, run, took).await
            }
            Self::Http(client) => client.receive(path, &run, &took).await,
            Self::Amqp(client) => client.receive(path, &run, &took).await,
        }
    }
}

/// Whether a path belongs to a subscription.
fn is_subscription(path: &str) -> bool {
    EntityAddress::parse(path)
        .is_ok_and(|address| matches!(address.entity, EntityName::Subscription { .. }))
}

/// Keeps the run's number of sends in flight until no message is left to send.
async fn keep_sending<F: Future<Output = Result<(), BenchError>>>(
    run: &Run,
    send: impl Fn() -> F,
) -> Result<(), BenchError> {
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < run.window && run.take() {
            under_way.push(send());
        }
        let Some(sent) = under_way.next().await else { return Ok(()) };
        sent?;
    }
}
