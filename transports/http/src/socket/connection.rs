//! What a socket and the requests that came over it know of each other. Both are of one thread.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Instant;

use peeklock_core::admission::{Idling, Occupant, PacedShare, Places};

use crate::delivery::Delivery;
use crate::error::Refusal;

/// How much of a body may be on its way to who reads it.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// In how many pieces. The framework keeps apart what came apart, at a cost of its own.
const AHEAD_PIECES_MAX: usize = 256;

/// One connection.
pub(crate) struct Connection {
    places: Places,
    /// Its place as others see it.
    occupant: Occupant,
    /// Why the request that was passed on last is none.
    refusal: Cell<Option<Refusal>>,
    /// Whether the answer stands in the framework's buffer as a whole.
    is_answered: Cell<bool>,
    /// What belongs to the answer until all of it was written.
    answer: RefCell<Option<AnswerResources>>,
    /// Content of the body that was passed on and that nobody has taken yet.
    ahead_bytes: Cell<usize>,
    /// The pieces of it, until nothing is left of any.
    ahead_pieces: Cell<usize>,
    /// Whoever reads the socket, if it was left unread for a reason of ours.
    reader: Cell<Option<Waker>>,
}

/// What goes with an answer: who is told that it was written, and its room.
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

    /// Records that it waits for a request, until this is dropped.
    pub(super) fn idle(&self) -> Idling {
        self.places.idle(&self.occupant)
    }

    /// Records that it waits for a message and has taken none, so that it can end at any time, until this is dropped.
    pub(crate) fn wait_for_message(&self) -> Idling {
        self.places.wait_for_message(&self.occupant)
    }

    /// Whether another connection has its place, so that it has to end.
    pub(crate) fn is_evicted(&self) -> bool {
        self.occupant.is_claimed()
    }

    /// The refusal of a request that could not be read as one.
    pub(crate) fn take_refusal(&self) -> Option<Refusal> {
        self.refusal.take()
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refusal.set(Some(refusal));
    }

    /// Keeps what goes with the answer that is given now. If the connection ends before it was written, it
    /// is dropped.
    pub(crate) fn hand_over(&self, handed: AnswerResources) {
        self.answer.replace(Some(handed));
    }

    /// The framework has taken all of the answer.
    pub(crate) fn answered(&self) {
        self.is_answered.set(true);
    }

    /// Everything that the framework has was written. Tells whether an answer was part of it.
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

    /// The writing of what is there is held up by the peer, since this instant.
    pub(super) fn write_begins(&self, at: Instant) {
        if let Some(AnswerResources { room: Some(room), .. }) = &mut *self.answer.borrow_mut() {
            room.begin(at);
        }
    }

    /// Whether the room of an answer, of which `written_bytes` were written, must be released for others.
    pub(super) fn must_release(&self, written_bytes: u64, context: &Context<'_>) -> bool {
        match &mut *self.answer.borrow_mut() {
            Some(AnswerResources { room: Some(room), .. }) => {
                room.is_evicted(written_bytes, Instant::now(), context)
            }
            _ => false,
        }
    }

    /// So much content was passed on at once.
    pub(super) fn passed(&self, bytes: usize) {
        self.ahead_bytes.set(self.ahead_bytes.get().saturating_add(bytes));
        if bytes > 0 {
            self.ahead_pieces.set(self.ahead_pieces.get().saturating_add(1));
        }
    }

    /// Whether who reads the body has fallen behind.
    pub(super) fn is_behind(&self) -> bool {
        self.ahead_bytes.get() >= AHEAD_BYTES_MAX || self.ahead_pieces.get() >= AHEAD_PIECES_MAX
    }

    /// So much content was taken.
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

    /// Another body begins.
    pub(super) fn begin(&self) {
        self.ahead_bytes.set(0);
        self.ahead_pieces.set(0);
    }

    /// The socket is left unread until [`Self::wake`].
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

    /// A body is read so far ahead of who reads it and no farther, in bytes and in pieces.
    #[test]
    fn a_body_is_read_only_so_far_ahead() {
        let connection = Connection::new(Places::of_requests(1));
        let passed = |bytes: usize| {
            connection.begin();
            let pieces = std::iter::repeat_with(|| connection.passed(bytes));
            pieces.take_while(|()| !connection.is_behind()).take(1 << 20).count() + 1
        };
        assert_eq!(passed(8 << 10), 8);
        assert_eq!(passed(1), AHEAD_PIECES_MAX);
        // It goes on when all of them were taken, together or one by one.
        connection.taken(100);
        assert!(connection.is_behind());
        connection.taken(AHEAD_PIECES_MAX - 100);
        assert!(!connection.is_behind());
    }
}
