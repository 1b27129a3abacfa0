//! What is said about transactions (section 6 of the document).

use serde::{Deserialize, Serialize};

use super::text::Instant;
use super::wire::wire;
use super::{Renew, Run, Send, Settle, bodies};

bodies! {
    struct BeginTransaction {
        /// Whether it also sends to other entities than the first one that it uses, by way of that one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cross_entity: bool,
    }

    struct TransactionOnly {
        transaction: u64,
    }

    struct SendIn {
        transaction: u64,
        /// Several messages are a batch, with its limit.
        send: Send,
    }

    struct SettleIn {
        transaction: u64,
        settle: Settle,
    }

    struct RenewIn {
        transaction: u64,
        renew: Renew,
    }

    struct CommitTransaction {
        transaction: u64,
        /// How many operations it has to have: messages of one request count as one, each settlement
        /// and renewal as one. With another number it is rolled back.
        #[serde(skip_serializing_if = "Option::is_none")]
        operations: Option<u32>,
    }

    struct Committed {
        /// What became of each operation, in their order.
        parts: Vec<CommittedPart>,
    }

    struct CommittedPart {
        /// Of messages that were sent: first number and count, as in `accepted`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sequence_numbers: Vec<Run>,
        /// Of messages for another entity: under which they wait for their transfer, likewise.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pending_numbers: Vec<Run>,
        /// Of a renewal: the new end of the lock.
        #[serde(skip_serializing_if = "Option::is_none")]
        locked_until_utc: Option<Instant>,
    }
}
