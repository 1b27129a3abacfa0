//! A session from the view of its client: windows in both directions, and delivery ids of sent
//! messages.

use super::Frames;
use super::frames::FRAME_BYTES_MAX;
use peeklock_amqp::frame::FRAME_BYTES_MIN;
use peeklock_amqp::performative::{Begin, DeliveryTag, Flow, Open, Performative, Transfer};
use peeklock_amqp::serial::room;
use peeklock_amqp::state::DeliveryState;

/// The incoming window that the client announces. Only credit limits the broker.
pub const INCOMING_WINDOW: u32 = i32::MAX.cast_unsigned();
/// Maximum bytes of a frame other than the message part and the delivery state: the frame header
/// and a transfer.
const TRANSFER_BYTES_MAX: u32 = 64;
/// Maximum bytes of a delivery state, which is the id of a transaction.
const STATE_BYTES_MAX: u32 = 64;

/// A session on one channel.
#[derive(Debug)]
pub struct Session {
    channel: u16,
    /// Maximum bytes of a message in one frame.
    part_bytes: usize,
    /// The id of the next transfer frame to the broker, and the first id outside the broker's
    /// window.
    next_outgoing_id: u32,
    outgoing_up_to: u32,
    next_delivery_id: u32,
    /// The id of the next transfer frame from the broker.
    next_incoming_id: u32,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The handle of its link.
    pub handle: u32,
    /// The message format (AMQP-42).
    pub format: u32,
    /// Whether it is sent settled, without a confirmation.
    pub settled: bool,
    /// The transaction of the message.
    pub state: Option<&'a DeliveryState>,
    /// The encoded message.
    pub message: &'a [u8],
}

impl Session {
    /// A session on a channel; [`begin`](Self::begin) makes its performative.
    #[must_use]
    pub const fn new(channel: u16) -> Self {
        Self {
            channel,
            part_bytes: (FRAME_BYTES_MIN - TRANSFER_BYTES_MAX - STATE_BYTES_MAX) as usize,
            next_outgoing_id: 0,
            outgoing_up_to: 0,
            next_delivery_id: 0,
            next_incoming_id: 0,
        }
    }

    /// The open performative of a connection with such sessions.
    #[must_use]
    pub fn open(container_id: &str) -> Open {
        let max_frame_size = Some(FRAME_BYTES_MAX);
        Open { container_id: container_id.into(), max_frame_size, ..Open::default() }
    }

    /// The begin performative.
    #[must_use]
    pub fn begin() -> Begin {
        Begin {
            incoming_window: INCOMING_WINDOW,
            outgoing_window: INCOMING_WINDOW,
            ..Begin::default()
        }
    }

    /// Takes the broker's windows after both ends have opened the connection and begun the session.
    pub fn begun(&mut self, open: &Open, begin: &Begin) {
        let frame_bytes = open.max_frame_size.unwrap_or(FRAME_BYTES_MAX).max(FRAME_BYTES_MIN);
        let part_bytes = frame_bytes.min(FRAME_BYTES_MAX) - TRANSFER_BYTES_MAX - STATE_BYTES_MAX;
        self.part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        self.outgoing_up_to = begin.incoming_window;
        self.next_incoming_id = begin.next_outgoing_id;
    }

    /// The channel.
    #[must_use]
    pub const fn channel(&self) -> u16 {
        self.channel
    }

    /// The id of the next delivery to the broker.
    #[must_use]
    pub const fn next_delivery_id(&self) -> u32 {
        self.next_delivery_id
    }

    /// Updates the windows from a performative of the broker.
    pub fn heard(&mut self, performative: &Performative) {
        match performative {
            Performative::Transfer(_) => {
                self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
            }
            Performative::Flow(flow) => {
                let next_id = flow.next_incoming_id.unwrap_or(0);
                self.outgoing_up_to = next_id.wrapping_add(flow.incoming_window);
            }
            _ => {}
        }
    }

    /// Whether the broker's window has room for all frames of a message of `message_bytes`.
    #[must_use]
    pub fn has_room(&self, message_bytes: usize) -> bool {
        let frames = message_bytes.div_ceil(self.part_bytes).max(1);
        let room = room(self.next_outgoing_id, self.outgoing_up_to);
        usize::try_from(room).unwrap_or(usize::MAX) >= frames
    }

    /// Appends the frames of a message; returns its delivery id.
    pub fn transfer(&mut self, frames: &mut Frames, outgoing: &Outgoing<'_>) -> u32 {
        let id = self.next_delivery_id;
        self.next_delivery_id = id.wrapping_add(1);
        let mut rest = outgoing.message;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(self.part_bytes));
            rest = behind;
            let transfer = Transfer {
                handle: outgoing.handle,
                delivery_id: Some(id),
                delivery_tag: DeliveryTag::new(&id.to_be_bytes()),
                message_format: Some(outgoing.format),
                settled: Some(outgoing.settled),
                state: outgoing.state.cloned(),
                more: !rest.is_empty(),
                ..Transfer::default()
            };
            frames.say(self.channel, &transfer, part);
            self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
            if rest.is_empty() {
                return id;
            }
        }
    }

    /// A flow performative with the session windows, to which the credit of a link is added.
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: INCOMING_WINDOW,
            ..Flow::default()
        }
    }

    /// A flow performative with the credit of a link that has received `delivery_count` deliveries.
    #[must_use]
    pub fn credit(&self, handle: u32, delivery_count: u32, link_credit: u32) -> Flow {
        Flow {
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(link_credit),
            ..self.flow()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(frame_bytes: u32, incoming_window: u32) -> Session {
        let mut session = Session::new(3);
        let open = Open { max_frame_size: Some(frame_bytes), ..Open::default() };
        let next_outgoing_id = u32::MAX;
        session.begun(&open, &Begin { incoming_window, next_outgoing_id, ..Begin::default() });
        session
    }

    fn outgoing(message: &[u8]) -> Outgoing<'_> {
        Outgoing { handle: 7, format: 0, settled: false, state: None, message }
    }

    #[test]
    fn a_message_is_cut_into_frames_that_the_broker_takes() {
        let mut session = begun(FRAME_BYTES_MIN, 100);
        let mut frames = Frames::default();
        let message = vec![b'x'; 1_000];
        assert_eq!(session.transfer(&mut frames, &outgoing(&message)), 0);
        assert_eq!(session.transfer(&mut frames, &outgoing(&[])), 1);
        frames.input = std::mem::take(&mut frames.output);
        let (mut whole, mut ends) = (0, Vec::new());
        while let Some(frame) = frames.hear_frame().unwrap() {
            assert!(frame.body.len() + 8 <= 512 && frame.channel == 3);
            let (performative, payload) = Performative::read(&frame.body).unwrap();
            let Performative::Transfer(transfer) = performative else { panic!() };
            whole += payload.len();
            ends.extend((!transfer.more).then_some((transfer.delivery_id, whole)));
        }
        assert_eq!(ends, [(Some(0), 1_000), (Some(1), 1_000)]);
    }

    #[test]
    fn message_has_room_if_the_window_takes_all_frames() {
        let mut session = begun(FRAME_BYTES_MIN, 2);
        let mut frames = Frames::default();
        let two = vec![b'x'; 2 * session.part_bytes];
        assert!(session.has_room(0) && session.has_room(two.len()));
        assert!(!session.has_room(two.len() + 1));
        session.transfer(&mut frames, &outgoing(&two));
        assert!(!session.has_room(0));
        let flow = Flow { next_incoming_id: Some(1), incoming_window: 2, ..Flow::default() };
        session.heard(&Performative::Flow(flow));
        assert!(session.has_room(session.part_bytes) && !session.has_room(two.len()));
    }

    #[test]
    fn received_frames_are_counted_across_wrapping_ids() {
        let mut session = begun(FRAME_BYTES_MIN, 2);
        assert_eq!(session.flow().next_incoming_id, Some(u32::MAX));
        session.heard(&Performative::Transfer(Transfer::default()));
        let flow = session.credit(9, 4, 5);
        let said = (flow.next_incoming_id, flow.handle, flow.delivery_count, flow.link_credit);
        assert_eq!(said, (Some(0), Some(9), Some(4), Some(5)));
    }
}
