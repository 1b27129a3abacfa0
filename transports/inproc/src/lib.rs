//! The in-process transport: the broker as a framework in an actor-based or async Rust program.
//!
//! [`Client::new`] opens handles on a broker in this process: [`Sender`]s, [`Receiver`]s,
//! [`SessionReceiver`]s, [`Transaction`]s and an [`Admin`]. They need no actix runtime and may be
//! used from any thread. [`Client::consume`] makes an actix actor a receiver: the outcome of its
//! handler settles the message, in the order of sessions if the queue has them.
//!
//! All transports have these handles, from `peeklock-client`; this package adds the features that a
//! program with an embedded broker needs. Use is not authenticated (SEC-17): a handle has all
//! rights, unless its client was created with a limited access ([`Client::with_access`]).

#[doc(inline)]
pub use peeklock_client::*;
