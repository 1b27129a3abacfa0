//! Transfers: messages in transit between entities, and the guard of a transfer ([`claim`]).
//! Couriers carry them between actors. A message leaves its source only after its destination has
//! stored it.

pub(crate) mod body_change;
pub mod claim;
pub mod contents;

pub use peeklock_model::transfer::*;

use crate::request::ReceivedMessage;
use crate::time::TimeSpan;

/// A message of a frozen list, with its contents pinned.
#[derive(Clone, Debug)]
pub struct PinnedMessage {
    /// Facts and contents.
    pub message: ReceivedMessage,
    /// Number of transfers before the next one.
    pub hops: u8,
    /// Number of copies of the original message that are used up for this one: the copies made, and
    /// the copies left for other messages (FWD-33).
    pub copies_spent: u16,
    /// Whether duplicate detection must ignore it (DUP-14).
    pub never_duplicate: bool,
    /// Its own time to live, possibly lowered by entities on its way.
    pub time_to_live: Option<TimeSpan>,
    /// Keys of its records at the source.
    pub origin: Origin,
}
