//! Selections and pages of the audit trail (CON-23).

use peeklock_core::contract::{AuditPage, AuditQuery};
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Paged, is_false};
use crate::text::Instant;

/// Selection of entries. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuditQueryForm {
    /// First instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Instant>,
    /// Instant after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// Name of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Name of the action, such as `deleteEntity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Path of the entity, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// `done`, `unknown`, or the code of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether the oldest entries come first.
    #[serde(skip_serializing_if = "is_false")]
    pub ascending: bool,
    /// Maximum number of entries, 1 to 500; by default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u32>,
    /// Position: the `next` of an earlier page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl AuditQueryForm {
    pub(super) fn to_query(&self, count_max: u32) -> Result<AuditQuery, Rejection> {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let after = self.after.as_deref().map(|text| Paged::Audit.parse(text)).transpose()?;
        Ok(AuditQuery {
            since: self.since.map(|Instant(at)| at),
            until: self.until.map(|Instant(at)| at),
            policy: text(&self.policy),
            action: text(&self.operation),
            resource: text(&self.resource),
            result: text(&self.result),
            is_ascending: self.ascending,
            after: after.map(|(number, _)| number.cast_unsigned()),
            count_max,
        })
    }
}

impl From<&AuditQuery> for AuditQueryForm {
    fn from(query: &AuditQuery) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        Self {
            since: query.since.map(Instant),
            until: query.until.map(Instant),
            policy: text(&query.policy),
            operation: text(&query.action),
            resource: text(&query.resource),
            result: text(&query.result),
            ascending: query.is_ascending,
            top: Some(query.count_max),
            after: query.after.map(position),
        }
    }
}

/// A page of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditPageView {
    /// Lines of the trail, each a JSON object as text: their hashes are over this text.
    pub lines: Vec<String>,
    /// Position of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    pub now_utc: Instant,
}

impl AuditPageView {
    pub(super) fn new(page: AuditPage, at: Timestamp) -> Self {
        let lines = page.lines.into_iter().map(String::from).collect();
        Self { lines, next: page.next.map(position), now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<AuditPage, Rejection> {
        let next = self.next.as_deref().map(|text| Paged::Audit.parse(text)).transpose()?;
        Ok(AuditPage {
            lines: self.lines.into_iter().map(Box::from).collect(),
            next: next.map(|(number, _)| number.cast_unsigned()),
        })
    }
}

fn position(number: u64) -> String {
    Paged::Audit.text(number.cast_signed(), &[])
}
