//! How an entity retries, in JSON (RTY-16, RTY-23).

use peeklock_core::description::{Jitter, RetryKind, RetryPolicy};
use peeklock_core::error::Rejection;
use serde::{Deserialize, Serialize};

use crate::entity::span;

/// After which delay a message comes again whose delivery has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicyForm {
    /// fixed, linear or exponential.
    kind: String,
    /// The delay after the first failure, an ISO 8601 duration of 1 ms to 7 days.
    #[cfg_attr(feature = "schema", schema(example = "PT1S"))]
    delay: String,
    /// The longest delay, an ISO 8601 duration; 7 days if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_max: Option<String>,
    /// By which part of it a delay is shortened at random, at most: 0 to 1.
    #[serde(default, skip_serializing_if = "is_nothing")]
    jitter: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
fn is_nothing(jitter: &f64) -> bool {
    *jitter == 0.0
}

impl RetryPolicyForm {
    /// The policy as the broker takes it; its ranges are the broker's to judge, but that of the jitter.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for a kind that does not exist and for a jitter out of its range, `ArgumentError`
    /// for what is no duration.
    pub(crate) fn read(&self) -> Result<RetryPolicy, Rejection> {
        let kind = RetryKind::parse(&self.kind).ok_or_else(|| {
            Rejection::out_of_range("kind of retryPolicy must be fixed, linear or exponential")
        })?;
        let delay = span("delay of retryPolicy", &self.delay)?;
        let most = self.delay_max.as_deref();
        let delay_max = most.map(|most| span("delayMax of retryPolicy", most)).transpose()?;
        Ok(RetryPolicy { kind, delay, delay_max, jitter: Jitter::of(self.jitter)? })
    }
}

impl From<RetryPolicy> for RetryPolicyForm {
    fn from(policy: RetryPolicy) -> Self {
        let RetryPolicy { kind, delay, delay_max, jitter } = policy;
        Self {
            kind: kind.name().to_owned(),
            delay: delay.to_string(),
            delay_max: delay_max.map(|most| most.to_string()),
            jitter: jitter.part(),
        }
    }
}
