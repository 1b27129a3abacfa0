//! The result of judging a published message: its copies, and the reasons why some copies go
//! straight into a dead-letter queue.

use super::action::CopyChanges;
use super::matcher::RulePlace;
use super::sql::EvaluationError;
use super::{Filter, Rule};
use crate::condition::Condition;
use crate::error::Quoted;
use crate::ids::EntityId;
use crate::message::Overlay;

/// DLQ-16, "header too large".
const HEADER_SIZE_EXCEEDED: &str = "HeaderSizeExceeded";

/// The copies that a published message becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// In the order of subscriptions. Within a subscription: first the copy without changes, then
    /// the copies of actions in the order of rule names (TOP-05), then a dead letter for a failed
    /// rule.
    pub copies: Vec<Copy>,
    /// The first ordinary subscription that selects the message. Catch-alls do not count (TOP-25).
    pub selected_by: Option<EntityId>,
    /// The work that it took.
    pub counted: WorkCounts,
    /// The exceeded bound, if any. Then no copy may be stored.
    pub excess: Option<Excess>,
}

/// A bound on the effects of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excess {
    /// More copies than `publish_copy_count_max`.
    Copies,
    /// More bytes in addition to the content than `atomic_bytes_max`.
    Bytes,
    /// More steps than `publish_step_count_max`.
    Steps,
}

/// A copy to store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The subscription that gets it.
    pub subscription: EntityId,
    /// The rule that makes it; the first one in the order of names if several select it.
    pub rule: Option<RulePlace>,
    /// The changes to the published message.
    pub changed: Option<Box<CopyChanges>>,
    /// The reason why it goes into the dead-letter queue of the subscription.
    pub refusal: Option<Box<Refusal>>,
}

/// Reason why a copy goes straight into the dead-letter queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The cause, by which programs distinguish refusals.
    pub cause: Cause,
    /// The text for people.
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

/// Counts of the work for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkCounts {
    /// Look-ups in the index of correlation filters (TOP-23).
    pub lookups: usize,
    /// Correlation filters that were compared with the message.
    pub comparisons: usize,
    /// SQL filters that were evaluated.
    pub evaluations: usize,
}

impl Refusal {
    /// DLQ-20: the refusal of a header with `bytes`, if that is over the maximum.
    #[must_use]
    pub fn of_header(bytes: u64, bytes_max: u64) -> Option<Box<Self>> {
        (bytes > bytes_max).then(|| {
            let description =
                format!("the header of {bytes} bytes exceeded the size quota of {bytes_max}");
            Box::new(Self { cause: Cause::HeaderSize, description: description.into() })
        })
    }

    /// DLQ-21: the refusal of a message without session id, if the entity requires sessions.
    #[must_use]
    pub fn of_session() -> Self {
        let description = "an entity that requires sessions accepts no message without session id; \
            set one";
        Self { cause: Cause::NoSession, description: description.into() }
    }

    /// DLQ-23: the refusal for a failed rule, with the error and the name of the rule.
    pub(super) fn of_rule(rule: &Rule, cause: Cause, error: &EvaluationError) -> Self {
        let description = format!("rule {}: {}", Quoted(rule.name()), rule.describe(cause, error));
        Self { cause, description: description.into() }
    }

    /// The reason code in dead letters (DLQ-16).
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause {
            Cause::Filter => Condition::FilterException.name(),
            Cause::Action => Condition::RuleActionException.name(),
            Cause::HeaderSize => HEADER_SIZE_EXCEEDED,
            Cause::NoSession => Condition::SessionIdIsNull.reason_code(),
        }
    }

    /// Reason and description as properties of the dead letter (DLQ-14). Texts of this length
    /// always fit.
    #[must_use]
    pub fn overlay(&self) -> Option<Overlay> {
        Overlay::dead_letter(Some(self.reason()), Some(&self.description), &[]).ok()
    }
}

impl Rule {
    /// The text of an error, with the part of the rule where it occurred.
    #[must_use]
    pub fn describe(&self, cause: Cause, error: &EvaluationError) -> String {
        let text = match (cause, &self.description.filter, &self.description.action) {
            (Cause::Filter, Filter::Sql(sql), _) => &sql.text,
            (Cause::Action, _, Some(sql)) => &sql.text,
            // A correlation filter has no text.
            (Cause::Filter, Filter::Correlation(_), _) => return error.fault.to_string(),
            _ => "",
        };
        error.describe(text)
    }
}
