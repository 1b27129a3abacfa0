//! Client handles for the broker, over any transport: a [`Client`] opens [`Sender`]s,
//! [`Receiver`]s, [`SessionReceiver`]s, [`Transaction`]s, [`Consumer`]s, [`Requester`]s and an
//! [`Admin`].
//!
//! All handles use a [`port::Port`]: in process it is the broker itself (the feature `in-process`,
//! for `Client::new`), over a network it is a connection. Nothing else differs, so code moves from
//! one to the other by changing the line that makes the client. Your own port, such as a test
//! double, becomes a client with [`Client::over`].
//!
//! With the feature `in-process` this crate is the in-process transport: [`Client::new`] opens
//! handles on a broker in the same process. They need no actix runtime and may be used from any
//! thread. With the feature `actix`, [`Client::consume`] makes an actor a receiver: the outcome of
//! its handler settles the message, in the order of sessions if the queue has them. Use is not
//! authenticated (SEC-17): a handle has all rights, unless its client was created with a limited
//! access ([`Client::with_access`]).
//!
//! | Modules in reading order | Content |
//! |---|---|
//! | [`port`] | the interface between handles and a transport |
//! | `client`, `sender`, `receiver`, `session`, `received` | the basic handles, and received messages |
//! | `transaction` | operations that take effect together |
//! | `consumer`, `job`, `refusal`, `keeper` | handlers, their deliveries and outcomes, and renewal of locks |
//! | `request`, `trace`, `admin` | requests with replies, spans, and management |
//! | `in_process` | the port of a broker in the same process |
//!
//! Marks such as (SET-03, RTY-17) are numbers of requirements in [the
//! specification](https://github.com/peeklock/peeklock/blob/main/docs/spec/README.md), which has
//! the full definition.
//!
//! Deliberately absent: details of any transport.

mod admin;
mod client;
mod consumer;
mod job;
mod keeper;
mod received;
mod receiver;
mod refusal;
mod request;
mod sender;
mod session;
mod trace;
mod transaction;

pub mod port;

#[cfg(feature = "in-process")]
mod in_process;

/// Parts that test kits make deliveries and simulated brokers of: see `peeklock-client-testing`.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::consumer::{Origin, outcome_of};
    pub use crate::in_process::{InProcess, PushedLink};
}

pub use admin::Admin;
pub use client::Client;
#[cfg(feature = "actix")]
pub use consumer::{Actors, actors, actors_on};
pub use consumer::{
    Consumer, ConsumerOptions, Delivery, Handler, SessionConsumerOptions, SessionDelivery,
};
pub use job::{FromDelivery, Job, JobError, JobType, Jobs, SessionJob, job_message, jobs};
pub use keeper::LockKeeper;
pub use peeklock_core::description::Cleared;
pub use received::{BodyError, Received, WriteError, json_message};
pub use receiver::Receiver;
pub use refusal::{Refusal, already_settled};
pub use request::{Failure, RequestError, Requester, RequesterOptions, Responder, ResponseError};
pub use sender::Sender;
pub use session::{SessionReceiver, StateError};
pub use trace::{TraceContext, Traces};
pub use transaction::{CommitResult, Transaction};
