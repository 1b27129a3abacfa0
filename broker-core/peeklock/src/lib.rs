//! Peeklock is a message broker with the semantics of Azure Service Bus: peek-lock settlement, time
//! to live, dead-letter queues, scheduling, deferral, duplicate detection. It runs as a process of
//! its own (`peeklock serve`) or inside a Rust program, which is what this library is for.
//!
//! # Embedding
//!
//! A broker has threads of its own, so it can be started from any tokio program, also several times.
//! Handles are cheap to clone and usable from any thread.
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
//! The [embedding guide](https://github.com/peeklock/peeklock/blob/main/docs/reference/embedding.md) covers workers, retries,
//! sessions, jobs, requests, declarations, tests and your own host. Marks such as (SET-03, RTY-17) are numbers of requirements
//! in [the specification](https://github.com/peeklock/peeklock/blob/main/docs/spec/README.md), which say all of what is meant.
//!
//! # Where things are
//!
//! - [`Broker`] starts a broker and stops it; [`Client`] opens [`Sender`], [`Receiver`] and [`Consumer`] on it, and
//!   [`Admin`], the one door to management, in process and over a network alike. (What [`Broker`] has of that is the
//!   inner door, behind which transports and `Admin` are.)
//! - A function or actix actors ([`actors`]) become receivers through [`Client::consume`]: their outcome settles.
//! - [`declaration`] says what there shall be, [`Admin::declare`] makes it so; [`description`] and [`rule`] are what
//!   entities and subscriptions have.
//! - `http`, `websocket` and `amqp` serve the same broker to clients on the network; `websocket::client` is such a
//!   client, `metrics_prometheus` renders metrics, `otlp` sends them and traces to a collector of OpenTelemetry.
//! - `tls` makes connections secure, with certificates from files or of an authority for development.
//! - `auth_sas` lets in who has signed with a key of a policy ([`policies`]), `auth_jwt` who has a token of an identity provider.
//! - `forward_webhook`, `forward_peeklock` and `forward_log` take messages elsewhere.
//! - [`contract`] has what a transport, a forwarder or an authorizer of your own implements, [`store`]
//!   what a store does.
//! - Words: [`message`], [`time`], [`path`], [`ids`], [`limits`], [`error`] with its [`condition`], and [`command`], which has
//!   what handles take and answer. [`core`] is all that is under it.
//!
//! # Features
//!
//! Without any, this is the broker with its in-process clients, and nothing that opens a socket. `amqp`, `http`,
//! `websocket`, `websocket-client`, `auth-jwt`, `auth-sas`, `tls`, `forward-log`, `forward-peeklock`, `forward-webhook`,
//! `metrics-prometheus` and `otlp` add the modules of these names; `full` is all of them, `otlp-client` the way of a client's
//! traces to OpenTelemetry, `testing` the kit for tests of handlers and of stores. The program `peeklock` is the package `peeklock-server`.

#[doc(inline)]
pub use peeklock_core::{
    Access, Broker, BrokerBuilder, KeysIn, StartError, clock, command, condition, contract,
    declaration, description, error, ids, limits, message, path, policies, rule, store, time,
    transaction,
};
#[doc(inline)]
pub use peeklock_inproc::{
    Actors, Admin, BodyError, Client, Committed, Consumer, ConsumerOptions, Delivery, Failure,
    FromDelivery, Handler, Job, JobError, JobType, Jobs, LockKeeper, Received, Receiver, Refusal,
    RequestError, Requester, RequesterOptions, Responder, ResponseError, Sender,
    SessionConsumerOptions, SessionDelivery, SessionJob, SessionReceiver, StateError, TraceContext,
    Traces, Transaction, WriteError, actors, actors_on, already_settled, job_message, jobs,
    json_message, port,
};

/// What is under all of this: the machines of entities and what drives them, for who writes a transport, a tool, or
/// looks how it works. Programs that embed a broker need nothing of it.
pub mod core {
    #[doc(inline)]
    pub use peeklock_core::*;
}

/// The test kit: [`TestDelivery`](testing::TestDelivery), [`TestClient`](testing::TestClient), [`TestBroker`](testing::TestBroker) and
/// [`Simulation`](testing::Simulation) for handlers, and for stores one that fails when it is told to, and the suite that
/// every store must pass.
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
    pub use peeklock_core::testing::*;
    #[doc(inline)]
    pub use peeklock_inproc::testing::*;
}

/// The AMQP 1.0 transport, to which the clients of the Azure SDKs connect.
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

#[cfg(feature = "metrics-prometheus")]
#[doc(inline)]
pub use peeklock_metrics_prometheus as metrics_prometheus;

#[cfg(feature = "otlp")]
#[doc(inline)]
pub use peeklock_otlp as otlp;

/// The guide is true: its programs run.
#[cfg(doctest)]
#[doc = include_str!("../embedding.md")]
pub struct Embedding;

/// So is the page on OpenTelemetry.
#[cfg(doctest)]
#[doc = include_str!("../opentelemetry.md")]
pub struct OpenTelemetry;

/// Programs of the tutorials and how-to pages run.
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
        EmbeddedWorker: include_str!("../guides/embedded-worker.md"),
        DebugAHandler: include_str!("../guides/debug-a-handler.md"),
        DrainDeadLetters: include_str!("../guides/drain-dead-letters.md"),
        ObserveWithOpenTelemetry: include_str!("../guides/observe-with-opentelemetry.md"),
        WriteAForwarder: include_str!("../guides/write-a-forwarder.md"),
        WriteAStore: include_str!("../guides/write-a-store.md"),
        WriteATransport: include_str!("../guides/write-a-transport.md"),
        WriteAnAuthorizer: include_str!("../guides/write-an-authorizer.md"),
    }
}
