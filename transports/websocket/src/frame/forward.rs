//! What another broker forwards.

use serde::{Deserialize, Serialize};

use super::message::Outgoing;
use super::send::FailedSend;
use super::text::{Guid, Instant};
use super::wire::{Reader, Wire, wire};
use super::{bodies, json, wire_choice};
use crate::error::FrameError;

/// Which messages of an entity are forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Forwarding {
    Messages,
    DeadLetters,
}

wire_choice!(Forwarding, "forwarding", [Messages, DeadLetters]);

bodies! {
    struct Forward {
        link: u32,
        source: ForwardSource,
        #[serde(deserialize_with = "json::bounded")]
        messages: Vec<ForwardedMessage>,
    }

    struct ForwardSource {
        /// The id of the broker.
        broker: Guid,
        /// The id of the entity there.
        entity: u64,
        forwarding: Forwarding,
    }

    struct ForwardedMessage {
        /// Its number at the source.
        sequence_number: u64,
        /// Its number where it was first sent to.
        enqueued_sequence_number: u64,
        /// When it was enqueued at the source.
        enqueued_time_utc: Instant,
        /// Transfers so far, this one included.
        hops: u8,
        /// The entity in which it was dead-lettered.
        #[serde(skip_serializing_if = "Option::is_none")]
        dead_letter_source: Option<String>,
        /// Whether a broker made its message id.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        never_duplicate: bool,
        message: Outgoing,
    }

    struct Forwarded {
        /// Of so many, from the first on, it is said what became; those behind were not looked at.
        tried: u32,
        /// All others of them are stored, or were before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }
}
