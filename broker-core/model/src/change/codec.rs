//! Keys and values of the store.
//!
//! A key is its space (the entity id, 8 bytes big-endian), a table (1 byte) and the rest, so that a
//! scan of a space meets the description first and messages in order of their numbers. The namespace
//! has space 0, whose records say of which kind an entity is.
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | 01 description | | properties of the queue, topic or subscription |
//! | 02 counters | | last number, created, updated, last used |
//! | 03 rule | keyed hash of the name in lower case (16) | the rule; in the space of its subscription |
//! | 10 slot | number (8) | the slot; the content is the message |
//! | 11 overlay | number (8), index (2) | nothing; the content is the overlay |
//! | 20 message id | bucket (8), hash (16) | accepted at (8), number if scheduled (8) |
//! | 21 forwarded by a peer | broker (16), entity (8), sub-queue (1), place (2) | ordinal (8), number (8), enqueued at (8), taken at (8) |
//! | 30 session state | keyed hash of the session id (16) | set at (8), size (8), session id; the content is the state |
//!
//! In the namespace's space:
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | 01 ids | | up to which ids are taken |
//! | 02 secrets | | the key of hashes |
//! | 03 anonymous access | | since when nobody is let in without a token (8) |
//! | 10 queue | id (8) | its path |
//! | 11 topic | id (8) | its path |
//! | 12 subscription | id (8) | id of its topic (8), name |
//! | 20 policies | id (8), 0 for the namespace | all policies of the queue or topic, with their keys |
//!
//! What is known of the namespace itself has a space of its own, 2^63, which version 0.1 never reads: table 01, without
//! a rest, when it was created (8), when name or tier changed (8), name, tier.
//!
//! To change a stored type: give it the next version byte, write only that, and go on reading every
//! earlier one. Golden records of each version stay in the tests.
//!
//! All types are of version 1 but descriptions and the slot. A description of version 2 ends with what administration
//! clients have said that there is no property for, one of version 3 with that if there is some, and with how it
//! retries. The slot has six: 1 for a message without session, 2 for one
//! that belongs to a session, whose id it ends with, 3 for one that waits to be transferred, and ends
//! with the path of its destination. A store without sessions has no version 2 in it, one without
//! send-via no version 3. At a topic, where nothing is in a session, version 2 is one that comes from a
//! dead-letter queue, and ends with the path of where it was dead-lettered. Version 4 is any of these
//! whose sender gave no message id: it ends with a byte that says whether there is such a text, and with
//! the text if there is. Version 5 is any of these whose publish has made copies (FWD-33): behind the fields that all
//! have come how many are spent (2), a byte that says in its lowest bit whether there is such a text and in the next
//! whether its sender gave no message id, and the text. Version 6 is any of these that is Delayed (RTY-01): until when
//! (8), and then the slot as it would be without.

mod description;
mod key;
mod policy;
mod reader;
mod record;
mod rule;
mod slot;
#[cfg(test)]
mod tests;

pub use description::{read_description, write_description};
pub use key::{NAMESPACE_SPACE, POLICIES, QUEUE_ENTRY, SUBSCRIPTION_ENTRY, TOPIC_ENTRY};
pub use key::{
    RecordKey, counters_key, description_key, id_bucket_key, id_key, namespace_facts_key,
    overlay_key, overlays_key, peer_key, peer_source_key, policies_key, queue_entry_key, read_key,
    rule_key, session_state_key, slot_key, space_key, subscription_entry_key, topic_entry_key,
};
pub use policy::{PolicyRecord, read_instant, read_policies, write_instant, write_policies};
use reader::{Reader, write_text};
pub use record::{
    Counters, NamespaceFacts, SessionStateRecord, read_acceptance, read_counters,
    read_namespace_facts, read_session_state, read_subscription_entry, read_taking,
    write_acceptance, write_counters, write_namespace_facts, write_session_state,
    write_subscription_entry, write_taking,
};
pub use rule::{read_rule, write_rule};
pub use slot::{read_delay, read_slot, write_delay, write_slot};

/// The version of a type that has one.
pub(crate) const VERSION: u8 = 1;
