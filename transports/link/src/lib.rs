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
//! Nothing here reads a socket or a clock, or waits, but for [`do_apart`]: a transport gives what came and the instant, and
//! carries out what it is told, so that all of it is tested from scripts. One thing starts tasks: [`Collect`], by which every
//! connection takes in what came and has contents fetched. The order to read: [`Links`] is the machine, [`Link`] one link with its [`credit`], [`Unsettled`] the table of
//! deliveries, [`pending`] what is not answered; [`Mailbox`] is where entities put what they say, and
//! [`Arrivals`] brings it into order while contents are fetched ahead. [`Account`] counts what a
//! connection holds in bytes, [`Taking`] has it yield when its client takes nothing and others wait, [`Apart`] bounds
//! work beside the connection, of which [`do_apart`] does a piece, in a task of the transport's; [`Steps`] has the others of a
//! thread go on while one is asked for much.
//!
//! Absent on purpose: frames, encodings, sockets; what any operation means.

mod account;
mod apart;
mod arrivals;
pub mod credit;
mod link;
mod links;
mod mailbox;
pub mod pending;
mod steps;
mod taking;
mod unsettled;

#[cfg(test)]
mod tests;

pub use account::{Account, FREE_BYTES, LARGE_BYTES};
pub use apart::{Apart, LONG_MAX, Paid, Size, WORKING_MAX, do_apart};
pub use arrivals::{Arrivals, Fetch, Fetched, Next};
pub use link::{Closing, Link, Role, Source};
pub use links::{Engine, Event, Handle, Links, numbered_bytes};
pub use mailbox::{Collect, Mail, Mailbox, Sources};
pub use pending::Pending;
pub use steps::Steps;
pub use taking::Taking;
pub use unsettled::{ByToken, Named, Outstanding, TokenHasher, Unsettled, shrink};
