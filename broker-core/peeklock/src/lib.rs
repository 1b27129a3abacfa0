//! Peeklock is a message broker with the semantics of Azure Service Bus: peek-lock settlement, time to live,
//! dead-letter queues, scheduling, deferral, sessions, topics with rules, duplicate detection and transactions.
//!
//! You can use it in three ways:
//!
//! 1. [Embedded](#embedded): this library runs a broker and its workers inside your Rust program.
//! 2. [Run](#run): the program `peeklock`, or your own program, serves clients on the network.
//! 3. [Extended](#extended): your code adds a forwarder, an authorizer, a transport or a store.
//!
//! # Embedded
//!
//! A broker has its own threads, so you can start it from any tokio program, and several times. Clients and other
//! handles are cheap to clone and work on any thread. Without features, nothing in this crate opens a socket.
//!
//! ```
//! use peeklock::{Broker, Client, message::Message, time::TimeSpan};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In memory; `.data_dir("data")?` keeps messages durably in a directory.
//! let broker = Broker::builder().start().await?;
//! let client = Client::new(&broker);
//! client.admin().create_queue("orders").await?;
//!
//! client.sender("orders")?.send(Message::new("two coffees")).await?;
//!
//! let receiver = client.receiver("orders")?;
//! if let Some(order) = receiver.receive(TimeSpan::from_seconds(5)).await? {
//!     assert_eq!(order.body(), "two coffees");
//!     receiver.complete(&order).await?;
//! }
//! # broker.stop(std::time::Duration::ZERO).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A worker is a function from a delivery to a result. The result settles the message: `Ok` completes it, an error
//! abandons or dead-letters it. The lock is renewed while the function runs.
//!
//! ```
//! use peeklock::message::Message;
//! use peeklock::{Broker, Client, ConsumerOptions, Delivery, Refusal};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let broker = Broker::builder().start().await?;
//! # let client = Client::new(&broker);
//! # client.admin().create_queue("orders").await?;
//! let (done, mut orders) = tokio::sync::mpsc::channel(16);
//! let work = move |order: Delivery| {
//!     let done = done.clone();
//!     async move { done.send(order.body().clone()).await.map_err(|_| Refusal::abandon()) }
//! };
//! let consumer = client.consume("orders", work, ConsumerOptions::default()).await?;
//! client.sender("orders")?.send(Message::new("one tea")).await?;
//! assert_eq!(orders.recv().await.unwrap(), "one tea");
//! consumer.stop().await;
//! # broker.stop(std::time::Duration::ZERO).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [The guide](https://github.com/peeklock/peeklock/blob/main/docs/reference/embedding.md) covers workers, retries, sessions,
//! jobs, requests, declarations and tests.
//!
//! # Run
//!
//! The program `peeklock` is in the package `peeklock-server`. It serves AMQP 1.0 for the Azure SDKs, HTTP and
//! WebSocket:
//!
//! ```text
//! peeklock serve --data-dir ./data
//! peeklock queue create orders
//! peeklock send orders 'two coffees'
//! ```
//!
//! The handles for a remote broker are the same as in process. With the features `websocket` and `websocket-client`,
//! your program can serve its broker to other programs, and connect to a broker:
//!
#![cfg_attr(feature = "websocket-client", doc = "```")]
#![cfg_attr(not(feature = "websocket-client"), doc = "```ignore")]
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use peeklock::contract::Transport;
//! use peeklock::message::Message;
//! use peeklock::websocket::{WebSocketConfig, WebSocketTransport, client::connect};
//! use peeklock::{Broker, Client};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::builder().start().await?;
//! Client::new(&broker).admin().create_queue("orders").await?;
//! // Port 0 selects a free port.
//! let config = WebSocketConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
//! let listener = Box::new(WebSocketTransport::new(config)).start(broker.clone()).await?;
//!
//! let remote = connect(&format!("ws://{}", listener.local_address())).await?;
//! remote.sender("orders")?.send(Message::new("two coffees")).await?;
//! # remote.close().await;
//! # listener.stop(Duration::from_secs(1)).await;
//! # broker.stop(Duration::ZERO).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Extended
//!
//! The broker calls your code through traits in [`contract`] and [`store`]. This forwarder handles messages of queues
//! with a `ForwardTo` such as `print://kitchen`; the broker counts attempts and keeps refused messages:
//!
//! ```
//! use std::sync::Arc;
//!
//! use peeklock::contract::{Forwarder, Outgoing, Route, Source, Verdict};
//! use peeklock::description::QueueProperties;
//! use peeklock::error::Rejection;
//! use peeklock::message::Message;
//! use peeklock::{Broker, Client};
//! use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
//!
//! #[derive(Clone)]
//! struct Printer(UnboundedSender<String>);
//!
//! impl Forwarder for Printer {
//!     fn name(&self) -> &'static str {
//!         "printer"
//!     }
//!
//!     fn schemes(&self) -> &'static [&'static str] {
//!         &["print"]
//!     }
//!
//!     fn check(&self, _destination: &str) -> Result<(), Rejection> {
//!         Ok(())
//!     }
//!
//!     fn route(&self, _destination: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
//!         Ok(Box::new(self.clone()))
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Route for Printer {
//!     async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
//!         let mut verdicts = Vec::new();
//!         for outgoing in messages {
//!             let Ok(message) = outgoing.message() else { continue };
//!             self.0.send(String::from_utf8_lossy(message.body.as_bytes()).into_owned()).unwrap();
//!             verdicts.push(Verdict::Delivered);
//!         }
//!         verdicts
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (printer, mut printed) = unbounded_channel();
//! let broker = Broker::builder().forwarder(Arc::new(Printer(printer))).start().await?;
//! let client = Client::new(&broker);
//! let properties = QueueProperties::new().with_forward_to("print://kitchen");
//! client.admin().create_queue_with("orders", properties).await?;
//! client.sender("orders")?.send(Message::new("two coffees")).await?;
//! assert_eq!(printed.recv().await.unwrap(), "two coffees");
//! # broker.stop(std::time::Duration::ZERO).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The how-to pages
//! [write a forwarder](https://github.com/peeklock/peeklock/blob/main/docs/how-to/write-a-forwarder.md),
//! [an authorizer](https://github.com/peeklock/peeklock/blob/main/docs/how-to/write-an-authorizer.md),
//! [a transport](https://github.com/peeklock/peeklock/blob/main/docs/how-to/write-a-transport.md) and
//! [a store](https://github.com/peeklock/peeklock/blob/main/docs/how-to/write-a-store.md) have complete programs. To
//! add your code to the program `peeklock`, with its configuration file and command line, use `peeklock_server::Host`.
//!
//! # Modules
//!
//! - [`Broker`] starts and stops a broker. [`Client`] opens a [`Sender`], [`Receiver`] or [`Consumer`] on it, and
//!   [`Admin`] for management. All of these work in process and over a network.
//! - [`Client::consume`] connects a function or actix actors ([`actors`]) to a queue; their result settles messages.
//! - [`declaration`] describes the entities that should exist, and [`Admin::declare`] creates and updates them.
//!   [`description`] and [`rule`] contain the properties of entities and the filters of subscriptions.
//! - `http`, `websocket` and `amqp` serve a broker on the network. `websocket::client` is a client.
//!   `console` has the page for operators that `http` serves.
//!   `metrics_prometheus` renders metrics; `otlp` sends metrics and traces to an OpenTelemetry collector.
//! - `tls` secures connections, with certificates from files or of a development authority.
//! - `auth_sas` accepts tokens signed with a key of a policy ([`policies`]); `auth_jwt` accepts tokens of an identity
//!   provider.
//! - `postgres` stores messages in a PostgreSQL database.
//! - `audit` keeps the trail of actions of operators. `operations` carries out their deeds on many messages.
//! - `forward_webhook`, `forward_peeklock` and `forward_log` forward messages to other systems.
//! - [`contract`] has the traits for transports, forwarders, authorizers, auditors and keepers of jobs, [`store`] the trait for stores.
//! - [`message`], [`time`], [`path`], [`ids`], [`limits`], [`error`], [`condition`] and [`command`] have the types of
//!   requests and answers. [`core`] has everything below, for tools and transports.
//!
//! Marks such as (SET-03, RTY-17) are numbers of requirements in
//! [the specification](https://github.com/peeklock/peeklock/blob/main/docs/spec/README.md).
//!
//! # Features
//!
//! By default there are no features: the crate is the broker with its in-process clients. `amqp`, `http`, `websocket`,
//! `websocket-client`, `audit`, `auth-jwt`, `auth-sas`, `tls`, `forward-log`, `forward-peeklock`, `forward-webhook`,
//! `console`, `metrics-prometheus`, `operations`, `otlp` and `postgres` add the modules of these names. `full` enables
//! all of these. `otlp-client` connects the traces of your program to those of the broker. `testing` adds the kit for
//! tests of handlers and of stores.

#[doc(inline)]
pub use peeklock_client::{
    Actors, Admin, BodyError, Client, CommitResult, Consumer, ConsumerOptions, Delivery, Failure,
    FromDelivery, Handler, Job, JobError, JobType, Jobs, LockKeeper, Received, Receiver, Refusal,
    RequestError, Requester, RequesterOptions, Responder, ResponseError, Sender,
    SessionConsumerOptions, SessionDelivery, SessionJob, SessionReceiver, StateError, TraceContext,
    Traces, Transaction, WriteError, actors, actors_on, already_settled, job_message, jobs,
    json_message, port,
};
#[doc(inline)]
pub use peeklock_core::{
    Access, Broker, BrokerBuilder, ChecksConfig, ContainerKeys, JourneysConfig, SamplesConfig,
    SeriesConfig, StartError, clock, command, condition, contract, declaration, description, error,
    ids, inspect, limits, message, path, policies, rule, store, time, transaction,
};

/// The core of the broker: the state machines of entities and the shell that drives them. Use it for a transport or a
/// tool; programs that embed a broker do not need it.
pub mod core {
    #[doc(inline)]
    pub use peeklock_core::*;
}

/// The test kit: [`TestDelivery`](testing::TestDelivery), [`TestClient`](testing::TestClient), [`TestBroker`](testing::TestBroker) and
/// [`Simulation`](testing::Simulation) for handlers, a store that fails on demand, and the test suite for stores.
///
/// ```
/// use peeklock::message::Message;
/// use peeklock::port::Settlement;
/// use peeklock::testing::TestDelivery;
/// use peeklock::{Delivery, Refusal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let cook = |order: Delivery| async move {
///     match &order.body()[..] {
///         b"two coffees" => Ok(()),
///         _ => Err(Refusal::dead_letter("NotOnTheMenu", "there is only coffee")),
///     }
/// };
/// let settled = TestDelivery::of(Message::new("two coffees")).given_to(&cook).await;
/// assert_eq!(settled, Settlement::Complete);
/// let settled = TestDelivery::of(Message::new("one tea")).given_to(&cook).await;
/// assert!(matches!(settled, Settlement::DeadLetter { reason: Some(reason), .. } if reason == "NotOnTheMenu"));
/// # }
/// ```
#[cfg(feature = "testing")]
pub mod testing {
    #[doc(inline)]
    pub use peeklock_client_testing::*;
    #[doc(inline)]
    pub use peeklock_store_testing::*;
}

/// The AMQP 1.0 transport for the Azure SDKs.
#[cfg(feature = "amqp")]
pub mod amqp {
    #[doc(inline)]
    pub use peeklock_amqp::server::*;
}

#[cfg(feature = "http")]
#[doc(inline)]
pub use peeklock_http as http;

#[cfg(feature = "websocket")]
#[doc(inline)]
pub use peeklock_websocket as websocket;

#[cfg(any(feature = "amqp", feature = "http", feature = "websocket"))]
#[doc(inline)]
pub use peeklock_listen as listen;

#[cfg(feature = "audit")]
#[doc(inline)]
pub use peeklock_audit as audit;

#[cfg(feature = "operations")]
#[doc(inline)]
pub use peeklock_operations as operations;

#[cfg(feature = "auth-jwt")]
#[doc(inline)]
pub use peeklock_auth_jwt as auth_jwt;

#[cfg(feature = "auth-sas")]
#[doc(inline)]
pub use peeklock_auth_sas as auth_sas;

#[cfg(feature = "tls")]
#[doc(inline)]
pub use peeklock_tls as tls;

#[cfg(feature = "forward-log")]
#[doc(inline)]
pub use peeklock_forward_log as forward_log;

#[cfg(feature = "forward-peeklock")]
#[doc(inline)]
pub use peeklock_forward_peeklock as forward_peeklock;

#[cfg(feature = "forward-webhook")]
#[doc(inline)]
pub use peeklock_forward_webhook as forward_webhook;

#[cfg(feature = "console")]
#[doc(inline)]
pub use peeklock_console as console;

#[cfg(feature = "metrics-prometheus")]
#[doc(inline)]
pub use peeklock_metrics_prometheus as metrics_prometheus;

#[cfg(feature = "otlp")]
#[doc(inline)]
pub use peeklock_otlp as otlp;

#[cfg(feature = "postgres")]
#[doc(inline)]
pub use peeklock_store_postgres as postgres;

/// Runs the programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../embedding.md")]
pub struct Embedding;

/// Runs the programs of the page on OpenTelemetry.
#[cfg(doctest)]
#[doc = include_str!("../opentelemetry.md")]
pub struct OpenTelemetry;

/// Runs the programs of the tutorials and how-to pages.
#[cfg(doctest)]
mod guides {
    macro_rules! pages {
        ($($name:ident: $page:expr,)*) => {
            $(
                #[doc = $page]
                pub struct $name;
            )*
        };
    }

    pages! {
        DebugAHandler: include_str!("../guides/debug-a-handler.md"),
        DrainDeadLetters: include_str!("../guides/drain-dead-letters.md"),
        ObserveWithOpenTelemetry: include_str!("../guides/observe-with-opentelemetry.md"),
        WriteAForwarder: include_str!("../guides/write-a-forwarder.md"),
        WriteAStore: include_str!("../guides/write-a-store.md"),
        WriteATransport: include_str!("../guides/write-a-transport.md"),
        WriteAnAuthorizer: include_str!("../guides/write-an-authorizer.md"),
    }
}
