//! Lines of the trail: their JSON, and the chain of their hashes.

use std::fmt::Write as _;

use peeklock_core::contract::{AuditEntry, AuditStage};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Number of characters of a hash.
pub const HASH_CHARS: usize = 64;
/// Maximum bytes of a line. The texts of an entry are bounded, and so is the number of its changes;
/// a line beyond this bound loses its changes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// SHA-256 of a line without its end.
pub type Hash = [u8; 32];
/// Hash before the first line.
pub const NO_HASH: Hash = [0; 32];

/// Actions of the trail itself.
pub const TRIMMED: &str = "trimTrail";
pub const MENDED: &str = "mendTrail";

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// 1 for the first line of a trail, then one more for each.
    pub number: u64,
    /// Hash of the line before this one, in hexadecimal.
    pub previous: String,
    pub at_utc: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking_id: Option<String>,
    pub stage: Stage,
    pub operation: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_proxy: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangedValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_tracking_id: Option<String>,
    /// Number of the oldest line that the trail keeps; only in lines of the trail itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<u64>,
    /// Number of the first line that was written with this one; none in that line itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u64>,
}

/// Position of a line in its action.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    Begin,
    End,
    /// Line of the trail itself.
    Trail,
}

/// A changed value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangedValue {
    pub property: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Place of a line in the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub number: u64,
    /// Hash of the line before it.
    pub previous: Hash,
}

impl Place {
    /// Place of the first line of a trail.
    pub const FIRST: Self = Self { number: 1, previous: NO_HASH };

    /// Place of the line after this text.
    #[must_use]
    pub fn after(self, text: impl AsRef<[u8]>) -> Self {
        Self { number: self.number + 1, previous: Sha256::digest(text).into() }
    }
}

impl Line {
    fn at(place: Place, at: Timestamp, stage: Stage, operation: &str) -> Self {
        Self {
            number: place.number,
            previous: hexadecimal(&place.previous),
            at_utc: at.to_string(),
            tracking_id: None,
            stage,
            operation: operation.to_owned(),
            resource: String::new(),
            policy: None,
            address: None,
            by_proxy: false,
            role: None,
            request: String::new(),
            result: None,
            count: None,
            changes: Vec::new(),
            error_tracking_id: None,
            begins: None,
            group: None,
        }
    }

    /// Creates the line of an entry.
    pub fn of_entry(place: Place, entry: &AuditEntry) -> Self {
        let stage = match &entry.stage {
            AuditStage::Begin { .. } => Stage::Begin,
            AuditStage::End { .. } => Stage::End,
        };
        let client = &entry.client;
        let mut line = Self {
            tracking_id: Some(entry.tracking_id.to_string()),
            resource: entry.resource.to_string(),
            policy: client.policy.as_deref().map(str::to_owned),
            address: client.address.map(|address| address.to_string()),
            by_proxy: client.is_by_proxy,
            role: client.role.map(|role| role.name().to_owned()),
            ..Self::at(place, entry.at, stage, entry.action.name())
        };
        match &entry.stage {
            AuditStage::Begin { request } => line.request = request.to_string(),
            AuditStage::End { result, count, changes, error_tracking_id } => {
                line.result = Some(result.name().to_owned());
                line.count = *count;
                line.error_tracking_id = error_tracking_id.map(|id| id.to_string());
                let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
                let changes = changes.iter().map(|change| ChangedValue {
                    property: change.property.to_string(),
                    before: text(&change.before),
                    after: text(&change.after),
                });
                line.changes = changes.collect();
            }
        }
        line
    }

    /// Creates the line after which the trail begins with a later number.
    pub fn trimmed(place: Place, at: Timestamp, begins: u64) -> Self {
        let request = "the oldest entries are removed".to_owned();
        let begins = Some(begins);
        Self { request, begins, ..Self::at(place, at, Stage::Trail, TRIMMED) }
    }

    /// Creates the line after a torn one was removed.
    pub fn mended(place: Place, at: Timestamp, bytes: u64) -> Self {
        let request = "a line that was not written to its end is removed".to_owned();
        let count = Some(bytes);
        Self { request, count, ..Self::at(place, at, Stage::Trail, MENDED) }
    }

    /// Returns the text of the line, without its end.
    pub fn text(mut self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string(&self)?;
        if text.len() <= LINE_BYTES_MAX {
            return Ok(text);
        }
        self.changes.clear();
        serde_json::to_string(&self)
    }

    /// Instant of the line.
    pub fn instant(&self) -> Option<Timestamp> {
        Timestamp::parse(&self.at_utc)
    }
}

/// Returns a hash as text.
pub fn hexadecimal(hash: &Hash) -> String {
    hash.iter().fold(String::with_capacity(HASH_CHARS), |mut text, byte| {
        // Writing into a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
