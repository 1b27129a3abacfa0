//! The engine that all transports with links share: credit and flow of deliveries, unsettled
//! deliveries, pending requests, and contents that are fetched ahead and counted against the
//! client's account. This is step 1 of the data path in ARCHITECTURE.md, and the way back.
//!
//! ```text
//!   client -> transport -> Links -> group for each entity -> Entity::submit
//!                            ^                                    |
//!   client <- transport <- Event <- Arrivals (fetched) <- Mailbox <+
//! ```
//!
//! Nothing here reads a socket, and [`Links`], [`Arrivals`] and the tables neither wait nor read a
//! clock: a transport passes in the bytes it received and the current instant, and sends the
//! resulting events. So scripts without a socket can test everything. Only the steps of
//! [`Protocol`], the stop of an [`Engine`] and [`Links::await_stopped`] wait.
//!
//! Modules in reading order:
//!
//! - [`Engine`] has the data and the steps of a connection.
//! - [`Links`] is the machine of its links, [`Link`] is one link with its [`credit`].
//! - [`Unsettled`] is the table of deliveries, [`pending`] the requests that await answers.
//! - [`Mailbox`] is where entities put answers and deliveries. [`Arrivals`] orders them while
//!   contents are fetched ahead.
//! - [`admission`](peeklock_core::admission) of the core bounds the bytes of a connection, its
//!   place and the pace of its client.
//! - [`BackgroundWork`] bounds work that runs next to the connection. [`Steps`] gives other
//!   connections of the thread their turn.
//!
//! Frames, encodings, sockets and the meaning of operations belong to the transports.

mod arrivals;
mod background;
pub mod credit;
mod engine;
mod link;
mod links;
pub mod pending;
mod steps;
mod unsettled;

#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, Mailbox};
pub use background::{
    BackgroundWork, FinishedWork, LONG_MAX, ResultSize, RunningWork, StartWork, WORKING_MAX,
};
pub use engine::{ConnectionLoop, Engine, NextStep, NextStepPoll, Phase, Protocol};
pub use link::{Link, MessageSource, PendingClose};
pub use links::{Event, Handle, Issuer, Links, numbered_bytes};
pub use peeklock_core::inspect::LinkRole;
pub use pending::PendingRequest;
pub use steps::Steps;
pub use unsettled::{ByToken, DeliveryPosition, RangeLookup, TokenHasher, Unsettled, shrink};
