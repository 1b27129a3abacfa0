//! The facts of a message that an entity reads, and whether the message may be sent. The broker
//! computes them once, when it takes the message in. (Data path, step 1.)

use std::collections::BTreeSet;

use siphasher::sip128::SipHasher24;

use super::codec::{IdRef, PropertyEntry, Reader, Scalar, is_longer_than, read_value};
use super::content::View;
use super::{Content, ContentError};
use crate::error::{Quoted, Rejection};
use crate::limits::Limits;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of keys that are compared pairwise.
const FEW_KEYS: usize = 16;

/// The facts of a message that admission and its slot need. They are computed once, when a
/// transport takes the message in.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The size in bytes (MSG-25).
    pub size: u32,
    /// The size without the body sections (MSG-25).
    pub header_size: u32,
    /// Number of bytes, in both sizes, that a broker added for an id of its own (MSG-07).
    pub added_bytes: u32,
    /// The sender's time to live; `None` if not set.
    pub time_to_live: Option<TimeSpan>,
    /// The instant at which the sender wants the message enqueued.
    pub scheduled_enqueue_time: Option<Timestamp>,
    /// A keyed hash of the text form of the message id (DUP-01, AMQ-21). `None` without an id, and
    /// for an id from a broker (DUP-14).
    pub message_id_hash: Option<u128>,
    /// The session id, which may be empty (SES-03).
    pub session_id: Option<Box<str>>,
    /// The first check that the message fails, in the order of SND-19.
    pub defect: Option<Defect>,
}

/// Reason why a message may not be sent, by the step of SND-19 that finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Defect {
    /// A property or the header is too large (SND-23).
    Size(Rejection),
    /// A property is not valid.
    Property(Rejection),
}

/// The limits of properties (MSG-05, MSG-26).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PropertyLimits {
    /// Characters of an id or a partition key.
    pub identifier_characters_max: usize,
    /// Encoded bytes of an application property, key plus value.
    pub property_bytes_max: u32,
    /// Bytes of all properties of a message.
    pub header_bytes_max: u32,
}

impl PropertyLimits {
    /// The limits of a namespace (QUO-02).
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Self {
            identifier_characters_max: limits.message_id_chars_max,
            property_bytes_max: narrow(limits.property_bytes_max),
            header_bytes_max: narrow(limits.header_bytes_max),
        }
    }
}

impl Default for PropertyLimits {
    /// The limits of the spec: 128 characters, 32 KiB, 64 KiB.
    fn default() -> Self {
        Self {
            identifier_characters_max: 128,
            property_bytes_max: 32 * 1024,
            header_bytes_max: 64 * 1024,
        }
    }
}

impl Defect {
    /// The answer to the sender.
    #[must_use]
    pub const fn rejection(&self) -> &Rejection {
        match self {
            Self::Size(rejection) | Self::Property(rejection) => rejection,
        }
    }
}

impl Envelope {
    /// The size of the message without bytes that a broker added. The limits of messages and
    /// batches apply to it (SND-30).
    #[must_use]
    pub const fn sent_size(&self) -> u32 {
        self.size.saturating_sub(self.added_bytes)
    }

    /// Whether the message is never a duplicate, because its sender gave it no id (DUP-14).
    #[must_use]
    pub const fn is_never_duplicate(&self) -> bool {
        self.message_id_hash.is_none()
    }

    /// Exempts the message from duplicate detection, because a broker made its id.
    pub const fn exempt_from_duplicate_detection(&mut self) {
        self.message_id_hash = None;
    }
}

impl Content {
    /// The facts of this message, checked against the limits. Ids are hashed with `duplicate_key`,
    /// so that no sender can choose ids that collide.
    #[must_use]
    pub fn envelope(&self, limits: &PropertyLimits, duplicate_key: &[u8; 16]) -> Envelope {
        let mut envelope = self.judged(limits, None);
        envelope.message_id_hash = self.properties().message_id.map(|id| hash(id, duplicate_key));
        envelope
    }

    /// The facts of a message whose id a broker made, which takes `added_bytes`. The limits of ids
    /// and of messages do not apply to this id, because no sender can change it, and the message is
    /// never a duplicate (DUP-14).
    #[must_use]
    pub fn envelope_with_assigned_id(&self, limits: &PropertyLimits, added_bytes: u32) -> Envelope {
        self.judged(limits, Some(added_bytes))
    }

    fn judged(&self, limits: &PropertyLimits, assigned_bytes: Option<u32>) -> Envelope {
        let view = self.view();
        let header_size = self.header_size();
        let is_assigned = assigned_bytes.is_some();
        let defect = match self.check_size(header_size, limits) {
            Err(rejection) => Some(Defect::Size(rejection)),
            Ok(()) => self.check_properties(&view, limits, is_assigned).err().map(Defect::Property),
        };
        Envelope {
            size: self.size(),
            header_size,
            added_bytes: assigned_bytes.unwrap_or(0),
            time_to_live: view.time_to_live,
            scheduled_enqueue_time: view
                .annotations
                .scheduled_enqueue_time
                .map(Timestamp::from_unix_ms),
            message_id_hash: None,
            session_id: view.properties.group_id.map(Box::from),
            defect,
        }
    }

    /// SND-23. Properties are checked before the header, so that the error names the property that
    /// fills it.
    fn check_size(&self, header_size: u32, limits: &PropertyLimits) -> Result<(), Rejection> {
        if header_size > limits.property_bytes_max {
            for entry in self.application_entries() {
                check_property_size(entry, limits)?;
            }
        }
        if header_size > limits.header_bytes_max {
            return Err(Rejection::message_size_exceeded(
                "message header",
                u64::from(header_size),
                u64::from(limits.header_bytes_max),
            ));
        }
        Ok(())
    }

    fn check_properties(
        &self,
        view: &View<'_>,
        limits: &PropertyLimits,
        is_assigned: bool,
    ) -> Result<(), Rejection> {
        let View { time_to_live, annotations, properties } = view;
        let characters_max = limits.identifier_characters_max;
        let message_id = properties.message_id.filter(|_| !is_assigned);
        if message_id.is_some_and(|id| id.is_longer_than(characters_max)) {
            return Err(too_long("MessageId", characters_max));
        }
        for (name, text) in [
            ("SessionId", properties.group_id),
            ("PartitionKey", annotations.partition_key),
            ("TransactionPartitionKey", annotations.via_partition_key),
            ("ReplyToSessionId", properties.reply_to_group_id),
        ] {
            if text.is_some_and(|text| is_longer_than(text, characters_max)) {
                return Err(too_long(name, characters_max));
            }
        }
        if let (Some(session), Some(partition)) =
            (set(properties.group_id), set(annotations.partition_key))
            && session != partition
        {
            return Err(Rejection::invalid_operation(format!(
                "session id {} and partition key {} differ; they must be equal, or leave one out",
                Quoted(session),
                Quoted(partition)
            )));
        }
        if self.has_application_properties() {
            self.check_values()?;
            self.check_keys()?;
        }
        if time_to_live.is_some_and(|span| span == TimeSpan::ZERO) {
            return Err(Rejection::out_of_range("time to live must be more than zero"));
        }
        Ok(self.check_body()?)
    }

    /// MSG-20, MSG-21.
    fn check_values(&self) -> Result<(), Rejection> {
        for entry in self.application_entries() {
            let error = match Reader::new(entry.value).scalar() {
                Ok(Scalar::Compound | Scalar::Other) => ContentError::UnsupportedValue,
                Ok(Scalar::Described(..)) => match read_value(entry.value) {
                    Ok(_) => continue,
                    Err(error) => error,
                },
                Ok(_) => continue,
                Err(error) => error,
            };
            let key = entry.key().unwrap_or_default();
            return Err(Rejection::argument(format!("{error}: {}", Quoted(key))));
        }
        Ok(())
    }

    /// MSG-22.
    fn check_keys(&self) -> Result<(), Rejection> {
        let mut few = [""; FEW_KEYS];
        let mut many = BTreeSet::new();
        for (position, entry) in self.application_entries().enumerate() {
            let key = entry.key().ok_or(ContentError::BadKey)?;
            if key.is_empty() {
                return Err(empty_key());
            }
            let doubled = if let Some(slot) = few.get_mut(position) {
                *slot = key;
                few.get(..position).is_some_and(|before| before.contains(&key))
            } else {
                few.contains(&key) || !many.insert(key)
            };
            if doubled {
                return Err(doubled_key(key));
            }
        }
        Ok(())
    }
}

/// MSG-26.
pub(super) fn check_property_size(
    entry: PropertyEntry<'_>,
    limits: &PropertyLimits,
) -> Result<(), Rejection> {
    let bytes = u32::try_from(entry.size_bytes()).unwrap_or(u32::MAX);
    if bytes <= limits.property_bytes_max {
        return Ok(());
    }
    let label = format!("application property {}", Quoted(entry.key().unwrap_or_default()));
    Err(Rejection::message_size_exceeded(
        &label,
        u64::from(bytes),
        u64::from(limits.property_bytes_max),
    ))
}

pub(super) fn empty_key() -> Rejection {
    Rejection::argument("key of an application property is empty")
}

pub(super) fn doubled_key(key: &str) -> Rejection {
    Rejection::argument(format!("application property {} is given twice", Quoted(key)))
}

fn too_long(name: &str, characters_max: usize) -> Rejection {
    Rejection::out_of_range(format!(
        "{name} is longer than {characters_max} characters; make it shorter"
    ))
}

/// The text, unless it is empty: an empty id or key names no partition.
fn set(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn hash(id: IdRef<'_>, key: &[u8; 16]) -> u128 {
    hash_of_id(&id.text(), key)
}

/// The keyed hash of the text form of a message id, as in [`Envelope::message_id_hash`].
#[must_use]
pub fn hash_of_id(id: &str, key: &[u8; 16]) -> u128 {
    SipHasher24::new_with_key(key).hash(id.as_bytes()).as_u128()
}
