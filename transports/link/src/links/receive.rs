//! Receiving what is there, or waiting for it.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_core::permits::Permit;
use peeklock_core::time::TimeSpan;

use super::{Event, Expect, Issuer, Links, unexpected};
use crate::link::Source;
use crate::pending::correlation;

/// What a receive may always take, so that one that waits holds little; the first message always fits.
const RECEIVE_BYTES_MIN: u64 = 4 << 10;

/// What a message that is named by its number counts as, until it is here.
const NUMBERED_BYTES: u64 = 64 << 10;

/// What a receive by so many numbers is taken to bring, of which an entity gives at most `bytes_max` (DEF-11).
#[must_use]
pub fn numbered_bytes(count: usize, bytes_max: u64) -> u64 {
    NUMBERED_BYTES.saturating_mul(count as u64).min(bytes_max)
}

/// What a receive may bring, until it is answered.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    bytes: u64,
    waits: bool,
}

impl<G: Issuer, T> Links<G, T> {
    /// Whether a receive that does not wait may be asked for: there is room for what it may bring, beside
    /// what others may. Those that wait, however many they are, do not have it wait for their end.
    #[must_use]
    pub fn may_receive(&self, room_bytes: u64) -> bool {
        self.promised_bytes == 0 || self.left_bytes(room_bytes) >= RECEIVE_BYTES_MIN
    }

    /// The same for a receive by numbers that is taken to bring so much: it brings all of that or nothing.
    #[must_use]
    pub fn may_receive_numbered(&self, bytes: u64, room_bytes: u64) -> bool {
        self.promised_bytes == 0 || self.left_bytes(room_bytes) >= bytes
    }

    /// What of this room is left to one that does not wait.
    fn left_bytes(&self, room_bytes: u64) -> u64 {
        let awaited = self.awaited_bytes.min(room_bytes / 2);
        room_bytes.saturating_sub(self.promised_bytes + awaited)
    }

    const fn promised(&mut self, waits: bool) -> &mut u64 {
        if waits { &mut self.awaited_bytes } else { &mut self.promised_bytes }
    }

    /// It is answered, or nobody is told of its answer.
    pub(super) fn keep(&mut self, Promise { bytes, waits }: Promise) {
        let promised = self.promised(waits);
        *promised = promised.saturating_sub(bytes);
    }

    /// Asks for messages that are there, or waits for them.
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
        // One that waits leaves most of the room to those that do not, who would wait for its end.
        let share = if waits {
            room_bytes.saturating_sub(self.promised_bytes + self.awaited_bytes) / 4
        } else {
            self.left_bytes(room_bytes)
        };
        let bytes_max = share.clamp(RECEIVE_BYTES_MIN, most);
        let command = match link.source {
            Source::Session(_) => {
                link.in_session(SessionCommand::Receive { count_max, bytes_max, wait })
            }
            Source::Queue | Source::Awaited => Command::Receive {
                mode: link.mode,
                count_max,
                bytes_max,
                wait,
                holder: Some(link.receiver),
            },
        };
        *self.promised(waits) += bytes_max;
        // A receive that waits holds little, and no room.
        let permit = permit.filter(|_| !waits);
        let slot =
            self.expect(id, number, Expect::Messages(Promise { bytes: bytes_max, waits }), permit);
        let ticket = self.submit(number, command, correlation(slot, 0));
        if waits {
            self.waits.insert(id, (ticket, number));
        }
    }

    /// Asks for something that is answered with messages, and does not take them.
    pub fn look(&mut self, number: u32, command: Command, id: u32, permit: Option<Arc<Permit>>) {
        self.receive_numbered(number, command, 0, id, permit);
    }

    /// Asks for messages by their numbers, which are taken to bring so much.
    pub fn receive_numbered(
        &mut self,
        number: u32,
        command: Command,
        bytes: u64,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        self.promised_bytes += bytes;
        let promise = Expect::Messages(Promise { bytes, waits: false });
        let slot = self.expect(id, number, promise, permit);
        self.submit(number, command, correlation(slot, 0));
    }

    /// Ends a request that waits: a receive is answered with nothing, an accept with
    /// `OperationCancelled`.
    pub fn withdraw(&mut self, id: u32) {
        let Some((call, link)) = self.waits.remove(&id) else { return };
        let slot = self.expect(0, link, Expect::Unheard, None);
        self.submit(link, Command::CancelReceive { call }, correlation(slot, 0));
    }

    /// The same for all.
    pub fn withdraw_all(&mut self) {
        let ids: Vec<u32> = self.waits.keys().copied().collect();
        for id in ids {
            self.withdraw(id);
        }
    }

    /// What was received or looked at is here.
    pub(super) fn received(
        &mut self,
        id: u32,
        number: u32,
        promised: Promise,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        self.keep(promised);
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
