//! JSON form of an entity's retry policy (RTY-16, RTY-23). The forms of entities contain it.

use peeklock_core::description::{Jitter, RetryKind, RetryPolicy};
use peeklock_core::error::Rejection;
use serde::{Deserialize, Serialize};

use crate::entity::span;

/// Delays between the redeliveries of a message whose deliveries fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicyForm {
    /// fixed, linear or exponential.
    kind: String,
    /// The delay after the first failure, an ISO 8601 duration of 1 ms to 7 days.
    #[cfg_attr(feature = "schema", schema(example = "PT1S"))]
    delay: String,
    /// The maximum delay, an ISO 8601 duration; 7 days if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_max: Option<String>,
    /// Maximum part of a delay by which it is shortened at random, from 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    jitter: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
fn is_zero(jitter: &f64) -> bool {
    *jitter == 0.0
}

impl RetryPolicyForm {
    /// Converts to the broker's policy. Checks only the range of the jitter; the broker validates
    /// the others.
    ///
    /// # Errors
    /// Returns `ArgumentOutOfRange` for an unknown kind and for a jitter out of its range, and
    /// `ArgumentError` for an invalid duration.
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
