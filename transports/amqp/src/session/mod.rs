//! A session: windows both ways, handles, and the deliveries that are not settled (AMQP 2.5).
//!
//! ```text
//!   begin ─► active ─► end ─► gone
//!              └─ fault: end is sent ─► ending: what comes is not looked at ─► end ─► gone
//! ```

mod begin;
mod deliveries;
mod handles;
mod lapsed;

use std::collections::BTreeMap;

pub(crate) use self::deliveries::BegunDisposition;
pub(crate) use self::handles::Handles;
pub(crate) use self::lapsed::Lapsed;
use crate::connection::SessionId;
use crate::link::Link;
use crate::performative::DeliveryTag;

/// A session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    /// `end` was sent and is awaited.
    pub(crate) ending: bool,
    /// Its links, by generation: older ones first.
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) handles: Handles,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// What the client was sent and has not settled, by number.
    pub(crate) unsettled: BTreeMap<i64, Unsettled>,
    /// What it can settle no more, its session lock being gone.
    pub(crate) lapsed: Lapsed,
}

/// A delivery that the client was sent and has not settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    /// The generation of its link.
    pub(crate) link: u64,
    pub(crate) tag: DeliveryTag,
}

/// Transfers that come. Some clients count deliveries where others count frames (AMQP-31), so both are
/// counted here: what is told is frames, what is held against a client is deliveries, which are never
/// more.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The id of the next frame.
    pub(crate) next_id: u32,
    /// The id of the next delivery, if only deliveries had ids.
    pub(crate) begun: u32,
    /// The first id that there is no room for, as the client was told last.
    pub(crate) up_to: u32,
    /// Deliveries that await a disposition.
    pub(crate) unanswered: u32,
}

/// Transfers that go.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The id of the next frame.
    pub(crate) next_id: u32,
    /// How many more frames the client takes.
    pub(crate) window: u32,
    /// The number of the next delivery, whose lower 32 bits are its id.
    pub(crate) next_number: i64,
}

/// The id of a delivery by its number.
pub(crate) fn delivery_id(number: i64) -> u32 {
    u32::try_from(number & i64::from(u32::MAX)).unwrap_or(0)
}

impl Session {
    /// Its name.
    pub(crate) const fn id(&self, channel: u16) -> SessionId {
        SessionId { channel, generation: self.generation }
    }

    /// Forgets what the client was sent in it and has not settled, and tells the tags of that.
    fn forget_unsettled(&mut self) -> Vec<DeliveryTag> {
        std::mem::take(&mut self.unsettled).into_values().map(|unsettled| unsettled.tag).collect()
    }
}
