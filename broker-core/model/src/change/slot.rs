//! What a machine keeps of each message.

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
    /// Set aside.
    Deferred,
    /// Waits for its transfer to the destination that its sender named (VIA-01).
    Pending,
}

/// What a machine decides with: at most 48 bytes a message, whatever its size (DESIGN D8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// When it was enqueued; while scheduled, when it will be.
    pub enqueued_at: Timestamp,
    /// When it expires by its own TTL; [`Timestamp::NEVER`] without one.
    pub expires_at: Timestamp,
    /// Number at the original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Stored size, overlays and their records included (SET-41).
    pub size: u32,
    /// Size of all but the body, overlays included.
    pub header_size: u32,
    /// Failed deliveries (SET-29).
    pub delivery_count: u32,
    /// The lock in the lock table.
    pub lock: Option<LockIndex>,
    /// How many overlays the content has.
    pub overlay_count: u16,
    /// State in its sub-queue.
    pub state: SlotState,
    /// Where it is.
    pub sub_queue: SubQueue,
    /// Transfers so far (FWD-13).
    pub hops: u8,
    /// What else is so of it.
    pub marks: Marks,
    /// Of the copies that its publish may cause over all hops, those that are made, or are for others to make
    /// (FWD-33).
    pub copies_spent: u16,
}

/// What is so of a message, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A synced change of it is not yet durable; until then it is offered to nobody.
    InFlight = 1,
    /// It is on its way to another entity (LIF-05). Like a lock, this does not survive a restart.
    Transferring = 2,
    /// It is never a duplicate, wherever it goes: the broker made its id (DUP-14).
    NeverDuplicate = 4,
    /// Its delivery has failed, and nobody gets it until an instant that is kept beside the slots (RTY-01).
    Delayed = 8,
    /// It was scheduled, and is enqueued now (PEK-05).
    WasScheduled = 16,
}

/// All marks of a message, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);

    /// The mark that a message brings along wherever it goes: whether it is never a duplicate.
    #[must_use]
    pub const fn never_duplicate(is_it: bool) -> Self {
        if is_it { Self(Mark::NeverDuplicate as u8) } else { Self::NONE }
    }

    /// Whether a mark is set.
    #[must_use]
    pub const fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    /// The same with a mark.
    #[must_use]
    pub const fn with(self, mark: Mark) -> Self {
        Self(self.0 | mark as u8)
    }

    /// Sets a mark.
    pub const fn set(&mut self, mark: Mark) {
        self.0 |= mark as u8;
    }

    /// Takes a mark away.
    pub const fn clear(&mut self, mark: Mark) {
        self.0 &= !(mark as u8);
    }
}

impl Slot {
    /// A message of this size that comes in: active in the main queue, without an end, never delivered, on its
    /// first way, as the sender has made it.
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

    /// Whether a synced change of it is not yet durable.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.marks.has(Mark::InFlight)
    }

    /// Whether it is on its way to another entity.
    #[must_use]
    pub const fn is_transferring(&self) -> bool {
        self.marks.has(Mark::Transferring)
    }

    /// Whether it is never a duplicate, wherever it goes.
    #[must_use]
    pub const fn is_never_duplicate(&self) -> bool {
        self.marks.has(Mark::NeverDuplicate)
    }

    /// Whether it was scheduled before it was enqueued.
    #[must_use]
    pub const fn was_scheduled(&self) -> bool {
        self.marks.has(Mark::WasScheduled)
    }

    /// Whether nobody gets it until its instant.
    #[must_use]
    pub const fn is_delayed(&self) -> bool {
        self.marks.has(Mark::Delayed)
    }

    /// Counts an overlay in.
    pub fn add_overlay(&mut self, overlay: Option<&Overlay>) {
        if let Some(overlay) = overlay {
            self.overlay_count = self.overlay_count.saturating_add(1);
            self.size = self.size.saturating_add(overlay_bytes(overlay));
            self.header_size = self.header_size.saturating_add(overlay.size_bytes());
        }
    }
}

/// What an overlay adds to the stored size of its message: itself, and its record (SET-41).
#[must_use]
pub fn overlay_bytes(overlay: &Overlay) -> u32 {
    overlay.size_bytes().saturating_add(OVERLAY_BYTES)
}

/// Place of a lock in the lock table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockIndex(std::num::NonZeroU32);

impl LockIndex {
    /// The index for a place in the table.
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
