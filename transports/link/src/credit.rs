//! Computes the limits of a receiver from the credit of its client and the bounds of the
//! connection. `links/flow.rs` has the operations that change them.
//!
//! A limit counts from the attach of the flow, so that grants and deliveries that cross each other
//! are not counted twice (docs/decisions/0003).

use peeklock_core::command::Drain;

/// Deliveries since the entity attached the receiver, and their limits.
#[derive(Debug)]
pub struct ReceiverFlow {
    /// Number of the last delivery before the attach.
    pub(crate) base: u64,
    /// Bytes that the client has received. Where the protocol has no confirmation, bytes that were
    /// written.
    pub(crate) returned_bytes: u64,
    pub(crate) delivery_limit: u64,
    pub(crate) byte_limit: u64,
    /// Whether a drain is under way; limits are set again after it.
    pub(crate) draining: bool,
}

/// Credit of a receiver, to send to the entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditLimits {
    /// Total number of messages that the entity may deliver since the attach.
    pub delivery_limit: u64,
    /// Total bytes that the entity may deliver since the attach.
    pub byte_limit: u64,
    /// Whether the entity returns credit that it cannot use immediately.
    pub drain: Drain,
}

/// Bounds of a link in addition to its credit.
#[derive(Clone, Copy, Debug)]
pub struct CreditBounds {
    /// Maximum bytes of deliveries under way.
    pub window_bytes: u64,
    /// Maximum unsettled deliveries.
    pub unsettled_max: u32,
    /// Whether deliveries are paused.
    pub paused: bool,
}

impl ReceiverFlow {
    /// Creates a flow that starts after delivery number `last`.
    pub(crate) const fn new(last: u64) -> Self {
        Self { base: last, returned_bytes: 0, delivery_limit: 0, byte_limit: 0, draining: false }
    }

    /// Returns limits to send to the entity. Returns `None` during a drain, and if a command is not
    /// worthwhile: the delivery limit is unchanged, and less than half of the window is free for
    /// more bytes.
    pub(crate) fn new_limits(&mut self, up_to: u64, window_bytes: u64) -> Option<CreditLimits> {
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
        Some(CreditLimits { delivery_limit, byte_limit: self.byte_limit, drain: Drain::No })
    }

    /// Starts a drain; returns its limits.
    pub(crate) const fn drain(&mut self) -> CreditLimits {
        self.draining = true;
        CreditLimits {
            delivery_limit: self.delivery_limit,
            byte_limit: self.byte_limit,
            drain: Drain::Yes,
        }
    }
}
