//! A session: windows in both directions, handles, and unsettled deliveries (AMQP 2.5). The
//! connection calls it with the performatives of its channel.
//!
//! ```text
//!   begin ─► active ─► end ─► gone
//!              └─ fault: end is sent ─► ending: frames are ignored ─► end ─► gone
//! ```

mod begin;
mod deliveries;
mod handles;
mod lost_session;

use std::collections::BTreeMap;

pub(crate) use self::deliveries::CurrentDisposition;
pub(crate) use self::handles::Handles;
pub(crate) use self::lost_session::LostSessionDeliveries;
use crate::connection::SessionId;
use crate::link::Link;
use crate::performative::DeliveryTag;

/// A session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    /// Whether `end` was sent and the answer is missing. Frames are ignored then.
    pub(crate) ending: bool,
    /// Links by generation, oldest first.
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) handles: Handles,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// Deliveries to the client that it has not settled, by number.
    pub(crate) unsettled: BTreeMap<i64, UnsettledDelivery>,
    /// Deliveries that the client can no longer settle because their session lock is lost.
    pub(crate) lapsed: LostSessionDeliveries,
}

/// A delivery to the client that it has not settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsettledDelivery {
    /// Generation of its link.
    pub(crate) link: u64,
    pub(crate) tag: DeliveryTag,
}

/// Window for transfers from the client. Some clients count deliveries where others count frames
/// (AMQP-31), so both are counted here. The announced window counts frames. A client violates it
/// only if it exceeds it in deliveries, whose number is never higher.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Id of the next frame.
    pub(crate) next_id: u32,
    /// Next id if only the first frame of each delivery is counted, as some clients do. It starts
    /// with the same id as `next_id`.
    pub(crate) begun: u32,
    /// First id outside the window that was announced last.
    pub(crate) up_to: u32,
    /// Number of deliveries that wait for a disposition.
    pub(crate) unanswered: u32,
}

/// Window for transfers to the client.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Id of the next frame.
    pub(crate) next_id: u32,
    /// Number of further frames that the client takes.
    pub(crate) window: u32,
    /// Number of the next delivery; its lower 32 bits are the delivery id.
    pub(crate) next_number: i64,
}

/// Returns the id of a delivery with this number.
pub(crate) fn delivery_id(number: i64) -> u32 {
    u32::try_from(number & i64::from(u32::MAX)).unwrap_or(0)
}

impl Session {
    /// Returns the identifier of the session.
    pub(crate) const fn id(&self, channel: u16) -> SessionId {
        SessionId { channel, generation: self.generation }
    }

    /// Forgets all unsettled deliveries to the client and returns their tags.
    fn forget_unsettled(&mut self) -> Vec<DeliveryTag> {
        std::mem::take(&mut self.unsettled).into_values().map(|unsettled| unsettled.tag).collect()
    }
}
