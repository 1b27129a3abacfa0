//! Messages of a job, and parts of its exported file (CON-14, CON-19, CON-22).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::command::ActedMessage;
use peeklock_core::error::Rejection;
use peeklock_core::inspect::{Head, JobExportPart, JobFailurePage, JobSample};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::ActResultName;
use super::message::{HeadView, decode};
use crate::act::ActedMessageView;
use crate::text::Instant;

/// The samples of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobSamplePageView {
    /// The first messages of the job that are still there, at most 20.
    samples: Vec<JobSampleView>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A message of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobSampleView {
    /// The message as the deed would store it, with its present number; one to be deleted as it is
    /// now. A new message id is absent.
    message: HeadView,
    /// Result of the deed, if it would leave the message alone now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<ActResultName>,
}

/// A page of messages whose deed was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobFailurePageView {
    /// The messages, in the order in which they were tried.
    failures: Vec<ActedMessageView>,
    /// Number of all failures, of which at most 10,000 are listed.
    total: u64,
    /// `skip` of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A part of the file that a job has exported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobExportView {
    /// Bytes of the whole file.
    size: u64,
    /// Position of the first byte.
    from: u64,
    /// The bytes; empty only at the end of the file.
    content_base64: String,
    /// Instant of the answer by the clock of the broker.
    now_utc: Instant,
}

impl JobSamplePageView {
    pub(super) fn new(samples: Vec<JobSample>, at: Timestamp) -> Self {
        let view = |JobSample { head, refused }| JobSampleView {
            message: HeadView::from(head),
            refused: refused.map(Into::into),
        };
        Self { samples: samples.into_iter().map(view).collect(), now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn samples(self) -> Result<Vec<JobSample>, Rejection> {
        let sample = |view: JobSampleView| {
            let head = Head::try_from(view.message)?;
            Ok(JobSample { head, refused: view.refused.map(Into::into) })
        };
        self.samples.into_iter().map(sample).collect()
    }
}

impl JobFailurePageView {
    pub(super) fn new(page: JobFailurePage, at: Timestamp) -> Self {
        let failures = page.failures.into_iter().map(ActedMessageView::from).collect();
        Self { failures, total: page.total, next: page.next, now_utc: Instant(at) }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> JobFailurePage {
        let failures = self.failures.into_iter().map(ActedMessage::from).collect();
        JobFailurePage { failures, total: self.total, next: self.next }
    }
}

impl JobExportView {
    pub(super) fn new(part: &JobExportPart, at: Timestamp) -> Self {
        Self {
            size: part.length,
            from: part.from,
            content_base64: STANDARD.encode(&part.bytes),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn part(self) -> Result<JobExportPart, Rejection> {
        let bytes = decode("contentBase64", &self.content_base64)?.into();
        Ok(JobExportPart { length: self.size, from: self.from, bytes })
    }
}
