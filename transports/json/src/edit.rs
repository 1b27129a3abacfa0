//! Changes that a job makes on each message that it sends (CON-16).

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::command::{BodyEdit, Edit};
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::message::{Overlay, PropertyChange, SettableProperty, Value, ValueRef};
use peeklock_core::time::TimeSpan;
use serde::{Deserialize, Deserializer, Serialize};

use crate::inspect::is_false;
use crate::property::PropertyMap;
#[cfg(feature = "schema")]
use crate::property::PropertyValueSchema;
use crate::text::Span;

/// Changes of each message on its way, the same for all. Null unsets a property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditForm {
    /// Application properties to set, plain or with their exact type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>)
    )]
    pub set: Option<PropertyMap>,
    /// Names of application properties to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Whether each message gets a new MessageId.
    #[serde(default, skip_serializing_if = "is_false")]
    pub new_message_id: bool,
    /// New body, as text. The content type stays, and a content encoding is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// New body, as Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// JSON merge patch (RFC 7396) for the body, as a string, so that numbers keep their digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_patch: Option<String>,
    /// Bytes of the new body; only in answers, which leave it out except for one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// Bytes of the merge patch; only in answers, which leave it out except for one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_patch_bytes: Option<u64>,
    /// Subject.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub subject: Option<Option<String>>,
    /// Correlation id.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub correlation_id: Option<Option<String>>,
    /// Content type.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub content_type: Option<Option<String>>,
    /// Session. The partition key is unset, which would have to be equal.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub session_id: Option<Option<String>>,
    /// Time to live, an ISO 8601 duration.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub time_to_live: Option<Option<Span>>,
}

/// Reads a value that is given, which may be null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl EditForm {
    /// Converts to an edit of the core; none for a form without a change.
    ///
    /// # Errors
    /// `ArgumentError` for an empty name, a property that is named twice, a time to live that is
    /// not positive, two new bodies, and one that was left out.
    pub fn into_edit(self) -> Result<Option<Arc<Edit>>, Rejection> {
        let set = self.set.unwrap_or_default().0;
        let mut names = BTreeSet::new();
        for name in set.iter().map(|(name, _)| name).chain(&self.remove) {
            if name.is_empty() {
                return Err(Rejection::argument("a property to set or remove has an empty name"));
            }
            if !names.insert(name) {
                let text = format!("property {} is named twice; name it once", Quoted(name));
                return Err(Rejection::argument(text));
            }
        }
        if let Some(Some(Span(span))) = self.time_to_live
            && span <= TimeSpan::ZERO
        {
            return Err(Rejection::argument("timeToLive must be positive"));
        }
        if self.body_bytes.is_some() || self.merge_patch_bytes.is_some() {
            let text = "bodyBytes and mergePatchBytes are only in answers; give body, bodyBase64 \
                        or mergePatch, which `GET /jobs/{job}` has";
            return Err(Rejection::argument(text));
        }
        let body = match (self.body, self.body_base64, self.merge_patch) {
            (None, None, None) => None,
            (Some(text), None, None) => Some(BodyEdit::Whole(text.into())),
            (None, Some(text), None) => {
                let bytes = STANDARD.decode(text);
                let refuse = |_| Rejection::argument("bodyBase64 must be Base64");
                Some(BodyEdit::Whole(bytes.map_err(refuse)?.into()))
            }
            (None, None, Some(patch)) => Some(BodyEdit::MergePatch(patch.into())),
            _ => {
                let text = "give one of body, bodyBase64 and mergePatch";
                return Err(Rejection::argument(text));
            }
        };
        let text = |text: Option<String>| text.map_or(Value::Null, Value::from);
        let mut broker = Vec::new();
        let texts = [
            (SettableProperty::Subject, self.subject),
            (SettableProperty::CorrelationId, self.correlation_id),
            (SettableProperty::ContentType, self.content_type),
            (SettableProperty::SessionId, self.session_id),
        ];
        for (property, given) in texts {
            let Some(given) = given else { continue };
            broker.push((property, text(given)));
            if property == SettableProperty::SessionId {
                broker.push((SettableProperty::PartitionKey, Value::Null));
            }
        }
        if let Some(span) = self.time_to_live {
            let value = span.map_or(Value::Null, |Span(span)| Value::TimeSpan(span.ticks()));
            broker.push((SettableProperty::TimeToLive, value));
        }
        let changes = set.iter().map(|(name, value)| PropertyChange::Set(name, value.borrow()));
        let changes = changes.chain(self.remove.iter().map(|name| PropertyChange::Remove(name)));
        let broker = broker.iter();
        let broker =
            broker.map(|(property, value)| PropertyChange::SetBroker(*property, value.borrow()));
        let changes = Overlay::of_changes(changes.chain(broker));
        let is_empty = changes.is_empty() && !self.new_message_id && body.is_none();
        Ok((!is_empty).then(|| Arc::new(Edit { changes, new_id: self.new_message_id, body })))
    }
}

impl EditForm {
    /// Replaces a new body or merge patch by its number of bytes.
    pub(crate) fn leave_body_out(&mut self) {
        let of_base64 = |text: &str| {
            let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
            text.len() / 4 * 3 - padding
        };
        let whole = self.body.take().map(|text| text.len());
        let whole = whole.or_else(|| self.body_base64.take().map(|text| of_base64(&text)));
        self.body_bytes = whole.map(|bytes| bytes as u64);
        self.merge_patch_bytes = self.merge_patch.take().map(|patch| patch.len() as u64);
    }
}

impl From<&Edit> for EditForm {
    fn from(edit: &Edit) -> Self {
        let mut form = Self { new_message_id: edit.new_id, ..Self::default() };
        match &edit.body {
            None => {}
            Some(BodyEdit::MergePatch(patch)) => form.merge_patch = Some(patch.to_string()),
            Some(BodyEdit::Whole(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => form.body = Some(text.to_owned()),
                Err(_) => form.body_base64 = Some(STANDARD.encode(bytes)),
            },
        }
        let text = |value: ValueRef<'_>| match value {
            ValueRef::String(text) => Some(Some(text.to_owned())),
            _ => Some(None),
        };
        for change in edit.changes.changes() {
            match change {
                PropertyChange::Set(name, value) => {
                    let set = form.set.get_or_insert_default();
                    set.0.push((name.to_owned(), value.to_value()));
                }
                PropertyChange::Remove(name) => form.remove.push(name.to_owned()),
                PropertyChange::SetBroker(property, value) => match property {
                    SettableProperty::Subject => form.subject = text(value),
                    SettableProperty::CorrelationId => form.correlation_id = text(value),
                    SettableProperty::ContentType => form.content_type = text(value),
                    SettableProperty::SessionId => form.session_id = text(value),
                    SettableProperty::TimeToLive => {
                        form.time_to_live = Some(match value {
                            ValueRef::TimeSpan(ticks) => Some(Span(TimeSpan::from_ticks(ticks))),
                            _ => None,
                        });
                    }
                    // An edit sets no other property, and unsets the partition key with a session.
                    _ => {}
                },
            }
        }
        form
    }
}
