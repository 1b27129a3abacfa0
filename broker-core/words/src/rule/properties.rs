//! What rules see of a message: its broker and application properties, never its body (TOP-11).

use super::sql::Operand;
use super::system::SystemProperty;
use crate::ids::SequenceNumber;
use crate::message::{PropertyView, SettableProperty};
use crate::time::{TimeSpan, Timestamp};

/// The properties of one message, as filters and actions read them.
pub trait Properties {
    /// A broker property; Unknown if it is not set (SQL-09).
    fn system(&self, property: SystemProperty) -> Operand<'_>;

    /// The application property of that name by SQL-07; none if there is no such one (SQL-11).
    fn user(&self, name: &str) -> Option<Operand<'_>>;

    /// Steps that finding an application property takes (SQL-41).
    fn lookup_steps(&self) -> u64;
}

/// What the topic knows of a message it has accepted (SQL-09), beside what the sender set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The number that the topic gave it.
    pub sequence: SequenceNumber,
    /// The number at its original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// When the topic accepted it.
    pub enqueued_at: Timestamp,
    /// When it expires, if it does.
    pub expires_at: Option<Timestamp>,
    /// Its time to live as the topic accepted it (EXP-05), if it has one.
    pub time_to_live: Option<TimeSpan>,
    /// Its size in bytes (MSG-25).
    pub size: u64,
    /// Where it was dead-lettered, if it came from a dead-letter queue (file 10).
    pub dead_letter_source: Option<&'a str>,
}

/// A message as the rules of a topic see it.
#[derive(Clone, Debug)]
pub struct Published<'a> {
    view: PropertyView<'a>,
    facts: Facts<'a>,
}

impl<'a> Published<'a> {
    /// A message with these properties that a topic has accepted.
    #[must_use]
    pub const fn new(view: PropertyView<'a>, facts: Facts<'a>) -> Self {
        Self { view, facts }
    }

    /// What the sender set.
    #[must_use]
    pub const fn view(&self) -> &PropertyView<'a> {
        &self.view
    }

    /// What the topic knows.
    #[must_use]
    pub const fn facts(&self) -> &Facts<'a> {
        &self.facts
    }
}

impl Properties for Published<'_> {
    fn system(&self, property: SystemProperty) -> Operand<'_> {
        let Facts {
            sequence,
            enqueued_sequence,
            enqueued_at,
            expires_at,
            time_to_live,
            size,
            dead_letter_source,
        } = self.facts;
        let text = Operand::text_or_unknown;
        let number = |sequence: SequenceNumber| Operand::I64(sequence.0.cast_signed());
        match property {
            SystemProperty::Settable(property) => match property {
                SettableProperty::MessageId => text(self.view.message_id()),
                SettableProperty::CorrelationId => text(self.view.correlation_id()),
                SettableProperty::Subject => text(self.view.subject()),
                SettableProperty::To => text(self.view.to()),
                SettableProperty::ReplyTo => text(self.view.reply_to()),
                SettableProperty::ReplyToSessionId => text(self.view.reply_to_session_id()),
                SettableProperty::SessionId => text(self.view.session_id()),
                SettableProperty::ContentType => text(self.view.content_type()),
                SettableProperty::PartitionKey => text(self.view.partition_key()),
                SettableProperty::TimeToLive => {
                    time_to_live.map_or(Operand::Unknown, |span| Operand::TimeSpan(span.ticks()))
                }
                SettableProperty::ScheduledEnqueueTimeUtc => {
                    self.view.scheduled_enqueue_time().map_or(Operand::Unknown, Operand::instant)
                }
            },
            SystemProperty::TransactionPartitionKey => text(self.view.transaction_partition_key()),
            SystemProperty::EnqueuedTimeUtc => Operand::instant(enqueued_at),
            SystemProperty::ExpiresAtUtc => expires_at.map_or(Operand::Unknown, Operand::instant),
            SystemProperty::SequenceNumber => number(sequence),
            SystemProperty::EnqueuedSequenceNumber => number(enqueued_sequence),
            // It is not delivered yet, and nobody holds a lock on it (SQL-09).
            SystemProperty::DeliveryCount => Operand::U32(0),
            SystemProperty::LockedUntilUtc | SystemProperty::LockToken => Operand::Unknown,
            SystemProperty::Size => Operand::U64(size),
            SystemProperty::State => Operand::text("Active"),
            SystemProperty::DeadLetterSource => text(dead_letter_source),
            SystemProperty::ForcePersistence => Operand::Bool(self.view.force_persistence()),
        }
    }

    fn user(&self, name: &str) -> Option<Operand<'_>> {
        self.view.resolve(name).map(|(_, value)| value.into())
    }

    fn lookup_steps(&self) -> u64 {
        4 * self.view.property_count() as u64
    }
}
