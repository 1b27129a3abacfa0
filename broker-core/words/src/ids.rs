//! Identities: small plain values that name entities, messages, locks and receivers. All crates use
//! them.

use std::fmt;

/// Names one entity permanently: a re-created path gets a new id, and an id is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityId(pub u64);

/// The identity of a message in its entity (MSG-12): the first is 1, 0 stands for "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SequenceNumber(pub u64);

/// Names one lock on one message (SET-15). Any client that has the token may settle (SET-24).
///
/// The high half repeats the sequence number, so that a token is looked up without a map; the low
/// half is random, so that it cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockToken(pub u128);

/// Names one session lock among those in force in its entity. It is random, because it is part of
/// lock tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionEpoch(pub u32);

/// Names one receiver link or one waiting receive call; unique within a broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReceiverId(pub u64);

/// Names a command between its arrival at an entity and its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Correlates a rejection with the broker's log (SND-06).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TrackingId(pub u128);

/// Names a job of an operator, whose steps change messages of an entity (CON-15). The program that
/// runs the job chooses it, so that a repeated step is recognised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

impl SequenceNumber {
    /// Whether a send result of this number means that the message was dropped: a message with the
    /// same id was sent before, within the window of duplicate detection (DUP-02).
    #[must_use]
    pub const fn is_duplicate(self) -> bool {
        self.0 == 0
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl LockToken {
    /// Joins the locked message's number with 64 random bits.
    #[must_use]
    pub const fn new(sequence: SequenceNumber, random: u64) -> Self {
        Self(((sequence.0 as u128) << 64) | random as u128)
    }

    /// The token of a message that is locked with its session. The 32 bits that name the session
    /// lock precede 32 random bits, so a token that is used too late still shows whether its
    /// session lock is in force (SES-15). Other clients know none of the 64 bits.
    #[must_use]
    pub const fn in_session(sequence: SequenceNumber, epoch: SessionEpoch, random: u64) -> Self {
        Self::new(sequence, ((epoch.0 as u64) << 32) | (random & 0xffff_ffff))
    }

    /// The session lock that the token claims to belong to. Meaningful only for a message of a
    /// session.
    #[must_use]
    pub const fn epoch(self) -> SessionEpoch {
        #[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits are wanted")]
        SessionEpoch((self.0 >> 32) as u32)
    }

    /// The number of the message that this token claims to lock.
    #[must_use]
    pub const fn sequence(self) -> SequenceNumber {
        SequenceNumber((self.0 >> 64) as u64)
    }

    /// Reads the 32 hexadecimal digits of a GUID, hyphens ignored, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_guid(text).map(Self)
    }
}

impl JobId {
    /// Reads a GUID of 32 hexadecimal digits with or without its four hyphens.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_guid(text).map(Self)
    }
}

/// Reads a GUID of 32 hexadecimal digits with or without its four hyphens.
#[must_use]
pub fn parse_guid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    let hyphenated = bytes.len() == 36;
    if !hyphenated && bytes.len() != 32 {
        return None;
    }
    let mut value = 0u128;
    for (position, byte) in bytes.iter().enumerate() {
        if hyphenated && matches!(position, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        value = (value << 4) | u128::from(char::from(*byte).to_digit(16)?);
    }
    Some(value)
}

/// Writes a GUID in the usual form of 8-4-4-4-12 lower-case digits.
pub fn write_guid(value: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        value >> 96,
        (value >> 80) & 0xffff,
        (value >> 64) & 0xffff,
        (value >> 48) & 0xffff,
        value & 0xffff_ffff_ffff
    )
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Debug for SessionEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for TrackingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Debug for TrackingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_guid(self.0, f)
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
