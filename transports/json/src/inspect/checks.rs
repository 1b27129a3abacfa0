//! Findings of the checks.

use peeklock_core::inspect::{CheckFinding, CheckKind, ChecksPage, ChecksQuery, Mute, MuteChange};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CheckKindName, CheckWeightName};
use crate::text::Instant;

/// Selection of findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChecksForm {
    /// Part of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only findings of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<CheckKindName>,
    /// Only findings that are muted, or only others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted: Option<bool>,
}

/// Finding to mute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MuteForm {
    /// Path of the entity; left out or empty for a finding about the broker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its kind.
    pub kind: CheckKindName,
    /// Why it is muted: one line of 1 to 256 characters.
    pub reason: String,
}

/// Finding that is reported again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnmuteForm {
    /// Path of the entity; left out or empty for a finding about the broker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its kind.
    pub kind: CheckKindName,
}

/// Findings of the last check, the most urgent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChecksView {
    /// At most 1,000.
    findings: Vec<CheckFindingView>,
    /// Number of all selected findings.
    total: u64,
    /// Number of muted findings among them.
    muted_count: u64,
    /// Number of further findings, for which the check had no room. Left out if there is none.
    #[serde(default, skip_serializing_if = "super::message::is_zero")]
    left_out_count: u64,
    /// Instant of the last check, at most a minute ago.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    checked_at_utc: Instant,
    /// Working time of the last check in microseconds, without the time that it waited.
    took_us: u64,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct CheckFindingView {
    kind: CheckKindName,
    weight: CheckWeightName,
    /// Path of the entity. Left out for a finding about the broker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
    /// Instant of the first check that found it, in this run of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    since_utc: Instant,
    /// Values that led to it.
    detail: String,
    /// Remedy.
    remedy: String,
    /// Names of other entities that belong to it, at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
    /// Left out unless it is muted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    muted: Option<MuteView>,
}

/// Why a finding is muted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct MuteView {
    reason: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    at_utc: Instant,
}

impl ChecksForm {
    pub(super) fn to_query(&self) -> ChecksQuery {
        ChecksQuery {
            path: self.path.as_deref().map(Into::into),
            kind: self.kind.map(Into::into),
            is_muted: self.muted,
        }
    }
}

impl From<&ChecksQuery> for ChecksForm {
    fn from(query: &ChecksQuery) -> Self {
        Self {
            path: query.path.as_deref().map(Into::into),
            kind: query.kind.map(Into::into),
            muted: query.is_muted,
        }
    }
}

impl From<MuteForm> for MuteChange {
    fn from(form: MuteForm) -> Self {
        Self::Mute { kind: form.kind.into(), reason: form.reason.into() }
    }
}

impl From<UnmuteForm> for MuteChange {
    fn from(form: UnmuteForm) -> Self {
        Self::Unmute { kind: form.kind.into() }
    }
}

impl ChecksView {
    pub(super) fn new(page: ChecksPage, at: Timestamp) -> Self {
        Self {
            findings: page.findings.into_iter().map(Into::into).collect(),
            total: page.total,
            muted_count: page.muted_count,
            left_out_count: page.left_out_count,
            checked_at_utc: Instant(page.checked_at),
            took_us: u64::try_from(page.took.ticks() / 10).unwrap_or_default(),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> ChecksPage {
        let ticks = i64::try_from(self.took_us).unwrap_or(i64::MAX).saturating_mul(10);
        ChecksPage {
            findings: self.findings.into_iter().map(Into::into).collect(),
            total: self.total,
            muted_count: self.muted_count,
            left_out_count: self.left_out_count,
            checked_at: self.checked_at_utc.0,
            took: TimeSpan::from_ticks(ticks),
        }
    }
}

impl From<CheckFinding> for CheckFindingView {
    fn from(finding: CheckFinding) -> Self {
        let CheckFinding { kind, path, since, detail, others, muted } = finding;
        Self {
            kind: kind.into(),
            weight: kind.weight().into(),
            path: (*path).into(),
            since_utc: Instant(since),
            detail: detail.into(),
            remedy: kind.remedy().to_owned(),
            others: others.iter().map(|name| (**name).to_owned()).collect(),
            muted: muted
                .map(|Mute { reason, at }| MuteView { reason: reason.into(), at_utc: Instant(at) }),
        }
    }
}

impl From<CheckFindingView> for CheckFinding {
    fn from(view: CheckFindingView) -> Self {
        Self {
            kind: CheckKind::from(view.kind),
            path: view.path.into(),
            since: view.since_utc.0,
            detail: view.detail.into(),
            others: view.others.into_iter().map(Into::into).collect(),
            muted: view
                .muted
                .map(|MuteView { reason, at_utc }| Mute { reason: reason.into(), at: at_utc.0 }),
        }
    }
}
