//! Answer of a store to a reservation of space, on which the machine acts. It is here because
//! machine and store both know only this crate.

/// The answer to a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    /// The bytes are reserved until their batch completes.
    Granted,
    /// No space now; the store calls the waker when there may be space.
    Busy,
    /// The free space of the medium is below its minimum; the store calls the waker when it is not
    /// (QUO-05).
    Full,
}
