//! Receive and peek requests. Each one reserves the bytes that its answer may bring before it is
//! submitted.

use std::sync::Arc;

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_core::time::TimeSpan;

use super::{Event, Issuer, LinkAnswer, Links, unexpected};
use crate::link::MessageSource;
use crate::pending::correlation;

/// Bytes that every receive may bring, so that a waiting receive reserves little. The first message
/// always fits.
const RECEIVE_BYTES_MIN: u64 = 4 << 10;

/// Bytes reserved for each message that is requested by number, until the answer arrives.
const NUMBERED_BYTES: u64 = 64 << 10;

/// Bytes to reserve for a receive of `count` sequence numbers. An entity returns at most
/// `bytes_max` (DEF-11).
#[must_use]
pub fn numbered_bytes(count: usize, bytes_max: u64) -> u64 {
    NUMBERED_BYTES.saturating_mul(count as u64).min(bytes_max)
}

/// Bytes reserved for the answer of a receive, until it arrives.
#[derive(Clone, Copy)]
pub(crate) struct Reservation {
    bytes: u64,
    waits: bool,
}

impl<G: Issuer, T> Links<G, T> {
    /// Whether a receive that does not wait may be submitted: `room_bytes` covers its answer next
    /// to the bytes reserved for other receives. Waiting receives take at most half of the room, so
    /// they do not delay it.
    #[must_use]
    pub fn may_receive(&self, room_bytes: u64) -> bool {
        self.immediate_receive_bytes == 0 || self.left_bytes(room_bytes) >= RECEIVE_BYTES_MIN
    }

    /// Whether a receive by numbers that is estimated at `bytes` may be submitted. It returns all
    /// its messages or none, so all bytes must fit.
    #[must_use]
    pub fn may_receive_numbered(&self, bytes: u64, room_bytes: u64) -> bool {
        self.immediate_receive_bytes == 0 || self.left_bytes(room_bytes) >= bytes
    }

    /// Bytes of `room_bytes` that remain for a receive that does not wait.
    fn left_bytes(&self, room_bytes: u64) -> u64 {
        let waiting = self.waiting_receive_bytes.min(room_bytes / 2);
        room_bytes.saturating_sub(self.immediate_receive_bytes + waiting)
    }

    /// The bytes reserved for receives that wait, or for receives that return immediately.
    const fn reserved_bytes(&mut self, waits: bool) -> &mut u64 {
        if waits { &mut self.waiting_receive_bytes } else { &mut self.immediate_receive_bytes }
    }

    /// Releases the bytes reserved for a receive that is answered or abandoned.
    pub(super) fn release_reservation(&mut self, Reservation { bytes, waits }: Reservation) {
        let reserved = self.reserved_bytes(waits);
        *reserved = reserved.saturating_sub(bytes);
    }

    /// Submits a receive. With a `wait` of zero it returns only messages that are available.
    pub fn receive(
        &mut self,
        number: u32,
        count_max: u32,
        wait: TimeSpan,
        room_bytes: u64,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get(&number) else { return };
        let most = self.window_bytes.max(RECEIVE_BYTES_MIN);
        let waits = wait > TimeSpan::ZERO;
        // A waiting receive gets at most a quarter of the remaining room; receives that do not wait
        // would otherwise be blocked until it ends.
        let share = if waits {
            room_bytes.saturating_sub(self.immediate_receive_bytes + self.waiting_receive_bytes) / 4
        } else {
            self.left_bytes(room_bytes)
        };
        let bytes_max = share.clamp(RECEIVE_BYTES_MIN, most);
        let command = match link.source {
            MessageSource::Session(_) => {
                link.in_session(SessionCommand::Receive { count_max, bytes_max, wait })
            }
            MessageSource::Queue | MessageSource::NotAssigned => Command::Receive {
                mode: link.mode,
                count_max,
                bytes_max,
                wait,
                holder: Some(link.receiver),
            },
        };
        *self.reserved_bytes(waits) += bytes_max;
        // A waiting receive holds few bytes, so it does not keep its permit.
        let permit = permit.filter(|_| !waits);
        let slot = self.expect(
            id,
            number,
            LinkAnswer::Messages(Reservation { bytes: bytes_max, waits }),
            permit,
        );
        let ticket = self.submit(number, command, correlation(slot, 0));
        if waits {
            self.waits.insert(id, (ticket, number));
        }
    }

    /// Submits a command that returns messages without removing or locking them, such as a peek.
    pub fn browse(&mut self, number: u32, command: Command, id: u32, permit: Option<Arc<Permit>>) {
        self.receive_numbered(number, command, 0, id, permit);
    }

    /// Submits a receive by sequence numbers, and reserves `bytes` for its answer.
    pub fn receive_numbered(
        &mut self,
        number: u32,
        command: Command,
        bytes: u64,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        self.immediate_receive_bytes += bytes;
        let expected = LinkAnswer::Messages(Reservation { bytes, waits: false });
        let slot = self.expect(id, number, expected, permit);
        self.submit(number, command, correlation(slot, 0));
    }

    /// Cancels a waiting request: a receive is answered without messages, an accept with
    /// `OperationCancelled`.
    pub fn cancel_wait(&mut self, id: u32) {
        let Some((call, link)) = self.waits.remove(&id) else { return };
        let slot = self.expect(0, link, LinkAnswer::Ignored, None);
        self.submit(link, Command::CancelReceive { call }, correlation(slot, 0));
    }

    /// Cancels all waiting requests.
    pub fn cancel_all_waits(&mut self) {
        let ids: Vec<u32> = self.waits.keys().copied().collect();
        for id in ids {
            self.cancel_wait(id);
        }
    }

    /// Handles the answer of a receive or a peek.
    pub(super) fn received(
        &mut self,
        id: u32,
        number: u32,
        reservation: Reservation,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        self.release_reservation(reservation);
        self.waits.remove(&id);
        let (result, taken_count) = match result {
            Ok(Outcome::Received(messages)) => {
                let taken = messages.iter().filter(|it| it.facts.lock.is_none()).count();
                (Ok(messages), taken as u64)
            }
            Ok(Outcome::Peeked(messages)) => (Ok(messages), 0),
            Ok(_) => (Err(unexpected()), 0),
            Err(rejection) => (Err(rejection), 0),
        };
        Event::Messages { id, link: number, path, result, taken_count }
    }
}
