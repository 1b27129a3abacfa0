//! A client of the broker under load: the same few things over every transport.

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
    /// With handles, over one connection or without any.
    Handles(peeklock::Client, Receiving),
    /// With as many connections as it has requests under way.
    Http(Http),
    /// With a connection for each thing that it does.
    Amqp(Amqp),
}

/// Who makes queues and looks into them.
enum Manager<'a> {
    Handles(&'a peeklock::Client),
    Http(&'a Http),
}

/// How handles receive under load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Receiving {
    /// In lists, as who embeds a broker does.
    Lists,
    /// As deliveries are pushed.
    Pushed,
}

impl Client {
    /// Connects and says hello.
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

    /// Of a broker of this process.
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

    /// Creates a queue that may hold so much.
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

    /// Creates a topic that may hold so much, with subscriptions that get everything.
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

    /// Deletes a queue, or a topic, with all in it.
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

    /// How many messages are in a queue or subscription, dead ones included.
    pub async fn messages_in(&self, path: &str) -> Result<u64, BenchError> {
        match self.manager().await? {
            Manager::Handles(client) if is_subscription(path) => {
                Ok(client.admin().subscription(path).await?.counts.total())
            }
            Manager::Handles(client) => Ok(client.admin().queue(path).await?.counts.total()),
            Manager::Http(client) => client.messages_in(path).await,
        }
    }

    /// Sends, with as many under way as the run says, until nothing is left to send.
    pub async fn send(self, run: Arc<Run>, took: Arc<Latencies>) -> Result<(), BenchError> {
        match self {
            Self::Handles(client, _) => handles::send(&client, &run, &took).await,
            Self::Http(client) => client.send(&run, &took).await,
            Self::Amqp(client) => client.send(&run, &took).await,
        }
    }

    /// Receives from a path under lock and completes, until everything was received and what this
    /// client has is completed.
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

/// Whether a path is that of a subscription.
fn is_subscription(path: &str) -> bool {
    EntityAddress::parse(path)
        .is_ok_and(|address| matches!(address.entity, EntityName::Subscription { .. }))
}

/// Keeps as many sends under way as the run says, until nothing is left to send.
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
