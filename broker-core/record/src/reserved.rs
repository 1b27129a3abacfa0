//! What a store says when it is asked for room, and a machine acts on.

/// The answer to a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    /// The bytes are set aside until the batch that carries them completes.
    Granted,
    /// No room just now; the waker is called when there may be.
    Busy,
    /// The medium is under its floor of free space; the waker is called when it is not (QUO-05).
    Full,
}
