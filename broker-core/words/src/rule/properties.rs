//! The properties of a message that rules can read: broker and application properties, never the
//! body (TOP-11). The matcher and tests of filters read them.

use super::sql::Operand;
use super::system::SystemProperty;
use crate::ids::SequenceNumber;
use crate::message::{Content, Overlay, PropertyView, SettableProperty};
use crate::time::{TimeSpan, Timestamp};

/// The properties of a message, as filters and actions read them.
pub trait Properties {
    /// A broker property; Unknown if it is not set (SQL-09).
    fn system(&self, property: SystemProperty) -> Operand<'_>;

    /// The application property of that name by SQL-07; `None` if there is none (SQL-11).
    fn user(&self, name: &str) -> Option<Operand<'_>>;

    /// Number of steps to find an application property (SQL-41).
    fn lookup_steps(&self) -> u64;
}

/// Facts that the topic adds to the sender's properties when it accepts a message (SQL-09).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// The number from the topic.
    pub sequence: SequenceNumber,
    /// The number at its original point of submission, otherwise 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// The instant at which the topic accepted the message.
    pub enqueued_at: Timestamp,
    /// The instant of expiry, if any.
    pub expires_at: Option<Timestamp>,
    /// The time to live when the topic accepted the message (EXP-05), if any.
    pub time_to_live: Option<TimeSpan>,
    /// Its size in bytes (MSG-25).
    pub size: u64,
    /// The entity that dead-lettered the message, if it came from a dead-letter queue (file 10).
    pub dead_letter_source: Option<&'a str>,
}

/// The acceptance of a message by a topic, from which its [`Facts`] follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acceptance {
    /// The number from the topic.
    pub sequence: SequenceNumber,
    /// The number at its original point of submission, otherwise 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// The instant at which the topic accepted the message.
    pub enqueued_at: Timestamp,
    /// The maximum time to live that the topic allows.
    pub time_to_live_max: TimeSpan,
    /// Its size in bytes (MSG-25).
    pub size: u32,
}

/// A message, for the rules of a topic.
#[derive(Clone, Debug)]
pub struct PublishedMessage<'a> {
    view: PropertyView<'a>,
    facts: Facts<'a>,
}

impl<'a> PublishedMessage<'a> {
    /// A message with these properties that a topic has accepted.
    #[must_use]
    pub const fn new(view: PropertyView<'a>, facts: Facts<'a>) -> Self {
        Self { view, facts }
    }

    /// A message with this content, and with properties that were set on its way.
    #[must_use]
    pub fn accepted(
        content: &'a Content,
        changes: Option<&'a Overlay>,
        acceptance: Acceptance,
    ) -> Self {
        let Acceptance { sequence, enqueued_sequence, enqueued_at, time_to_live_max, size } =
            acceptance;
        let view = content.property_view();
        let view = match changes {
            Some(changes) => view.with(changes),
            None => view,
        };
        let time_to_live = view.time_to_live().map(|own| own.min(time_to_live_max));
        let facts = Facts {
            sequence,
            enqueued_sequence,
            enqueued_at,
            expires_at: time_to_live.map(|own| enqueued_at.plus(own)),
            time_to_live,
            size: u64::from(size),
            dead_letter_source: Overlay::dead_letter_source_of(changes.into_iter()),
        };
        Self::new(view, facts)
    }

    /// The properties from the sender.
    #[must_use]
    pub const fn view(&self) -> &PropertyView<'a> {
        &self.view
    }

    /// The facts from the topic.
    #[must_use]
    pub const fn facts(&self) -> &Facts<'a> {
        &self.facts
    }
}

impl Properties for PublishedMessage<'_> {
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
            // The message is not delivered yet, and no receiver holds a lock on it (SQL-09).
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
