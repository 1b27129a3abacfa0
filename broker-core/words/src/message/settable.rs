//! The broker properties of a message that a rule action may change (ACT-07). Overlays store
//! changes of these properties.

/// A broker property that can be changed after the message was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SettableProperty {
    /// MessageId.
    MessageId,
    /// CorrelationId.
    CorrelationId,
    /// Subject, also known as Label.
    Subject,
    /// To.
    To,
    /// ReplyTo.
    ReplyTo,
    /// ReplyToSessionId.
    ReplyToSessionId,
    /// SessionId.
    SessionId,
    /// ContentType.
    ContentType,
    /// PartitionKey.
    PartitionKey,
    /// TimeToLive.
    TimeToLive,
    /// ScheduledEnqueueTimeUtc.
    ScheduledEnqueueTimeUtc,
}

impl SettableProperty {
    /// All settable properties.
    pub const ALL: [Self; 11] = [
        Self::MessageId,
        Self::CorrelationId,
        Self::Subject,
        Self::To,
        Self::ReplyTo,
        Self::ReplyToSessionId,
        Self::SessionId,
        Self::ContentType,
        Self::PartitionKey,
        Self::TimeToLive,
        Self::ScheduledEnqueueTimeUtc,
    ];

    /// The canonical name, which stored overlays contain. It never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MessageId => "MessageId",
            Self::CorrelationId => "CorrelationId",
            Self::Subject => "Subject",
            Self::To => "To",
            Self::ReplyTo => "ReplyTo",
            Self::ReplyToSessionId => "ReplyToSessionId",
            Self::SessionId => "SessionId",
            Self::ContentType => "ContentType",
            Self::PartitionKey => "PartitionKey",
            Self::TimeToLive => "TimeToLive",
            Self::ScheduledEnqueueTimeUtc => "ScheduledEnqueueTimeUtc",
        }
    }

    /// The property with exactly this canonical name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.name() == name)
    }
}

/// Sets a broker property of a message or its view. Their fields have the same names and
/// differ in the types of texts: `$id` converts a text to an id, `$text` to any other field. A
/// value of the wrong type unsets the property; no action makes one.
macro_rules! set_broker {
    ($on:expr, $property:expr, $value:expr, $id:path, $text:path) => {{
        use $crate::message::SettableProperty as Settable;
        let value: $crate::message::ValueRef<'_> = $value;
        let text = match value {
            $crate::message::ValueRef::String(text) => Some(text),
            _ => None,
        };
        match $property {
            Settable::MessageId => $on.message_id = $id(text),
            Settable::CorrelationId => {
                $on.correlation_id = $id(text);
            }
            Settable::Subject => $on.subject = $text(text),
            Settable::To => $on.to = $text(text),
            Settable::ReplyTo => $on.reply_to = $text(text),
            Settable::ReplyToSessionId => {
                $on.reply_to_session_id = $text(text);
            }
            Settable::SessionId => $on.session_id = $text(text),
            Settable::ContentType => $on.content_type = $text(text),
            Settable::PartitionKey => $on.partition_key = $text(text),
            Settable::TimeToLive => {
                $on.time_to_live = match value {
                    $crate::message::ValueRef::TimeSpan(ticks) => {
                        Some($crate::time::TimeSpan::from_ticks(ticks))
                    }
                    _ => None,
                };
            }
            Settable::ScheduledEnqueueTimeUtc => {
                $on.scheduled_enqueue_time = match value {
                    $crate::message::ValueRef::Timestamp(unix_ms) => {
                        Some($crate::time::Timestamp::from_unix_ms(unix_ms))
                    }
                    _ => None,
                };
            }
        }
    }};
}

pub(super) use set_broker;
