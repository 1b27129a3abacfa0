//! Receiving, looking and deleting, as far as it is asked for.

use serde::{Deserialize, Serialize};

use super::bodies;
use super::message::Delivered;
use super::text::Instant;
use super::wire::wire;

bodies! {
    struct Receive {
        link: u32,
        max_count: u32,
        wait_seconds: f64,
    }

    struct Withdraw {
        /// The id of the receive.
        request: u32,
    }

    struct Peek {
        link: u32,
        from: u64,
        max_count: u32,
    }

    struct DeleteBatch {
        link: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_count: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }

    struct Purge {
        link: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }

    struct DeleteDeferred {
        link: u32,
        sequence_number: u64,
    }

    struct Messages {
        messages: Vec<Delivered>,
    }

    struct Deleted {
        count: u64,
    }
}
