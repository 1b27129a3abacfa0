//! Settling messages and prolonging their locks.

use serde::{Deserialize, Serialize};

use super::message::Properties;
use super::text::{Instant, Token};
use super::wire::{Reader, Wire, wire};
use super::{WireError, bodies, json, wire_choice};
use crate::error::FrameError;

/// What becomes of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Decision {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

wire_choice!(Decision, "decision", [Complete, Abandon, Defer, DeadLetter, Release]);

bodies! {
    struct Settle {
        link: u32,
        decision: Decision,
        /// Delivery numbers, from and to, both included.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        ranges: Vec<Range>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        lock_tokens: Vec<Token>,
        #[serde(skip_serializing_if = "Option::is_none")]
        properties: Option<Properties>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    }

    struct Renew {
        link: u32,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        ranges: Vec<Range>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        lock_tokens: Vec<Token>,
    }

    struct Settled {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedRange>,
    }

    struct Renewed {
        /// The earliest end of the locks; absent if all failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        locked_until_utc: Option<Instant>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedRange>,
    }

    struct FailedRange {
        /// Delivery numbers, or places in `lockTokens` from 0; both included.
        from: u32,
        to: u32,
        error: WireError,
    }
}

/// From and to, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Range(pub(crate) u32, pub(crate) u32);

impl Wire for Range {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(u32::read(reader)?, u32::read(reader)?))
    }
}
