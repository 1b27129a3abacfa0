//! Edge: converts messages of clients to messages for entities. Transports call it. It finds invalid
//! properties and notes the first in the envelope; the machine refuses the message at its place in
//! the order of checks (`machine/src/intake.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};
use std::hash::Hasher;

use crate::command::InboundMessage;
use crate::limits::Limits;
use crate::message::{
    Content, Envelope, Message, MessageId, Overlay, PropertyChange, PropertyLimits,
    SettableProperty,
};

/// Input of the keyed hash that is a broker's id. Changing it would change the ids of all brokers.
const BROKER: &[u8] = b"peeklock broker";

/// Source of unpredictable random bits: a keyed hash of a counter, with a key from the operating
/// system.
pub struct Entropy {
    key: [u8; 16],
    counter: AtomicU64,
}

impl Entropy {
    /// Creates a source with a key from the operating system.
    ///
    /// # Errors
    /// An operating system without random bits.
    pub fn from_system() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self::with_key(key))
    }

    /// Creates a reproducible source, for tests.
    #[must_use]
    pub const fn with_key(key: [u8; 16]) -> Self {
        Self { key, counter: AtomicU64::new(0) }
    }

    /// Returns 64 new random bits.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// Returns 128 new random bits.
    #[must_use]
    pub fn next_u128(&self) -> u128 {
        let mut hasher = SipHasher128::new_with_key(&self.key);
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish128().as_u128()
    }
}

/// Creates inbound messages: adds an id if the sender gave none (MSG-07), and reads once the facts
/// that admission needs.
pub struct Edge {
    entropy: Entropy,
    limits: PropertyLimits,
    duplicate_key: [u8; 16],
}

impl Edge {
    /// Creates an edge with the limits of a namespace and its key for hashes of message ids.
    #[must_use]
    pub fn new(entropy: Entropy, limits: &Limits, duplicate_key: [u8; 16]) -> Self {
        let limits = PropertyLimits::of(limits);
        Self { entropy, limits, duplicate_key }
    }

    /// The source of random bits.
    #[must_use]
    pub const fn entropy(&self) -> &Entropy {
        &self.entropy
    }

    /// Identity of the broker, unique and constant as long as its data exists: a hash of a constant
    /// with its secret key, which does not reveal the key.
    #[must_use]
    pub fn broker_id(&self) -> u128 {
        SipHasher128::new_with_key(&self.duplicate_key).hash(BROKER).as_u128()
    }

    /// Takes a message of a typed client.
    #[must_use]
    pub fn take(&self, mut message: Message) -> InboundMessage {
        if message.message_id.is_some() {
            return self.with_envelope(message.encode());
        }
        message.message_id = Some(self.fresh_message_id());
        self.take_with_assigned_id(message.encode())
    }

    /// Takes an encoded message.
    #[must_use]
    pub fn take_content(&self, content: Content) -> InboundMessage {
        if content.message_id().is_some() {
            return self.with_envelope(content);
        }
        let sent_size = content.size();
        let content = content.with_message_id(&self.fresh_message_id());
        let added_bytes = content.size().saturating_sub(sent_size);
        let envelope = content.envelope_with_assigned_id(&self.limits, added_bytes);
        InboundMessage { content, envelope }
    }

    /// Takes a message from another entity, with the overlays set on it there. The destination
    /// reads broker properties that a rule has set (ACT-08), and counts all overlays as header. A
    /// message that duplicate detection ignores stays so, unless a rule has set another id
    /// (DUP-14).
    #[must_use]
    pub fn take_over(
        &self,
        content: Content,
        overlays: &[Overlay],
        never_duplicate: bool,
    ) -> InboundMessage {
        let sets = |wanted: fn(SettableProperty) -> bool| {
            overlays.iter().flat_map(Overlay::changes).any(|change| match change {
                PropertyChange::SetBroker(property, _) => wanted(property),
                PropertyChange::Set(..) | PropertyChange::Remove(_) => false,
            })
        };
        let sets_broker_properties = sets(|_| true);
        let never_duplicate =
            never_duplicate && !sets(|property| property == SettableProperty::MessageId);
        let mut message = match never_duplicate {
            true => self.take_with_assigned_id(content),
            false => self.with_envelope(content),
        };
        if sets_broker_properties && let Ok(mut whole) = message.content.decode() {
            for overlay in overlays {
                whole.apply_overlay(overlay);
            }
            let whole = whole.encode();
            let changed = match never_duplicate {
                true => self.take_with_assigned_id(whole),
                false => self.with_envelope(whole),
            };
            let Envelope { size, header_size, added_bytes, .. } = message.envelope;
            message.envelope = Envelope { size, header_size, added_bytes, ..changed.envelope };
        }
        for overlay in overlays {
            // Without the overhead of 256 bytes per overlay, which counts only where the overlay is
            // stored (SET-41).
            message.envelope.size = message.envelope.size.saturating_add(overlay.size_bytes());
            message.envelope.header_size =
                message.envelope.header_size.saturating_add(overlay.size_bytes());
        }
        message
    }

    /// Takes a message with the id of its sender, or without one.
    fn with_envelope(&self, content: Content) -> InboundMessage {
        let envelope = content.envelope(&self.limits, &self.duplicate_key);
        InboundMessage { content, envelope }
    }

    /// Takes a message whose id was assigned by a broker, so that it is never a duplicate (DUP-14).
    /// If the id does not have the form of an assigned one, its size is judged like any other.
    #[must_use]
    pub fn take_with_assigned_id(&self, content: Content) -> InboundMessage {
        let envelope = match content.assigned_id_bytes() {
            Some(bytes) => content.envelope_with_assigned_id(&self.limits, bytes),
            None => {
                let mut envelope = content.envelope(&self.limits, &self.duplicate_key);
                envelope.exempt_from_duplicate_detection();
                envelope
            }
        };
        InboundMessage { content, envelope }
    }

    fn fresh_message_id(&self) -> MessageId {
        MessageId::String(format!("{:032x}", self.entropy.next_u128()))
    }
}
