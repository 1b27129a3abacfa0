//! The in-process transport: the broker as a framework in an actor-based or async Rust program.
//!
//! [`Client`] opens [`Sender`]s, [`Receiver`]s, [`SessionReceiver`]s, [`Transaction`]s and an [`Admin`] on a broker of this process. They
//! need no actix runtime and may be used from any thread. An actix actor becomes a receiver through
//! [`Consumer`]: the outcome of its handler settles the message, in the order of sessions if the queue has them.
//!
//! Use is not authenticated (SEC-17): whoever holds a handle may do everything, unless its client was given an
//! access that is limited ([`Client::with_access`]).

mod admin;
mod client;
mod consumer;
mod received;
mod receiver;
mod sender;
mod session;
mod session_consumer;
mod transaction;

pub use admin::Admin;
pub use client::Client;
pub use consumer::{Consumer, ConsumerOptions, Delivery, Refusal};
pub use received::{BodyError, Received, json_message};
pub use receiver::Receiver;
pub use sender::Sender;
pub use session::SessionReceiver;
pub use session_consumer::{SessionConsumerOptions, SessionDelivery};
pub use transaction::{Committed, Transaction};
