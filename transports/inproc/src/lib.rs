//! The in-process transport: the broker as a framework in an actor-based or async Rust program.
//!
//! [`Client::new`] opens handles on a broker of this process: [`Sender`]s, [`Receiver`]s,
//! [`SessionReceiver`]s, [`Transaction`]s and an [`Admin`]. They
//! need no actix runtime and may be used from any thread. An actix actor becomes a receiver through
//! [`Client::consume`]: the outcome of its handler settles the message, in the order of sessions if the
//! queue has them.
//!
//! They are the handles of every transport, from `peeklock-client`; this package is that one with what a
//! program needs that has the broker in it. Use is not authenticated (SEC-17): whoever holds a handle may do
//! everything, unless its client was given an access that is limited ([`Client::with_access`]).

#[doc(inline)]
pub use peeklock_client::*;
