//! Reckons how far a receiver may be sent: by the credit of its client, and what bounds it besides. `links/flow.rs` has
//! what changes it.
//!
//! A limit counts from the attach of the flow, so that neither grants nor deliveries that cross each
//! other are counted twice (docs/decisions/0003).

use peeklock_core::command::Drain;

/// What was delivered since the entity attached the receiver, and how far it may go.
#[derive(Debug)]
pub struct Flow {
    /// The number of the last delivery before.
    pub(crate) base: u64,
    /// Bytes that the client has taken, or that were written where it need not say so.
    pub(crate) returned_bytes: u64,
    pub(crate) delivery_limit: u64,
    pub(crate) byte_limit: u64,
    /// A drain is under way: limits are set again after it.
    pub(crate) draining: bool,
}

/// New limits for the entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many messages it may have been sent in all.
    pub delivery_limit: u64,
    /// How many bytes it may have been sent in all.
    pub byte_limit: u64,
    /// Whether what cannot be used at once is given back.
    pub drain: Drain,
}

/// How far a link may be sent besides its credit.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of deliveries that are under way.
    pub window_bytes: u64,
    /// Deliveries that are not settled.
    pub unsettled_max: u32,
    /// Nothing more is to be delivered for now.
    pub paused: bool,
}

impl Flow {
    /// A flow that begins behind this delivery.
    pub(crate) const fn new(last: u64) -> Self {
        Self { base: last, returned_bytes: 0, delivery_limit: 0, byte_limit: 0, draining: false }
    }

    /// The limits to be told to the entity, if they have changed enough.
    pub(crate) fn new_limits(&mut self, up_to: u64, window_bytes: u64) -> Option<Limits> {
        if self.draining {
            return None;
        }
        let delivery_limit = up_to.saturating_sub(self.base);
        let byte_limit = self.returned_bytes.saturating_add(window_bytes);
        let more_bytes = byte_limit.saturating_sub(self.byte_limit);
        if delivery_limit == self.delivery_limit && more_bytes < window_bytes / 2 {
            return None;
        }
        self.delivery_limit = delivery_limit;
        self.byte_limit = self.byte_limit.max(byte_limit);
        Some(Limits { delivery_limit, byte_limit: self.byte_limit, drain: Drain::No })
    }

    /// The limits of a drain, which begins.
    pub(crate) const fn drain(&mut self) -> Limits {
        self.draining = true;
        Limits {
            delivery_limit: self.delivery_limit,
            byte_limit: self.byte_limit,
            drain: Drain::Yes,
        }
    }
}
