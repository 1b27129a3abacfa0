//! A broker with a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::Command;
use peeklock_core::contract::{AllowAll, Authorizer, RunningTransport, Transport};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::message::{Body, Message};
use peeklock_core::policies::Policies;
use peeklock_core::store::Store;
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, ChecksConfig, JourneysConfig, SamplesConfig, SeriesConfig};
use peeklock_http::{HttpConfig, HttpTransport};

use super::client::{Answer, Client};

pub struct Server {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    pub address: SocketAddr,
    running: Box<dyn RunningTransport>,
}

/// Settings that a test changes before the start.
pub struct Plan {
    pub config: HttpConfig,
    pub settings: Settings,
    pub authorizer: Arc<dyn Authorizer>,
    /// Policies to look up; none without a lookup.
    pub policies: Option<Policies>,
    /// Store; none for a store in memory.
    pub store: Option<Arc<dyn Store>>,
    /// Series; none are collected without them.
    pub series: Option<SeriesConfig>,
    /// Journeys; none are kept without them.
    pub journeys: Option<JourneysConfig>,
    /// Whether samples are kept.
    pub samples: bool,
    /// Checks; none are made without them.
    pub checks: Option<ChecksConfig>,
}

impl Plan {
    pub fn new() -> Self {
        let mut config = HttpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.workers = 1;
        Self {
            config,
            settings: Settings::default(),
            authorizer: Arc::new(AllowAll),
            policies: None,
            store: None,
            series: None,
            journeys: None,
            samples: false,
            checks: None,
        }
    }

    pub async fn start(self) -> Server {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let mut builder = Broker::builder()
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
        if let Some(series) = self.series {
            builder = builder.series(series);
        }
        if let Some(journeys) = self.journeys {
            builder = builder.journeys(journeys);
        }
        if self.samples {
            builder = builder.samples(SamplesConfig::default());
        }
        if let Some(checks) = self.checks {
            builder = builder.checks(checks);
        }
        let broker = builder.start().await.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        let transport = Box::new(HttpTransport::new(self.config));
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

    pub async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends one request on its own connection. `head` is the request line without the version,
    /// followed by headers, one per line; Host and Content-Length are added.
    pub async fn ask(&self, head: &str, body: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect().await;
        client.write(&self.request(head, body)).await;
        if head.starts_with("HEAD") {
            return client.read_head().await.unwrap();
        }
        client.read().await.unwrap()
    }

    /// Returns the bytes of a request.
    pub fn request(&self, head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        let body = body.as_ref();
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let mut text = format!("{line} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for header in headers.lines() {
            text += &format!("{}\r\n", header.trim());
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        [text.as_bytes(), body].concat()
    }

    /// Sends a message with a plain body.
    pub async fn send(&self, body: &str) {
        assert_eq!(self.ask("POST /q/messages", body).await.status, 201);
    }

    /// Receives under lock without waiting.
    pub async fn receive(&self) -> Answer {
        self.ask("POST /q/messages/head?timeout=0", "").await
    }

    /// Polls the listener until `count` requests are in progress, including its own.
    pub async fn in_progress(&self, count: u64) {
        while self.ask("GET /health", "").await.json()["requestsInProgress"] != count {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the number of requests in progress, including its own.
    pub async fn in_progress_now(&self) -> u64 {
        self.ask("GET /health", "").await.json()["requestsInProgress"].as_u64().unwrap()
    }

    /// Sends a message without the listener.
    pub async fn send_direct(&self, body: &str) {
        let entity = self.broker.entity("q").unwrap();
        let message = Message { body: Body::Data(body.to_owned().into()), ..Message::default() };
        let message = self.broker.inbound(message);
        entity.call(Command::Send { message }).await.unwrap();
    }

    /// Waits until `count` messages are available.
    pub async fn active(&self, count: u64) -> u64 {
        loop {
            let active = self.broker.describe_queue("q").await.unwrap().counts.active;
            if active >= count {
                return active;
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn stop(self) {
        self.running.stop(Duration::from_secs(5)).await;
        self.broker.stop(Duration::ZERO).await.unwrap();
    }

    /// Stops the listener and keeps the broker.
    pub async fn stop_listener(self, grace: Duration) -> Broker {
        self.running.stop(grace).await;
        self.broker
    }
}
