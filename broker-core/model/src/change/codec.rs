//! Keys and values of the store.
//!
//! A key is its space (the entity id, 8 bytes big-endian), a table (1 byte) and the rest. A scan of
//! a space meets the description first, and messages in the order of their numbers. The namespace
//! has space 0, whose records list the entities by kind.
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
//! | 22 receipt of a job | job (16) | step (8), at (8), sub-queue (1), hash of the deed (8), the route of version 2: whether it resubmits (1), destination, whether it edits (1), length of the changes (4), changes; then for each message: number (8), result (1) |
//! | 30 session state | keyed hash of the session id (16) | set at (8), size (8), session id; the content is the state |
//!
//! In the namespace's space:
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | 01 ids | | upper end of the ids that are taken |
//! | 02 secrets | | the key of hashes |
//! | 03 anonymous access | | instant from which a token is required (8) |
//! | 04 unfinished copy | | version (1); no broker opens such a store |
//! | 10 queue | id (8) | its path |
//! | 11 topic | id (8) | its path |
//! | 12 subscription | id (8) | id of its topic (8), name |
//! | 20 policies | id (8), 0 for the namespace | all policies of the queue or topic, with their keys |
//!
//! The facts of the namespace itself have a space of their own, 2^63, which version 0.1 never
//! reads: table 01 without a rest, with the instant of creation (8), the instant of the last change
//! of name or tier (8), name and tier.
//!
//! To change a stored type, give it the next version byte, write only that version, and keep
//! reading every earlier one. The tests keep golden records of each version.
//!
//! All types have version 1, except descriptions and slots. `codec/description.rs` has the versions
//! of descriptions. The versions of a slot:
//!
//! | version | message | end of the record |
//! |---|---|---|
//! | 1 | without a session | |
//! | 2 | in a session; at a topic, from a dead-letter queue | text: session id; path of that entity |
//! | 3 | waits for its transfer | text: path of the destination |
//! | 4 | any of these, without a message id from its sender (DUP-14) | whether a text follows (1), text |
//! | 5 | any of these whose publish has made copies (FWD-33) | copies spent (2), flags (1): 1 has text, 2 no message id; text |
//!
//! Version 6 is a message that is Delayed (RTY-01): end of the delay (8), then the slot in one of
//! the versions above.
//!
//! A slot has the lowest version that can express it, so a store without sessions has no version 2,
//! and one without send-via no version 3.

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
    receipt_key, rule_key, session_state_key, slot_key, space_key, subscription_entry_key,
    topic_entry_key,
};
pub use policy::{read_instant, read_policies, write_instant, write_policies};
use reader::{Reader, write_text};
pub use record::{
    Counters, NamespaceFacts, SessionStateRecord, read_acceptance, read_counters,
    read_namespace_facts, read_peer_record, read_receipt, read_session_state,
    read_subscription_entry, write_acceptance, write_counters, write_namespace_facts,
    write_peer_record, write_receipt, write_session_state, write_subscription_entry,
};
pub use rule::{read_rule, write_rule};
pub use slot::{read_delay, read_slot, write_delay, write_slot};

/// Version byte of types with one version.
pub(crate) const VERSION: u8 = 1;
