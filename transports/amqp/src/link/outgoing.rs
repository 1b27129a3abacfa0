//! Messages to clients: cut into frames of the client's maximum size, without copying (AMQP
//! 2.6.14). Frames of several links take turns, and none is sent beyond the session's window.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use super::Link;
use crate::codec::list::list_bytes;
use crate::connection::{Connection, LinkId, SentId};
use crate::frame::FRAME_HEADER_BYTES;
use crate::performative::{DeliveryTag, Role, Transfer};
use crate::session::{UnsettledDelivery, delivery_id};

/// Maximum size of a `transfer` of ours in bytes, without its payload.
const TRANSFER_BYTES_MAX: usize = 64;

/// A message to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Tag of the delivery; the lock token if the message is locked (AMQP-54).
    pub tag: DeliveryTag,
    /// Whether the delivery is settled when it is sent (AMQP-55).
    pub settled: bool,
    /// The message in consecutive pieces.
    pub payload: Vec<Bytes>,
}

/// A message with unsent frames.
#[derive(Debug)]
pub(crate) struct UnsentMessage {
    number: i64,
    settled: bool,
    payload: VecDeque<Bytes>,
    aborted: bool,
}

impl Connection {
    /// Returns whether [`send`](Self::send) would send any delivery on the link now: the link has
    /// credit, its session has room, the previous message is sent, and few bytes wait to be
    /// written.
    #[must_use]
    pub fn can_send(&self, id: LinkId) -> bool {
        let session = self.sessions.get(&id.session.channel);
        self.can_send_settled(id)
            && session.is_some_and(|session| session.has_room(self.config.unsettled_max))
    }

    /// Returns whether [`send`](Self::send) would send a settled delivery on the link now.
    /// Unsettled deliveries of the session do not matter here, so that a client that holds many
    /// still gets the answers to its requests (AMQP-22, AMQP-81).
    #[must_use]
    pub fn can_send_settled(&self, id: LinkId) -> bool {
        let Some(session) = self.sessions.get(&id.session.channel) else {
            return false;
        };
        let free = session.generation == id.session.generation
            && !session.ending
            && session.outgoing.window > 0;
        free && self.is_open()
            && !self.is_full()
            && session.links.get(&id.generation).is_some_and(Link::may_send)
    }

    /// Number of further frames that the client takes in the session of a link.
    #[must_use]
    pub fn window(&self, id: LinkId) -> u32 {
        let session = self.sessions.get(&id.session.channel);
        let session = session.filter(|session| session.generation == id.session.generation);
        session.map_or(0, |session| session.outgoing.window)
    }

    /// Sends a message: at least its first frame now, the others when possible. Does not block.
    ///
    /// # Errors
    /// Returns the message if [`can_send`](Self::can_send) is false, or
    /// [`can_send_settled`](Self::can_send_settled) if it is settled.
    pub fn send(&mut self, id: LinkId, delivery: Delivery) -> Result<SentId, Delivery> {
        let can_send = match delivery.settled {
            true => self.can_send_settled(id),
            false => self.can_send(id),
        };
        if !can_send {
            return Err(delivery);
        }
        let channel = id.session.channel;
        let Self { sessions, wire, .. } = self;
        let Some(session) = sessions.get_mut(&channel) else {
            return Err(delivery);
        };
        let Some(link) = session.links.get_mut(&id.generation) else {
            return Err(delivery);
        };
        let Delivery { tag, settled, payload } = delivery;
        let number = session.outgoing.next_number;
        session.outgoing.next_number += 1;
        link.credit = link.credit.saturating_sub(1);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        if !settled {
            session.unsettled.insert(number, UnsettledDelivery { link: id.generation, tag });
        }
        // The first frame has all fields, even fields with defaults (AMQP-19).
        let first = Transfer {
            handle: link.handle,
            delivery_id: Some(delivery_id(number)),
            delivery_tag: Some(tag),
            message_format: Some(0),
            ..Transfer::default()
        };
        let mut under_way =
            UnsentMessage { number, settled, payload: payload.into(), aborted: false };
        if under_way.send_frame(wire, channel, first) {
            link.unsent = Some(under_way);
            self.unsent_links.push_back(id);
        }
        session.outgoing.window -= 1;
        session.outgoing.next_id = session.outgoing.next_id.wrapping_add(1);
        Ok(SentId { session: id.session, number })
    }

    /// Aborts the message of a link that has unsent frames, and forgets its delivery. The client
    /// learns that the parts it got are void.
    pub fn abort(&mut self, id: LinkId) {
        let under_way = self.link_mut(id).and_then(|link| link.unsent.as_mut());
        let Some(under_way) = under_way else {
            return;
        };
        under_way.payload.clear();
        under_way.aborted = true;
        let number = under_way.number;
        if let Some(session) = self.session_mut(id.session) {
            session.unsettled.remove(&number);
        }
    }

    /// Returns whether all frames of the last message on a link are in the output. True for a link
    /// that does not exist.
    #[must_use]
    pub fn is_sent(&mut self, id: LinkId) -> bool {
        self.link_mut(id).is_none_or(|link| link.unsent.is_none())
    }

    /// Returns whether all frames of the last message are in the output and the link is still
    /// attached.
    #[must_use]
    pub fn is_sent_and_attached(&mut self, id: LinkId) -> bool {
        self.link_mut(id).is_some_and(|link| link.is_attached() && link.unsent.is_none())
    }

    /// Number of bytes of the last message on a link that are not in the output.
    #[must_use]
    pub fn unsent_bytes(&self, id: LinkId) -> usize {
        let session = self.sessions.get(&id.session.channel);
        let link = session.and_then(|session| session.links.get(&id.generation));
        let under_way = link.and_then(|link| link.unsent.as_ref());
        under_way.map_or(0, |under_way| under_way.payload.iter().map(Bytes::len).sum())
    }

    /// Adds frames of unfinished messages to the output, one link after the other, while their
    /// sessions have room and few bytes wait to be written.
    pub(crate) fn add_frames(&mut self) {
        let mut stuck_count = 0;
        while stuck_count < self.unsent_links.len() && !self.is_full() {
            let Some(id) = self.unsent_links.pop_front() else {
                return;
            };
            let Self { sessions, wire, .. } = self;
            let Some(session) = sessions.get_mut(&id.session.channel) else {
                continue;
            };
            if session.outgoing.window == 0 {
                self.unsent_links.push_back(id);
                stuck_count += 1;
                continue;
            }
            stuck_count = 0;
            let Some(link) = session.links.get_mut(&id.generation) else {
                continue;
            };
            let Some(under_way) = &mut link.unsent else {
                continue;
            };
            let next = Transfer { handle: link.handle, ..Transfer::default() };
            if under_way.send_frame(wire, id.session.channel, next) {
                self.unsent_links.push_back(id);
            } else {
                link.unsent = None;
            }
            session.outgoing.window -= 1;
            session.outgoing.next_id = session.outgoing.next_id.wrapping_add(1);
        }
    }
}

impl UnsentMessage {
    /// Writes one frame; returns whether more are left.
    fn send_frame(
        &mut self,
        wire: &mut crate::connection::Wire,
        channel: u16,
        transfer: Transfer,
    ) -> bool {
        let (settled, aborted) = (Some(self.settled), self.aborted);
        let transfer = Transfer { settled, aborted, ..transfer };
        let bytes: usize = self.payload.iter().map(Bytes::len).sum();
        if FRAME_HEADER_BYTES + TRANSFER_BYTES_MAX + bytes <= wire.frame_bytes() {
            wire.frame_with(channel, &transfer, self.payload.drain(..), bytes);
            return false;
        }
        let transfer = Transfer { more: true, ..transfer };
        let room = wire.frame_bytes().saturating_sub(FRAME_HEADER_BYTES + list_bytes(&transfer));
        let mut pieces = Vec::with_capacity(self.payload.len());
        let mut room_left = room;
        while let Some(piece) = self.payload.front_mut() {
            if piece.len() > room_left {
                pieces.push(piece.split_to(std::mem::take(&mut room_left)));
                break;
            }
            room_left -= piece.remaining();
            pieces.extend(self.payload.pop_front());
        }
        let more = !self.payload.is_empty();
        let transfer = Transfer { more, ..transfer };
        wire.frame_with(channel, &transfer, pieces, room - room_left);
        more
    }
}

impl Link {
    fn may_send(&self) -> bool {
        self.is_attached()
            && self.role == Role::Receiver
            && self.credit > 0
            && self.unsent.is_none()
    }
}
