//! State that a socket shares with the requests on its connection. Both run in one thread.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Instant;

use peeklock_core::admission::{Idling, Occupant, PacedShare, Places};

use crate::delivery::Delivery;
use crate::error::Refusal;

/// Maximum bytes of a body between the socket and its handler.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of pieces in these bytes. The framework stores each piece separately, at a fixed
/// cost.
const AHEAD_PIECES_MAX: usize = 256;

/// One connection.
pub(crate) struct Connection {
    places: Places,
    /// The slot of this connection, as other connections see it.
    occupant: Occupant,
    /// The refusal that answers the placeholder request.
    refusal: Cell<Option<Refusal>>,
    /// Whether the framework's buffer contains the whole answer.
    is_answered: Cell<bool>,
    /// Resources of the answer until all of it is written.
    answer: RefCell<Option<AnswerResources>>,
    /// Content bytes that were passed on and not yet taken by a handler.
    ahead_bytes: Cell<usize>,
    /// Number of pieces of this content; zero again when no byte is left.
    ahead_pieces: Cell<usize>,
    /// The waker of the task that reads the socket while it is paused.
    reader: Cell<Option<Waker>>,
}

/// Resources of an answer: the delivery that must learn of its writing, and its shared memory.
pub(crate) struct AnswerResources {
    pub(crate) delivery: Option<Delivery>,
    pub(crate) room: Option<PacedShare>,
}

impl Connection {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            occupant: Occupant::default(),
            refusal: Cell::default(),
            is_answered: Cell::default(),
            answer: RefCell::default(),
            ahead_bytes: Cell::default(),
            ahead_pieces: Cell::default(),
            reader: Cell::default(),
        }
    }

    /// Marks the connection as waiting for a request until the guard is dropped.
    pub(super) fn idle(&self) -> Idling {
        self.places.idle(&self.occupant)
    }

    /// Marks the connection as waiting for a message, without any taken, so that it can be evicted
    /// at any time, until the guard is dropped.
    pub(crate) fn wait_for_message(&self) -> Idling {
        self.places.wait_for_message(&self.occupant)
    }

    /// Whether another connection has claimed its slot, so that it must end.
    pub(crate) fn is_evicted(&self) -> bool {
        self.occupant.is_claimed()
    }

    /// Takes the refusal of an invalid request head.
    pub(crate) fn take_refusal(&self) -> Option<Refusal> {
        self.refusal.take()
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refusal.set(Some(refusal));
    }

    /// Keeps the resources of the current answer until it is written. They are dropped if the
    /// connection ends earlier.
    pub(crate) fn hand_over(&self, handed: AnswerResources) {
        self.answer.replace(Some(handed));
    }

    /// Records that the framework has taken the whole answer.
    pub(crate) fn answered(&self) {
        self.is_answered.set(true);
    }

    /// Records that all output was written. Returns whether it included an answer.
    pub(super) fn flushed(&self) -> bool {
        if !self.is_answered.replace(false) {
            return false;
        }
        let handed = self.answer.take();
        if let Some(delivery) = handed.and_then(|handed| handed.delivery) {
            delivery.written();
        }
        true
    }

    /// Records that the peer has blocked writing since this instant.
    pub(super) fn write_begins(&self, at: Instant) {
        if let Some(AnswerResources { room: Some(room), .. }) = &mut *self.answer.borrow_mut() {
            room.begin(at);
        }
    }

    /// Whether the memory of an answer must be released for others, after `written_bytes` were
    /// written.
    pub(super) fn must_release(&self, written_bytes: u64, context: &Context<'_>) -> bool {
        match &mut *self.answer.borrow_mut() {
            Some(AnswerResources { room: Some(room), .. }) => {
                room.is_evicted(written_bytes, Instant::now(), context)
            }
            _ => false,
        }
    }

    /// Records that `bytes` of content were passed on in one piece.
    pub(super) fn passed(&self, bytes: usize) {
        self.ahead_bytes.set(self.ahead_bytes.get().saturating_add(bytes));
        if bytes > 0 {
            self.ahead_pieces.set(self.ahead_pieces.get().saturating_add(1));
        }
    }

    /// Whether the handler has not yet read as much content as the limit permits.
    pub(super) fn is_behind(&self) -> bool {
        self.ahead_bytes.get() >= AHEAD_BYTES_MAX || self.ahead_pieces.get() >= AHEAD_PIECES_MAX
    }

    /// Records that the handler took `bytes` of content.
    pub(crate) fn taken(&self, bytes: usize) {
        let was_behind = self.is_behind();
        let ahead_bytes = self.ahead_bytes.get().saturating_sub(bytes);
        self.ahead_bytes.set(ahead_bytes);
        if ahead_bytes == 0 {
            self.ahead_pieces.set(0);
        }
        if was_behind && !self.is_behind() {
            self.wake();
        }
    }

    /// Starts another body.
    pub(super) fn begin(&self) {
        self.ahead_bytes.set(0);
        self.ahead_pieces.set(0);
    }

    /// Pauses reading until [`Self::wake`].
    pub(super) fn pause(&self, context: &Context<'_>) {
        self.reader.set(Some(context.waker().clone()));
    }

    pub(super) fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body is read ahead of its handler up to the limits in bytes and pieces.
    #[test]
    fn body_is_read_ahead_up_to_the_limits() {
        let connection = Connection::new(Places::of_requests(1));
        let passed = |bytes: usize| {
            connection.begin();
            let pieces = std::iter::repeat_with(|| connection.passed(bytes));
            pieces.take_while(|()| !connection.is_behind()).take(1 << 20).count() + 1
        };
        assert_eq!(passed(8 << 10), 8);
        assert_eq!(passed(1), AHEAD_PIECES_MAX);
        // Reading continues after all pieces were taken, together or one by one.
        connection.taken(100);
        assert!(connection.is_behind());
        connection.taken(AHEAD_PIECES_MAX - 100);
        assert!(!connection.is_behind());
    }
}
