//! What a message becomes that was published: copies, and why some of them go straight into a dead-letter queue.

use super::action::Changed;
use super::sql::EvaluationError;
use super::{Filter, Rule};
use crate::condition::Condition;
use crate::error::Quoted;
use crate::ids::EntityId;
use crate::message::Overlay;

/// DLQ-16, "header too large".
const HEADER_SIZE_EXCEEDED: &str = "HeaderSizeExceeded";

/// What a published message becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// In the order of subscriptions; in each of them the one without changes first, then those
    /// of actions in the order of rule names (TOP-05), then a dead letter of a failed rule.
    pub copies: Vec<Copy>,
    /// The first subscription that selects it, apart from catch-alls, which are not asked then (TOP-25).
    pub selected_by: Option<EntityId>,
    /// What it took.
    pub counted: Counted,
    /// Why it is not whole: then nothing of it may be stored.
    pub excess: Option<Excess>,
}

/// A bound on what one message may cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// More copies than `publish_copy_count_max`.
    Copies,
    /// More bytes beside the content than `atomic_bytes_max`.
    Bytes,
    /// More steps than `publish_step_count_max`.
    Steps,
}

/// One copy that is to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Where.
    pub subscription: EntityId,
    /// How it differs from the message published.
    pub changed: Option<Box<Changed>>,
    /// Why it goes into the dead-letter queue of the subscription.
    pub refusal: Option<Box<Refusal>>,
}

/// Why a copy goes straight into the dead-letter queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What for.
    pub cause: Cause,
    /// The text that explains it.
    pub description: Box<str>,
}

/// Causes of such dead letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A filter failed (DLQ-23).
    Filter,
    /// An action failed (DLQ-23).
    Action,
    /// The action made the header too large (DLQ-20, ACT-11).
    HeaderSize,
    /// The subscription requires a session and the copy has none (DLQ-21).
    NoSession,
}

/// What one match took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Look-ups in the index of correlation filters (TOP-23).
    pub lookups: usize,
    /// Correlation filters that were compared with the message.
    pub comparisons: usize,
    /// SQL filters that were evaluated.
    pub evaluations: usize,
}

impl Refusal {
    /// DLQ-20: a header of that size, if it is over the maximum.
    #[must_use]
    pub fn of_header(bytes: u64, bytes_max: u64) -> Option<Box<Self>> {
        (bytes > bytes_max).then(|| {
            let description =
                format!("the header of {bytes} bytes exceeded the size quota of {bytes_max}");
            Box::new(Self { cause: Cause::HeaderSize, description: description.into() })
        })
    }

    /// DLQ-21: a message without session id, where one is required.
    #[must_use]
    pub fn of_session() -> Self {
        let description = "an entity that requires sessions accepts no message without session id; \
            set one";
        Self { cause: Cause::NoSession, description: description.into() }
    }

    /// DLQ-23: the text of the error with the name of the rule.
    pub(super) fn of_rule(rule: &Rule, cause: Cause, error: &EvaluationError) -> Self {
        let description = format!("rule {}: {}", Quoted(rule.name()), rule.describe(cause, error));
        Self { cause, description: description.into() }
    }

    /// The code that dead letters carry (DLQ-16).
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause {
            Cause::Filter => Condition::FilterException.name(),
            Cause::Action => Condition::RuleActionException.name(),
            Cause::HeaderSize => HEADER_SIZE_EXCEEDED,
            Cause::NoSession => Condition::SessionIdIsNull.reason_code(),
        }
    }

    /// Reason and description as properties of the dead letter (DLQ-14); texts of this length
    /// always fit.
    #[must_use]
    pub fn overlay(&self) -> Option<Overlay> {
        Overlay::dead_letter(Some(self.reason()), Some(&self.description), &[]).ok()
    }
}

impl Rule {
    /// An error with the part of the text that it happened in.
    #[must_use]
    pub fn describe(&self, cause: Cause, error: &EvaluationError) -> String {
        let text = match (cause, &self.description.filter, &self.description.action) {
            (Cause::Filter, Filter::Sql(sql), _) => &sql.text,
            (Cause::Action, _, Some(sql)) => &sql.text,
            // It has no text.
            (Cause::Filter, Filter::Correlation(_), _) => return error.fault.to_string(),
            _ => "",
        };
        error.describe(text)
    }
}
