//! Retry policy of an entity, as flags and as text (RTY-29). The commands that create, update and
//! show entities share them.

use clap::{Args, ValueEnum};
use peeklock::description::{Jitter, RetryKind, RetryPolicy, SessionRetryOrder};
use peeklock::time::TimeSpan;

use super::arguments::span_of;
use crate::config::span_text;

/// Flags for the redelivery of messages whose delivery failed.
#[derive(Args)]
#[command(next_help_heading = "Retries")]
pub struct Retries {
    /// Growth of the retry delay with the failed deliveries of a message; `none` retries at once
    #[arg(long, value_name = "KIND")]
    retry: Option<Kind>,
    /// Delay after the first failure, from 1ms to 7d
    #[arg(long, value_name = "DURATION", value_parser = span_of, requires = "retry",
          required_if_eq_any = [("retry", "fixed"), ("retry", "linear"), ("retry", "exponential")])]
    retry_delay: Option<TimeSpan>,
    /// Maximum delay, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = span_of, requires = "retry_delay")]
    retry_delay_max: Option<TimeSpan>,
    /// Maximum random reduction of a delay, as a fraction from 0 to 1, such as 0.2
    #[arg(long, value_name = "PART", value_parser = jitter_of, requires = "retry_delay")]
    retry_jitter: Option<Jitter>,
    /// Order within a session while a message is delayed
    #[arg(long, value_name = "ORDER")]
    session_retry_order: Option<Order>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// No delay
    None,
    /// Constant delay
    Fixed,
    /// Delay multiplied by the number of failures
    Linear,
    /// Delay that doubles after each further failure
    Exponential,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Later messages wait for a delayed message
    Hold,
    /// Later messages pass a delayed message
    Pass,
}

fn jitter_of(text: &str) -> Result<Jitter, String> {
    let part = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    Jitter::of(part).map_err(|_| "expected a number from 0 to 1".to_owned())
}

impl Retries {
    /// The retry policy, if it is set or removed.
    pub fn policy(&self) -> Option<Option<RetryPolicy>> {
        let kind = match self.retry? {
            Kind::None => return Some(None),
            Kind::Fixed => RetryKind::Fixed,
            Kind::Linear => RetryKind::Linear,
            Kind::Exponential => RetryKind::Exponential,
        };
        Some(Some(RetryPolicy {
            kind,
            delay: self.retry_delay.unwrap_or_default(),
            delay_max: self.retry_delay_max,
            jitter: self.retry_jitter.unwrap_or_default(),
        }))
    }

    /// The order within sessions, if it is set.
    pub fn order(&self) -> Option<SessionRetryOrder> {
        self.session_retry_order.map(|order| match order {
            Order::Hold => SessionRetryOrder::Hold,
            Order::Pass => SessionRetryOrder::Pass,
        })
    }
}

/// Text of a policy.
pub fn policy_text(policy: Option<&RetryPolicy>) -> String {
    let Some(RetryPolicy { kind, delay, delay_max, jitter }) = policy else {
        return "at once".to_owned();
    };
    let most = delay_max.map(|most| format!(" up to {}", span_text(most))).unwrap_or_default();
    let jitter = match *jitter {
        Jitter::NONE => String::new(),
        jitter => format!(", jitter {}", jitter.part()),
    };
    format!("{} from {}{most}{jitter}", kind.name(), span_text(*delay))
}

/// Short text of a policy for a table cell.
pub fn policy_brief(policy: Option<&RetryPolicy>) -> String {
    policy.map_or_else(
        || "-".to_owned(),
        |policy| format!("{} {}", policy.kind.name(), span_text(policy.delay)),
    )
}
