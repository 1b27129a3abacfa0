//! Properties of a message as texts, and as SQL filters read them.

use std::borrow::Cow;

use super::TextField;
use super::matcher::{Candidate, CandidateHead};
use crate::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, MessageId, Value};
use crate::rule::sql::{Operand, to_text};
use crate::rule::{Properties, PublishedMessage, SystemProperty};

/// Properties of a stored message, as SQL filters read them.
pub(super) struct SqlProperties<'a> {
    pub(super) published: PublishedMessage<'a>,
    pub(super) candidate: &'a Candidate<'a>,
}

impl Properties for SqlProperties<'_> {
    fn system(&self, property: SystemProperty) -> Operand<'_> {
        match property {
            SystemProperty::DeliveryCount => Operand::U32(self.candidate.delivery_count),
            SystemProperty::State => Operand::text(self.candidate.state),
            property => self.published.system(property),
        }
    }

    fn user(&self, name: &str) -> Option<Operand<'_>> {
        self.published.user(name)
    }

    fn lookup_steps(&self) -> u64 {
        self.published.lookup_steps()
    }
}

pub(super) const fn field_name(field: TextField) -> &'static str {
    match field {
        TextField::MessageId => "MessageId",
        TextField::CorrelationId => "CorrelationId",
        TextField::SessionId => "SessionId",
        TextField::Subject => "Subject",
        TextField::Reason => DEAD_LETTER_REASON,
        TextField::Description => DEAD_LETTER_ERROR_DESCRIPTION,
        TextField::Source => "DeadLetterSource",
    }
}

/// Returns the text of a property.
pub(super) fn field<'h>(field: TextField, head: &CandidateHead<'h>) -> Option<Cow<'h, str>> {
    let message = head.message;
    let id = |id: Option<&MessageId>| id.map(|id| Cow::Owned(id.to_string()));
    let application = |name| match message.application_property(name)? {
        Value::String(text) => Some(Cow::Borrowed(&**text)),
        other => text_of(other).map(Cow::Owned),
    };
    match field {
        TextField::MessageId => id(message.message_id.as_ref()),
        TextField::CorrelationId => id(message.correlation_id.as_ref()),
        TextField::SessionId => message.session_id.as_deref().map(Cow::Borrowed),
        TextField::Subject => message.subject.as_deref().map(Cow::Borrowed),
        TextField::Reason => application(DEAD_LETTER_REASON),
        TextField::Description => application(DEAD_LETTER_ERROR_DESCRIPTION),
        TextField::Source => head.dead_letter_source.map(Cow::Borrowed),
    }
}

/// Returns the text of a value (ACT-05); `None` for null.
pub(super) fn text_of(value: &Value) -> Option<String> {
    to_text(&Operand::from(value.borrow()))
}

/// Shows all properties with their texts, until `is_found` returns true; returns whether it did.
pub(super) fn each_property(
    head: &CandidateHead<'_>,
    mut is_found: impl FnMut(&str, &str) -> bool,
) -> bool {
    const FIELDS: [TextField; 5] = [
        TextField::MessageId,
        TextField::CorrelationId,
        TextField::SessionId,
        TextField::Subject,
        TextField::Source,
    ];
    let message = head.message;
    for wanted in FIELDS {
        if let Some(text) = field(wanted, head)
            && is_found(field_name(wanted), &text)
        {
            return true;
        }
    }
    for (name, text) in [
        ("ContentType", &message.content_type),
        ("To", &message.to),
        ("ReplyTo", &message.reply_to),
        ("ReplyToSessionId", &message.reply_to_session_id),
        ("PartitionKey", &message.partition_key),
    ] {
        if let Some(text) = text
            && is_found(name, text)
        {
            return true;
        }
    }
    message.application_properties.iter().any(|(name, value)| match value {
        Value::String(text) => is_found(name, text),
        other => text_of(other).is_some_and(|text| is_found(name, &text)),
    })
}
