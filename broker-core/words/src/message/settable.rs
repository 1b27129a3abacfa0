//! The broker properties of a message that a rule action may change (ACT-07).

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
    /// All of them.
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

    /// The canonical name, by which overlays store it: it never changes.
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

    /// The property of exactly this canonical name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.name() == name)
    }
}
