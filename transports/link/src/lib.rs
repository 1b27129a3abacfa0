//! What every transport with links does alike: who may be sent how much, what is not settled, what was
//! asked and is not answered, which contents are fetched and who pays for them. (Data path, step 1 and
//! back.)
//!
//! ```text
//!   client -> transport -> Links -> group for each entity -> Entity::submit
//!                            ^                                    |
//!   client <- transport <- Event <- Arrivals (fetched) <- Mailbox <+
//! ```
//!
//! Nothing here reads a socket or a clock, or waits, but for the steps of [`Protocol`]: a transport gives what came and
//! the instant, and carries out what it is told, so that all of it is tested from scripts. The order to read: [`Engine`]
//! has the data and the steps of a connection, [`Links`] is the machine of its links, [`Link`] one link with its
//! [`credit`], [`Unsettled`] the table of deliveries, [`pending`] the requests that await answers. [`Mailbox`] is where
//! entities put answers and deliveries, and [`Arrivals`] brings them into order while contents are fetched ahead.
//! [`Account`] counts the bytes of a connection, [`Taking`] has it yield when its client takes nothing and others wait,
//! [`Apart`] bounds work apart from the connection, and [`Steps`] has the others of a thread go on in between.
//!
//! Absent on purpose: frames, encodings, sockets; what any operation means.

mod account;
mod apart;
mod arrivals;
pub mod credit;
mod engine;
mod link;
mod links;
pub mod pending;
mod place;
mod steps;
mod taking;
mod unsettled;

#[cfg(test)]
mod tests;

pub use account::{Account, FREE_BYTES, LARGE_BYTES};
pub use apart::{Apart, Finished, LONG_MAX, Size, Start, WORKING_MAX, Working};
pub use arrivals::{Arrivals, Mailbox};
pub use engine::{Engine, NextTurn, Phase, Protocol, Serve, Turn};
pub use link::{Closing, Link, Role, Source};
pub use links::{Event, Handle, Issuer, Links, numbered_bytes};
pub use pending::Pending;
pub use place::Standing;
pub use steps::Steps;
pub use taking::Taking;
pub use unsettled::{ByToken, Named, Outstanding, TokenHasher, Unsettled, shrink};
