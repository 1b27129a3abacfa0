//! Sending.

use serde::{Deserialize, Serialize};

use super::message::Outgoing;
use super::wire::wire;
use super::{Run, WireError, bodies, json};

bodies! {
    struct Send {
        link: u32,
        #[serde(deserialize_with = "json::bounded")]
        messages: Vec<Outgoing>,
    }

    struct Numbered {
        link: u32,
        #[serde(deserialize_with = "json::bounded")]
        sequence_numbers: Vec<u64>,
    }

    struct Accepted {
        /// First number and count: the numbers of the messages in their order. A first number of 0
        /// stands for so many zeros.
        sequence_numbers: Vec<Run>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedSend>,
    }

    struct FailedSend {
        /// The place in `messages`, from 0.
        index: u32,
        error: WireError,
    }
}
