//! Steps of an operator: deeds on messages that are named by number, and their results (CON-12,
//! CON-15).

use std::fmt;
use std::sync::Arc;

use peeklock_core::command::{
    ACT_COUNT_MAX, Act, ActResult, ActedMessage, Deed, Edit, ExportForm, JobStep, NewInstant,
    PutBack,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{JobId, SequenceNumber};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::edit::EditForm;
use crate::inspect::{ActResultName, is_false};
use crate::text::{Guid, Instant, Span};

/// Maximum number of sequence numbers that are read. The broker refuses more than
/// [`ACT_COUNT_MAX`], with an error of its own.
const NUMBERS_MAX: usize = 16 * ACT_COUNT_MAX;

/// Deed on messages that are named by number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActForm {
    /// The messages: 1 to 256 sequence numbers, none twice.
    #[serde(deserialize_with = "numbers")]
    pub sequence_numbers: Vec<u64>,
    /// Change of each message.
    pub deed: DeedForm,
    /// Whether locks of receivers are broken, uncounted; by default a locked message is left alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub break_locks: bool,
    /// Identity of the step; a repeated step of a job changes nothing and has the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<JobStepForm>,
}

/// Step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobStepForm {
    /// The job: a GUID that its client chooses.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub job: Guid,
    /// Number of the step, higher than in earlier steps of the job.
    pub number: u64,
}

/// Change of a message by an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum DeedForm {
    /// Removes the message, in any state.
    Delete {},
    /// Moves an active or deferred message to the dead-letter queue.
    DeadLetter {
        /// The dead-letter reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The dead-letter description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// Makes a deferred message active again.
    Undefer {},
    /// Gives a scheduled message another instant: one of these, or now.
    Reschedule {
        /// The new instant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        at_utc: Option<Instant>,
        /// Moves the instant to this much later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        later: Option<Span>,
        /// Moves the instant to this much earlier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        earlier: Option<Span>,
    },
    /// Sends an active message again without the facts of its dead-lettering; only in a job.
    Resubmit {
        /// Queue, topic or subscription; by default the entity in which it was dead-lettered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Changes of each message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<Box<EditForm>>,
    },
    /// Sends an active message to another queue, topic or subscription; only in a job.
    Move {
        /// Queue, topic or subscription.
        to: String,
        /// Changes of each message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<Box<EditForm>>,
    },
    /// Puts messages back as they were before another job; only in a job that undoes that one.
    PutBack {
        /// The job that is undone.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        job: Guid,
    },
    /// Writes the message to a file, and changes nothing; only in a job.
    Export {
        /// Form of the file; by default `ndjson`.
        #[serde(default)]
        form: ExportFormName,
    },
}

/// Form of an exported file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ExportFormName {
    /// A message as JSON on each line.
    #[default]
    Ndjson,
    /// A table of the messages without their bodies.
    Csv,
}

/// Results for the messages of a step, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ActedView {
    messages: Vec<ActedMessageView>,
}

/// Result for one message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ActedMessageView {
    sequence_number: u64,
    result: ActResultName,
}

impl TryFrom<ActForm> for Act {
    type Error = Rejection;

    fn try_from(form: ActForm) -> Result<Self, Rejection> {
        let step = form
            .step
            .map(|JobStepForm { job: Guid(job), number }| JobStep { job: JobId(job), number });
        Ok(Self {
            step,
            sequences: form.sequence_numbers.into_iter().map(SequenceNumber).collect(),
            deed: form.deed.try_into()?,
            breaks_locks: form.break_locks,
            kept: None,
        })
    }
}

impl From<Act> for ActForm {
    fn from(act: Act) -> Self {
        Self {
            sequence_numbers: act.sequences.into_iter().map(|sequence| sequence.0).collect(),
            deed: act.deed.into(),
            break_locks: act.breaks_locks,
            step: act
                .step
                .map(|JobStep { job: JobId(job), number }| JobStepForm { job: Guid(job), number }),
        }
    }
}

impl DeedForm {
    /// Replaces a new body or merge patch by its number of bytes.
    pub(crate) fn leave_body_out(&mut self) {
        if let Self::Resubmit { edit: Some(edit), .. } | Self::Move { edit: Some(edit), .. } = self
        {
            edit.leave_body_out();
        }
    }
}

impl TryFrom<DeedForm> for Deed {
    type Error = Rejection;

    fn try_from(form: DeedForm) -> Result<Self, Rejection> {
        Ok(match form {
            DeedForm::Delete {} => Self::Delete,
            DeedForm::DeadLetter { reason, description } => Self::DeadLetter {
                reason: reason.map(Into::into),
                description: description.map(Into::into),
            },
            DeedForm::Undefer {} => Self::Undefer,
            DeedForm::Reschedule { at_utc, later, earlier } => {
                Self::Reschedule(match (at_utc, later, earlier) {
                    (None, None, None) => NewInstant::Now,
                    (Some(Instant(at)), None, None) => NewInstant::At(at),
                    (None, Some(Span(shift)), None) => NewInstant::Later(shift),
                    (None, None, Some(Span(shift))) => NewInstant::Earlier(shift),
                    _ => {
                        return Err(Rejection::argument(
                            "give one of atUtc, later and earlier; without them, the messages are due now",
                        ));
                    }
                })
            }
            DeedForm::Resubmit { to, edit } => {
                Self::Resubmit { to: to.map(Into::into), edit: edit_of(edit)? }
            }
            DeedForm::Move { to, edit } => Self::Move { to: to.into(), edit: edit_of(edit)? },
            DeedForm::PutBack { job: Guid(undone) } => {
                let undone = JobId(undone);
                Self::PutBack(Box::new(PutBack { undone, deed: None, originals: Vec::new() }))
            }
            DeedForm::Export { form } => Self::Export(match form {
                ExportFormName::Ndjson => ExportForm::Ndjson,
                ExportFormName::Csv => ExportForm::Csv,
            }),
        })
    }
}

fn edit_of(form: Option<Box<EditForm>>) -> Result<Option<Arc<Edit>>, Rejection> {
    form.map_or(Ok(None), |form| form.into_edit())
}

impl From<Deed> for DeedForm {
    fn from(deed: Deed) -> Self {
        let form = |edit: Option<Arc<Edit>>| edit.map(|edit| Box::new(EditForm::from(&*edit)));
        let reschedule = |at_utc, later, earlier| Self::Reschedule { at_utc, later, earlier };
        match deed {
            Deed::Delete => Self::Delete {},
            Deed::DeadLetter { reason, description } => Self::DeadLetter {
                reason: reason.map(Into::into),
                description: description.map(Into::into),
            },
            Deed::Undefer => Self::Undefer {},
            Deed::Reschedule(NewInstant::Now) => reschedule(None, None, None),
            Deed::Reschedule(NewInstant::At(at)) => reschedule(Some(Instant(at)), None, None),
            Deed::Reschedule(NewInstant::Later(shift)) => reschedule(None, Some(Span(shift)), None),
            Deed::Reschedule(NewInstant::Earlier(shift)) => {
                reschedule(None, None, Some(Span(shift)))
            }
            Deed::Resubmit { to, edit } => {
                Self::Resubmit { to: to.map(Into::into), edit: form(edit) }
            }
            Deed::Move { to, edit } => Self::Move { to: to.into(), edit: form(edit) },
            Deed::PutBack(put_back) => Self::PutBack { job: Guid(put_back.undone.0) },
            Deed::Export(form) => Self::Export {
                form: match form {
                    ExportForm::Ndjson => ExportFormName::Ndjson,
                    ExportForm::Csv => ExportFormName::Csv,
                },
            },
        }
    }
}

impl From<ActedMessage> for ActedMessageView {
    fn from(message: ActedMessage) -> Self {
        Self { sequence_number: message.sequence.0, result: message.result.into() }
    }
}

impl From<ActedMessageView> for ActedMessage {
    fn from(view: ActedMessageView) -> Self {
        let result = ActResult::from(view.result);
        Self { sequence: SequenceNumber(view.sequence_number), result }
    }
}

impl From<Vec<ActedMessage>> for ActedView {
    fn from(messages: Vec<ActedMessage>) -> Self {
        Self { messages: messages.into_iter().map(Into::into).collect() }
    }
}

impl From<ActedView> for Vec<ActedMessage> {
    fn from(view: ActedView) -> Self {
        view.messages.into_iter().map(Into::into).collect()
    }
}

/// Reads at most [`NUMBERS_MAX`] numbers.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    numbers_up_to(deserializer, NUMBERS_MAX)
}

/// Reads at most `most` numbers.
pub(crate) fn numbers_up_to<'de, D: Deserializer<'de>>(
    deserializer: D,
    most: usize,
) -> Result<Vec<u64>, D::Error> {
    struct Numbers(usize);

    impl<'de> Visitor<'de> for Numbers {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of sequence numbers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
            let mut numbers = Vec::new();
            while let Some(number) = list.next_element()? {
                if numbers.len() == self.0 {
                    return Err(A::Error::custom(format!("more than {} numbers", self.0)));
                }
                numbers.push(number);
            }
            Ok(numbers)
        }
    }

    deserializer.deserialize_seq(Numbers(most))
}
