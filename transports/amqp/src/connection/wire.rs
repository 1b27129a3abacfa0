//! What goes out: frames, with consecutive dispositions made one.

use bytes::{Buf, Bytes};

use crate::codec::list::List;
use crate::frame::{FRAME_BYTES_MIN, Kind, Output};
use crate::performative::{Disposition, Role};
use crate::state::DeliveryState;

/// The way out.
#[derive(Debug)]
pub(crate) struct Wire {
    output: Output,
    /// Not written yet, since the next one may go on where it ends.
    pending: Option<Pending>,
    /// The largest frame that may be sent.
    pub(crate) frame_bytes_max: u32,
    /// Something was written since this was last looked at.
    wrote: bool,
    /// A frame was not written, because the peer does not take any so large.
    overflowed: bool,
}

/// A range of deliveries that share what became of them.
#[derive(Debug)]
struct Pending {
    channel: u16,
    role: Role,
    first: u32,
    last: u32,
    settled: bool,
    state: DeliveryState,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            output: Output::default(),
            pending: None,
            frame_bytes_max: FRAME_BYTES_MIN,
            wrote: false,
            overflowed: false,
        }
    }

    /// How many bytes wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.remaining()
    }

    /// What is to be written.
    pub(crate) fn output(&mut self) -> &mut Output {
        self.flush();
        &mut self.output
    }

    /// Whether something was written since this was last asked.
    pub(crate) fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.wrote)
    }

    /// Whether a frame could not be written since this was last asked.
    pub(crate) fn has_overflowed(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }

    pub(crate) fn header(&mut self, header: [u8; 8]) {
        self.output.raw(&header);
        self.wrote = true;
    }

    pub(crate) fn empty_frame(&mut self) {
        self.flush();
        self.output.empty_frame();
        self.wrote = true;
    }

    pub(crate) fn sasl<L: List>(&mut self, body: &L) {
        self.wrote |= self.output.frame(Kind::Sasl, 0, body, usize::MAX).is_ok();
    }

    pub(crate) fn frame<L: List>(&mut self, channel: u16, body: &L) {
        self.flush();
        self.put(channel, body);
    }

    fn put<L: List>(&mut self, channel: u16, body: &L) {
        let bytes_max = self.frame_bytes();
        let mut write = |body: &L| self.output.frame(Kind::Amqp, channel, body, bytes_max);
        let written = write(body).or_else(|beyond| {
            // What is said to people is cut, rather than not said at all (AMQP-90).
            body.shortened(beyond).map_or(Err(beyond), |shorter| write(&shorter))
        });
        match written {
            Ok(()) => self.wrote = true,
            Err(_) => self.overflowed = true,
        }
    }

    /// A frame of which the caller has cut the payload to size.
    pub(crate) fn frame_with<L: List>(
        &mut self,
        channel: u16,
        body: &L,
        payload: impl IntoIterator<Item = Bytes>,
        payload_bytes: usize,
    ) {
        self.flush();
        self.output.frame_with(channel, body, payload, payload_bytes);
        self.wrote = true;
    }

    /// The largest frame that may be sent.
    pub(crate) fn frame_bytes(&self) -> usize {
        usize::try_from(self.frame_bytes_max).unwrap_or(usize::MAX)
    }

    /// Settles a delivery with this state.
    pub(crate) fn dispose(&mut self, channel: u16, role: Role, id: u32, state: DeliveryState) {
        self.dispose_range(channel, role, (id, id), state);
    }

    /// Settles a range of deliveries with this state.
    pub(crate) fn dispose_range(
        &mut self,
        channel: u16,
        role: Role,
        (first, last): (u32, u32),
        state: DeliveryState,
    ) {
        self.hold_back(Pending { channel, role, first, last, settled: true, state });
    }

    /// Reports the state of a delivery that is not settled with it (AMQ-15, AMQP-66).
    pub(crate) fn dispose_open(&mut self, channel: u16, role: Role, id: u32, state: DeliveryState) {
        self.hold_back(Pending { channel, role, first: id, last: id, settled: false, state });
    }

    /// Merges a disposition with the previous one if both form one range.
    fn hold_back(&mut self, next: Pending) {
        if let Some(pending) = &mut self.pending
            && (pending.channel, pending.role, pending.last.wrapping_add(1))
                == (next.channel, next.role, next.first)
            && (pending.settled, &pending.state) == (next.settled, &next.state)
        {
            pending.last = next.last;
            return;
        }
        self.flush();
        self.pending = Some(next);
    }

    /// Writes what was held back.
    fn flush(&mut self) {
        let Some(Pending { channel, role, first, last, settled, state }) = self.pending.take()
        else {
            return;
        };
        let last = (last != first).then_some(last);
        let state = Some(state);
        let disposition = Disposition { role, first, last, settled, state, batchable: false };
        self.put(channel, &disposition);
    }
}
