//! The slot of a message: all facts that a machine keeps in memory for its decisions. The codec
//! stores a slot under each message's key; `machine/src/slot.rs` keeps the table of slots.

use crate::ids::SequenceNumber;
use crate::limits::OVERLAY_BYTES;
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::time::Timestamp;

/// State of a message in its sub-queue. Locked is not a state of its own: locks do not survive a
/// restart, so a locked message is an active or deferred one whose slot names a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SlotState {
    /// Waits for its instant.
    Scheduled,
    /// Available, or locked, or expired and not yet removed.
    Active,
    /// Set aside by a receiver, received by number only.
    Deferred,
    /// Waits for its transfer to the destination that its sender named (VIA-01).
    Pending,
}

/// Facts for decisions about a message: at most 48 bytes for messages of any size (DESIGN D8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Instant of enqueueing; a scheduled message has its future instant.
    pub enqueued_at: Timestamp,
    /// Instant of expiry by its own TTL; [`Timestamp::NEVER`] without one.
    pub expires_at: Timestamp,
    /// Number at the original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Stored size, overlays and their records included (SET-41).
    pub size: u32,
    /// Size of all sections except the body, overlays included.
    pub header_size: u32,
    /// Failed deliveries (SET-29).
    pub delivery_count: u32,
    /// The lock in the lock table.
    pub lock: Option<LockIndex>,
    /// Number of overlays on the content.
    pub overlay_count: u16,
    /// State in its sub-queue.
    pub state: SlotState,
    /// Sub-queue that holds it.
    pub sub_queue: SubQueue,
    /// Number of transfers (FWD-13).
    pub hops: u8,
    /// Boolean facts.
    pub marks: Marks,
    /// Copies that the original message has made already, or that other copies may still make; the
    /// limit minus this is left to this message (FWD-33).
    pub copies_spent: u16,
}

/// A boolean fact about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A synced change of the message is not yet durable. Until then no receiver gets the message.
    InFlight = 1,
    /// The message is on its way to another entity (LIF-05). Like a lock, this does not survive a
    /// restart.
    Transferring = 2,
    /// The message is never a duplicate at any entity, because the broker made its id (DUP-14).
    NeverDuplicate = 4,
    /// A delivery failed, and the message is not available until an instant that is stored outside
    /// the slot (RTY-01).
    Delayed = 8,
    /// The message was scheduled and has been enqueued since (PEK-05).
    WasScheduled = 16,
}

/// All marks of a message, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);

    /// Returns the marks that a message keeps in every entity: [`Mark::NeverDuplicate`] or none.
    #[must_use]
    pub const fn never_duplicate(is_it: bool) -> Self {
        if is_it { Self(Mark::NeverDuplicate as u8) } else { Self::NONE }
    }

    /// Whether a mark is set.
    #[must_use]
    pub const fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    /// Returns these marks and one more.
    #[must_use]
    pub const fn with(self, mark: Mark) -> Self {
        Self(self.0 | mark as u8)
    }

    /// Sets a mark.
    pub const fn set(&mut self, mark: Mark) {
        self.0 |= mark as u8;
    }

    /// Clears a mark.
    pub const fn clear(&mut self, mark: Mark) {
        self.0 &= !(mark as u8);
    }
}

impl Slot {
    /// Returns the slot of a new message: active in the main queue, without expiry, lock or
    /// overlay, never delivered or transferred.
    #[must_use]
    pub const fn arriving(enqueued_at: Timestamp, size: u32, header_size: u32) -> Self {
        Self {
            enqueued_at,
            expires_at: Timestamp::NEVER,
            enqueued_sequence: SequenceNumber(0),
            size,
            header_size,
            delivery_count: 0,
            lock: None,
            overlay_count: 0,
            state: SlotState::Active,
            sub_queue: SubQueue::Main,
            hops: 0,
            marks: Marks::NONE,
            copies_spent: 0,
        }
    }

    /// Whether a synced change of the message is not yet durable.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.marks.has(Mark::InFlight)
    }

    /// Whether the message is on its way to another entity.
    #[must_use]
    pub const fn is_transferring(&self) -> bool {
        self.marks.has(Mark::Transferring)
    }

    /// Whether the message is never a duplicate.
    #[must_use]
    pub const fn is_never_duplicate(&self) -> bool {
        self.marks.has(Mark::NeverDuplicate)
    }

    /// Whether the message was scheduled before it was enqueued.
    #[must_use]
    pub const fn was_scheduled(&self) -> bool {
        self.marks.has(Mark::WasScheduled)
    }

    /// Whether the message is not available until the end of its delay.
    #[must_use]
    pub const fn is_delayed(&self) -> bool {
        self.marks.has(Mark::Delayed)
    }

    /// Adds an overlay to the counts and sizes.
    pub fn add_overlay(&mut self, overlay: Option<&Overlay>) {
        if let Some(overlay) = overlay {
            self.overlay_count = self.overlay_count.saturating_add(1);
            self.size = self.size.saturating_add(overlay_bytes(overlay));
            self.header_size = self.header_size.saturating_add(overlay.size_bytes());
        }
    }
}

/// Bytes that an overlay adds to the stored size of its message: the overlay and its record
/// (SET-41).
#[must_use]
pub fn overlay_bytes(overlay: &Overlay) -> u32 {
    overlay.size_bytes().saturating_add(OVERLAY_BYTES)
}

/// Index of a lock in the lock table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockIndex(std::num::NonZeroU32);

impl LockIndex {
    /// Returns the index for a place in the table, or `None` if the place exceeds 32 bits.
    #[must_use]
    pub fn new(place: usize) -> Option<Self> {
        std::num::NonZeroU32::new(u32::try_from(place).ok()?.checked_add(1)?).map(Self)
    }

    /// The place in the table.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

const _: () = assert!(size_of::<Slot>() <= 48, "a slot is at most 48 bytes (DESIGN D8)");
