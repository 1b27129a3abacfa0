//! Memory of an answer, counted before the answer is queued. `outbound.rs` charges it to the
//! account of the connection.

use bytes::Bytes;
use peeklock_json::size_in_json;

use super::{FailedRange, FailedSend, Notice};
use crate::frame::json::NoticeBody;
use crate::frame::{Encoding, Run, WireError};

impl Notice {
    /// Approximate memory of a notice in bytes. Contents of messages are excluded: they are counted
    /// where they are fetched.
    pub(crate) fn weight(&self, encoding: Encoding) -> u64 {
        /// Memory of an error in addition to its texts, in bytes.
        const ERROR_BYTES: u64 = 160;

        let error = |WireError { detail, entity, .. }: &WireError| match encoding {
            Encoding::Binary => ERROR_BYTES + (detail.len() + entity.len()) as u64,
            Encoding::Json => ERROR_BYTES + size_in_json(&(detail, entity)) as u64,
        };
        let written = || match encoding {
            Encoding::Binary => {
                let mut written = Vec::new();
                self.write_body(&mut written);
                written.len() as u64
            }
            Encoding::Json => size_in_json(&NoticeBody(self)) as u64,
        };
        let ranges = |failed: &[FailedRange]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        let sends = |failed: &[FailedSend]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        match self {
            Self::Error(it) => error(it),
            Self::Detached(it) => error(&it.error),
            Self::Accepted(it) => {
                sends(&it.failed) + (it.sequence_numbers.len() * size_of::<Run>()) as u64
            }
            Self::Settled(it) => ranges(&it.failed),
            Self::Renewed(it) => ranges(&it.failed),
            Self::Forwarded(it) => sends(&it.failed),
            Self::SessionState(it) => match encoding {
                Encoding::Binary => it.state.as_ref().map_or(0, Bytes::len) as u64,
                Encoding::Json => written(),
            },
            Self::Committed(it) => (it.parts.len() * size_of_val(&it.parts)) as u64,
            Self::Received(_)
            | Self::Deliveries(_)
            | Self::Done(_)
            | Self::Welcome(_)
            | Self::Drained(_)
            | Self::Deleted(_)
            | Self::LocksBroken(_)
            | Self::SessionAccepted(_)
            | Self::Transaction(_)
            | Self::Heartbeat(_)
            | Self::Closing(_) => 0,
            // Descriptions: twice their written size, since they consist of parts.
            Self::Queue(_)
            | Self::Queues(_)
            | Self::Sessions(_)
            | Self::Topic(_)
            | Self::Topics(_)
            | Self::Subscription(_)
            | Self::Subscriptions(_)
            | Self::Rule(_)
            | Self::Rules(_)
            | Self::Policy(_)
            | Self::Policies(_)
            | Self::PolicyKeys(_)
            | Self::Acted(_)
            | Self::Explained(_) => 2 * written(),
            // Also twice their size, but computed without writing them: they may be the largest of
            // all notices.
            Self::Plan(it) => 2 * size_in_json(it) as u64,
            Self::CarriedOut(it) => 2 * size_in_json(it) as u64,
            Self::Findings(it) => 2 * size_in_json(it) as u64,
        }
    }
}
