//! How an entity retries, in JSON (RTY-16, RTY-23).

use peeklock_core::description::{Jitter, RetryKind, RetryPolicy, SessionRetryOrder};
use peeklock_core::error::Rejection;
use serde::{Deserialize, Serialize};

use crate::queue::span;

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
        let delay = span("delay of retryPolicy", Some(&self.delay))?.unwrap_or_default();
        let delay_max = span("delayMax of retryPolicy", self.delay_max.as_deref())?;
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

/// A policy of a request, if one is named: `null` takes it away.
pub(crate) fn policy(
    named: Option<&Option<RetryPolicyForm>>,
) -> Result<Option<Option<RetryPolicy>>, Rejection> {
    let read = |form: &Option<RetryPolicyForm>| form.as_ref().map(RetryPolicyForm::read);
    named.map(|form| read(form).transpose()).transpose()
}

/// The order of a request, if one is named.
pub(crate) fn order(name: Option<&str>) -> Result<Option<SessionRetryOrder>, Rejection> {
    let parse = |name| {
        SessionRetryOrder::parse(name)
            .ok_or_else(|| Rejection::argument("sessionRetryOrder must be hold or pass"))
    };
    name.map(parse).transpose()
}

/// The order as it is told; the usual one is left out.
pub(crate) fn order_told(order: SessionRetryOrder) -> Option<String> {
    (order != SessionRetryOrder::Hold).then(|| order.name().to_owned())
}

/// The order that was told.
pub(crate) fn order_of(told: Option<&str>) -> SessionRetryOrder {
    told.and_then(SessionRetryOrder::parse).unwrap_or_default()
}

/// A count that is left out if there are none.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
pub(crate) const fn is_none(count: &u64) -> bool {
    *count == 0
}
