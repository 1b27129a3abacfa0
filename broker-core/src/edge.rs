//! The edge: where a message of a client becomes one the entities take. Transports call it.

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

/// What the id of a broker is the keyed hash of; another text would make all brokers others.
const BROKER: &[u8] = b"peeklock broker";

/// Random bits that cannot be guessed: a keyed hash of a counter, the key from the system.
pub struct Entropy {
    key: [u8; 16],
    counter: AtomicU64,
}

impl Entropy {
    /// A source with a key from the system's generator.
    ///
    /// # Errors
    /// When the system has none.
    pub fn from_system() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self::with_key(key))
    }

    /// A source that can be repeated, for tests.
    #[must_use]
    pub const fn with_key(key: [u8; 16]) -> Self {
        Self { key, counter: AtomicU64::new(0) }
    }

    /// 64 fresh bits.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// 128 fresh bits.
    #[must_use]
    pub fn next_u128(&self) -> u128 {
        let mut hasher = SipHasher128::new_with_key(&self.key);
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish128().as_u128()
    }
}

/// Makes inbound messages: gives an id where the sender gave none (MSG-07), and reads once what
/// admission needs.
pub struct Edge {
    entropy: Entropy,
    limits: PropertyLimits,
    duplicate_key: [u8; 16],
}

impl Edge {
    /// An edge with the limits of a namespace and its key for hashes of message ids.
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

    /// Names the broker among all others, for as long as its data exists: what the key of its hashes
    /// makes of a constant, which tells nothing of the key.
    #[must_use]
    pub fn broker_id(&self) -> u128 {
        SipHasher128::new_with_key(&self.duplicate_key).hash(BROKER).as_u128()
    }

    /// Takes a message of a typed client.
    #[must_use]
    pub fn take(&self, mut message: Message) -> InboundMessage {
        if message.message_id.is_some() {
            return self.admit(message.encode());
        }
        message.message_id = Some(self.fresh_message_id());
        self.take_with_assigned_id(message.encode())
    }

    /// Takes a message that is encoded already.
    #[must_use]
    pub fn take_content(&self, content: Content) -> InboundMessage {
        if content.message_id().is_some() {
            return self.admit(content);
        }
        let sent_size = content.size();
        let content = content.with_message_id(&self.fresh_message_id());
        let added_bytes = content.size().saturating_sub(sent_size);
        let envelope = content.envelope_with_assigned_id(&self.limits, added_bytes);
        InboundMessage { content, envelope }
    }

    /// Takes a message that comes from another entity, with what was set on it there: its destination
    /// reads the broker properties that a rule has set (ACT-08), and counts all as header. One that is
    /// never a duplicate stays so, unless a rule has given it another id (DUP-14).
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
            false => self.admit(content),
        };
        if sets_broker_properties && let Ok(mut whole) = message.content.decode() {
            for overlay in overlays {
                whole.apply_overlay(overlay);
            }
            let whole = whole.encode();
            let changed = match never_duplicate {
                true => self.take_with_assigned_id(whole),
                false => self.admit(whole),
            };
            let Envelope { size, header_size, added_bytes, .. } = message.envelope;
            message.envelope = Envelope { size, header_size, added_bytes, ..changed.envelope };
        }
        for overlay in overlays {
            // What describes it is no part of the message, and counts where it is stored (SET-41).
            message.envelope.size = message.envelope.size.saturating_add(overlay.size_bytes());
            message.envelope.header_size =
                message.envelope.header_size.saturating_add(overlay.size_bytes());
        }
        message
    }

    /// A message with the id of its sender, or none.
    fn admit(&self, content: Content) -> InboundMessage {
        let envelope = content.envelope(&self.limits, &self.duplicate_key);
        InboundMessage { content, envelope }
    }

    /// A message whose sender gave it no id: that which a broker gave is never a duplicate (DUP-14). What does not look
    /// like one is judged like any other.
    #[must_use]
    pub fn take_with_assigned_id(&self, content: Content) -> InboundMessage {
        let envelope = match content.assigned_id_bytes() {
            Some(bytes) => content.envelope_with_assigned_id(&self.limits, bytes),
            None => {
                let mut envelope = content.envelope(&self.limits, &self.duplicate_key);
                envelope.let_never_be_duplicate();
                envelope
            }
        };
        InboundMessage { content, envelope }
    }

    fn fresh_message_id(&self) -> MessageId {
        MessageId::String(format!("{:032x}", self.entropy.next_u128()))
    }
}
