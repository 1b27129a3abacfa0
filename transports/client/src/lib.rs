//! The handles of a client of the broker, over any transport: [`Client`] opens [`Sender`]s, [`Receiver`]s,
//! [`SessionReceiver`]s, [`Transaction`]s, [`Consumer`]s, [`Requester`]s and an [`Admin`].
//!
//! What is under them is a [`port::Port`]: in process it is the broker itself (the feature `in-process`, for
//! `Client::new`), over a network it is a connection. Nothing else differs, so code moves from one to
//! the other by changing the line that makes the client. A port of your own, such as the double of a test, becomes a
//! client with [`Client::over`].
//!
//! Marks such as (SET-03, RTY-17) are numbers of requirements in
//! [the specification](https://github.com/peeklock/peeklock/blob/main/docs/spec/README.md), which say all of what is meant.
//!
//! Absent on purpose: what any transport looks like.

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
