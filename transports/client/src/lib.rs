//! Client handles for the broker, over any transport: a [`Client`] opens [`Sender`]s,
//! [`Receiver`]s, [`SessionReceiver`]s, [`Transaction`]s, [`Consumer`]s, [`Requester`]s and an
//! [`Admin`].
//!
//! All handles use a [`port::Port`]: in process it is the broker itself (the feature `in-process`,
//! for `Client::new`), over a network it is a connection. Nothing else differs, so code moves from
//! one to the other by changing the line that makes the client. Your own port, such as a test
//! double, becomes a client with [`Client::over`].
//!
//! Marks such as (SET-03, RTY-17) are numbers of requirements in [the
//! specification](https://github.com/peeklock/peeklock/blob/main/docs/spec/README.md), which has
//! the full definition.
//!
//! Modules in reading order: [`port`] (the interface of transports), `client`, `sender`, `receiver`
//! with `received` and `keeper`, `session`, `transaction`, `admin`, then `consumer` with `refusal`,
//! `job`, `request`, `trace`; `in_process` is the port of a broker in this process, and `testing`
//! the test kit.
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
#[cfg(feature = "testing")]
pub mod testing;

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
pub use transaction::{Committed, Transaction};
