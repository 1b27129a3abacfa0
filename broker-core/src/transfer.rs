//! Transfers: what travels between entities, and the guard that goes with it ([`passage`]).

pub mod errand;
pub mod passage;

pub use peeklock_model::transfer::*;

use crate::request::ReceivedMessage;
use crate::time::TimeSpan;

/// A message of a frozen list, with its contents pinned.
#[derive(Clone, Debug)]
pub struct PinnedMessage {
    /// Facts and contents.
    pub message: ReceivedMessage,
    /// Transfers so far, the one to come not included.
    pub hops: u8,
    /// Copies that are not its own to make any more (FWD-33).
    pub copies_spent: u16,
    /// Whether it is never a duplicate (DUP-14).
    pub never_duplicate: bool,
    /// Its own time to live, as far as entities have let it have it.
    pub time_to_live: Option<TimeSpan>,
    /// Where it lies.
    pub origin: Origin,
}
