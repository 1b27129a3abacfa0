//! A client of the broker under load: the same few things over every transport.

pub mod http;
mod in_process;
mod websocket;

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use peeklock::description::QueueUpdate;
use peeklock::websocket::Encoding;
use peeklock::websocket::client as ws;

use self::http::Http;
use super::BenchError;
use super::latency::Latencies;
use super::messages::Run;

/// A client.
#[derive(Clone)]
pub enum Client {
    /// With one connection.
    WebSocket(ws::Client),
    /// With as many connections as it has requests under way.
    Http(Http),
    /// Without any.
    InProcess(peeklock::Client),
}

impl Client {
    /// Connects and says hello.
    pub async fn websocket(url: &str, encoding: Encoding) -> Result<Self, BenchError> {
        let mut options = ws::ClientOptions::default();
        options.encoding = encoding;
        Ok(Self::WebSocket(ws::Client::connect_with(url, options).await?))
    }

    /// Creates a queue that may hold so much.
    pub async fn create_queue(&self, path: &str, megabytes: u64) -> Result<(), BenchError> {
        let update =
            || QueueUpdate { max_size_in_megabytes: Some(megabytes), ..QueueUpdate::default() };
        match self {
            Self::WebSocket(client) => {
                client.admin().create_queue_with(path, update()).await?;
            }
            Self::Http(client) => client.create_queue(path, megabytes).await?,
            Self::InProcess(client) => {
                client.admin().create_queue_with(path, update()).await?;
            }
        }
        Ok(())
    }

    /// Deletes a queue with all in it.
    pub async fn delete_queue(&self, path: &str) -> Result<(), BenchError> {
        match self {
            Self::WebSocket(client) => client.admin().delete_queue(path).await?,
            Self::Http(client) => client.delete_queue(path).await?,
            Self::InProcess(client) => client.admin().delete_queue(path).await?,
        }
        Ok(())
    }

    /// How many messages are in a queue, dead ones included.
    pub async fn messages_in(&self, path: &str) -> Result<u64, BenchError> {
        match self {
            Self::WebSocket(client) => Ok(client.admin().queue(path).await?.counts.total()),
            Self::Http(client) => client.messages_in(path).await,
            Self::InProcess(client) => Ok(client.admin().queue(path).await?.counts.total()),
        }
    }

    /// Sends, with as many under way as the run says, until nothing is left to send.
    pub async fn send(self, run: Arc<Run>, took: Arc<Latencies>) -> Result<(), BenchError> {
        match self {
            Self::WebSocket(client) => websocket::send(&client, &run, &took).await,
            Self::Http(client) => client.send(&run, &took).await,
            Self::InProcess(client) => in_process::send(&client, &run, &took).await,
        }
    }

    /// Receives under lock and completes, until everything was received and what this client has is
    /// completed.
    pub async fn receive(self, run: Arc<Run>, took: Arc<Latencies>) -> Result<(), BenchError> {
        match self {
            Self::WebSocket(client) => websocket::receive(&client, run, took).await,
            Self::Http(client) => client.receive(&run, &took).await,
            Self::InProcess(client) => in_process::receive(&client, &run, &took).await,
        }
    }
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
