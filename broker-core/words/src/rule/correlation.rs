//! Correlation filters: values that properties of the message must have (TOP-18 to TOP-23). The
//! matcher indexes them by their properties, and judging compares candidates with the message.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::ALLOCATION_BYTES;
use super::properties::Properties;
use super::sql::{self, EvaluationError, Fault, Operand};
use super::system::SystemProperty;
use crate::error::{Quoted, Rejection};
use crate::message::{SettableProperty, Value, ValueRef};

/// Steps of a condition, without the look-up of its property.
const CONDITION_STEPS: u64 = 32;

/// A broker property that a correlation filter compares, with its name on each interface (TOP-18).
#[derive(Clone, Copy, Debug)]
pub struct CorrelationField {
    /// Name in configuration files and plans: `reply_to`.
    pub name: &'static str,
    /// Name in JSON: `replyTo`.
    pub json: &'static str,
    /// Key in requests over AMQP: `reply-to`.
    pub key: &'static str,
    /// Element in Atom: `ReplyTo`.
    pub element: &'static str,
    /// Property of the message.
    pub property: SettableProperty,
    get: fn(&CorrelationFilter) -> Option<&str>,
    set: fn(&mut CorrelationFilter, Option<Box<str>>),
}

impl CorrelationField {
    /// The value in a filter, if it has one.
    #[must_use]
    pub fn get<'f>(&self, filter: &'f CorrelationFilter) -> Option<&'f str> {
        (self.get)(filter)
    }

    /// Sets or removes the value in a filter.
    pub fn set(&self, filter: &mut CorrelationFilter, value: Option<Box<str>>) {
        (self.set)(filter, value);
    }
}

/// The list of the broker properties that a correlation filter compares, with their names on each
/// interface, in the order of records and of AMQP (TOP-18, AMQ-24): passes it to a macro, which
/// generates a form of the filter.
#[macro_export]
macro_rules! correlation_properties {
    ($form:ident) => {
        $form! {
            /// CorrelationId.
            correlation_id, "correlationId", "correlation-id", "CorrelationId", CorrelationId;
            /// MessageId.
            message_id, "messageId", "message-id", "MessageId", MessageId;
            /// To.
            to, "to", "to", "To", To;
            /// ReplyTo.
            reply_to, "replyTo", "reply-to", "ReplyTo", ReplyTo;
            /// Subject, also known as Label.
            subject, "subject", "label", "Label", Subject;
            /// SessionId.
            session_id, "sessionId", "session-id", "SessionId", SessionId;
            /// ReplyToSessionId.
            reply_to_session_id, "replyToSessionId", "reply-to-session-id", "ReplyToSessionId", ReplyToSessionId;
            /// ContentType.
            content_type, "contentType", "content-type", "ContentType", ContentType;
        }
    };
}

macro_rules! correlation_filter {
    ($($(#[$doc:meta])* $field:ident, $json:literal, $key:literal, $element:literal, $property:ident;)+) => {
        /// Values that a message must all have (TOP-19).
        #[derive(Clone, PartialEq, Debug, Default)]
        pub struct CorrelationFilter {
            $($(#[$doc])* pub $field: Option<Box<str>>,)+
            /// Application properties; names ignore case (TOP-20).
            pub properties: Vec<(Box<str>, Value)>,
        }

        impl CorrelationFilter {
            /// The broker properties, in the order of their fields.
            pub const FIELDS: [CorrelationField; 8] = [$(CorrelationField {
                name: stringify!($field),
                json: $json,
                key: $key,
                element: $element,
                property: SettableProperty::$property,
                get: |filter| filter.$field.as_deref(),
                set: |filter, value| filter.$field = value,
            }),+];
        }
    };
}

correlation_properties!(correlation_filter);

/// A constrained property, in the spelling of the filter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Property {
    System(SystemProperty),
    User(Box<str>),
}

/// A property and the value that it must have, borrowed from the filter, so that a rule stores both
/// only once.
#[derive(Clone, Copy, Debug)]
pub(super) struct PropertyCondition<'f> {
    property: PropertyRef<'f>,
    value: ValueRef<'f>,
}

/// A [`Property`] that borrows its name. Both types have the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PropertyRef<'f> {
    System(SystemProperty),
    User(&'f str),
}

impl CorrelationFilter {
    /// A filter on one application property.
    #[must_use]
    pub fn property(name: impl Into<Box<str>>, value: impl Into<Value>) -> Self {
        Self::default().and_property(name, value)
    }

    /// Adds a condition on an application property.
    #[must_use]
    pub fn and_property(mut self, name: impl Into<Box<str>>, value: impl Into<Value>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// The constrained broker properties with their values, in the order of the fields.
    pub fn broker_properties(&self) -> impl Iterator<Item = (CorrelationField, &str)> {
        Self::FIELDS.into_iter().filter_map(|field| Some((field, field.get(self)?)))
    }

    /// All conditions: those on broker properties in a fixed order, then the others in the order of
    /// the description.
    pub(super) fn conditions(&self) -> impl Iterator<Item = PropertyCondition<'_>> {
        let broker = self.broker_properties().map(|(field, value)| PropertyCondition {
            property: PropertyRef::System(SystemProperty::Settable(field.property)),
            value: ValueRef::String(value),
        });
        let user = self.properties.iter().map(|(name, value)| PropertyCondition {
            property: PropertyRef::User(name),
            value: value.borrow(),
        });
        broker.chain(user)
    }

    /// All conditions ordered by property, so that filters on the same properties share an index
    /// entry.
    pub(super) fn ordered_conditions(&self) -> Vec<PropertyCondition<'_>> {
        let mut conditions: Vec<_> = self.conditions().collect();
        conditions.sort_by(|left, right| left.property.cmp(&right.property));
        conditions
    }

    /// Number of constrained properties.
    pub(super) fn len(&self) -> usize {
        self.broker_properties().count() + self.properties.len()
    }

    /// Bytes of the index entry, if no other filter constrains the same properties.
    pub(super) fn index_bytes(&self) -> usize {
        let names = self.properties.iter().map(|(name, _)| name.len() + ALLOCATION_BYTES);
        self.len() * size_of::<Property>() + names.sum::<usize>()
    }

    /// Bytes of the names and values.
    pub(super) fn bytes(&self) -> u64 {
        let broker = self.broker_properties().map(|(_, value)| value.len() as u64);
        let user = self.properties.iter();
        broker.sum::<u64>() + user.map(|(name, value)| pair_bytes(name, value)).sum::<u64>()
    }

    /// TOP-18. The caller must have checked the count and the size already.
    pub(super) fn validate(&self, rule: &str) -> Result<(), Rejection> {
        let rule_name = Quoted(rule);
        if self.broker_properties().next().is_none() && self.properties.is_empty() {
            return Err(Rejection::argument(format!(
                "correlation filter of rule {rule_name} has no property; give one, or use the true \
                filter"
            )));
        }
        let mut names = BTreeSet::new();
        for (name, _) in &self.properties {
            if name.is_empty() {
                return Err(Rejection::argument(format!(
                    "correlation filter of rule {rule_name} has a property without a name"
                )));
            }
            if !names.insert(name) {
                return Err(Rejection::argument(format!(
                    "correlation filter of rule {rule_name} has property {} twice",
                    Quoted(name)
                )));
            }
        }
        Ok(())
    }
}

/// Number of bytes of a name and its value, for the size limit of rules.
pub(super) fn pair_bytes(name: &str, value: &Value) -> u64 {
    /// Size of any value without its text.
    const VALUE_BYTES: usize = 16;
    (name.len() + VALUE_BYTES + value.heap_bytes()) as u64
}

impl Property {
    /// The value of the property in a message; Unknown if it has none.
    pub(super) fn of<'p>(&self, properties: &'p impl Properties) -> Operand<'p> {
        match self {
            Self::System(property) => PropertyRef::System(*property).of(properties),
            Self::User(name) => PropertyRef::User(name).of(properties),
        }
    }
}

impl PropertyRef<'_> {
    #[inline]
    fn of<'p>(self, properties: &'p impl Properties) -> Operand<'p> {
        match self {
            Self::System(property) => properties.system(property),
            Self::User(name) => properties.user(name).unwrap_or_default(),
        }
    }
}

impl<'f> PropertyCondition<'f> {
    /// The property, in the spelling of the filter.
    pub(super) fn property(&self) -> Property {
        match self.property {
            PropertyRef::System(property) => Property::System(property),
            PropertyRef::User(name) => Property::User(name.into()),
        }
    }

    /// The required value.
    pub(super) fn wanted(&self) -> Operand<'f> {
        self.value.into()
    }

    /// Whether the message has the required value (TOP-20, TOP-21).
    pub(super) fn holds(&self, properties: &impl Properties) -> bool {
        sql::equal(&self.property.of(properties), &self.wanted())
    }
}

/// Steps of a property's look-up and of the comparison of its value, as SQL counts them (SQL-41).
pub(super) fn condition_steps(properties: &impl Properties) -> u64 {
    properties.lookup_steps().saturating_add(CONDITION_STEPS)
}

/// Refuses the look-up of `conditions` properties if it takes more steps than SQL allows (SQL-41,
/// TOP-22).
pub(super) fn refuse_too_many_steps(
    conditions: usize,
    properties: &impl Properties,
) -> Result<(), EvaluationError> {
    if condition_steps(properties).saturating_mul(conditions as u64) <= sql::STEPS_MAX {
        return Ok(());
    }
    Err(EvaluationError { from: 0, to: 0, fault: Fault::TooManySteps(sql::STEPS_MAX) })
}

/// A hash of several values in order. Values that are equal by [`sql::equal`] have equal hashes. It
/// can be kept between any two values.
///
/// The key is fixed, so that every run behaves the same. Authors of rules can choose values that
/// collide, and slow down only their own topic; senders cannot.
#[derive(Clone)]
pub(super) struct ValuesHash(SipHasher13);

impl ValuesHash {
    pub(super) fn new() -> Self {
        Self(SipHasher13::new_with_keys(0, 0))
    }

    pub(super) fn add(&mut self, value: &Operand<'_>) {
        sql::hash(value, &mut self.0);
    }

    pub(super) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// The hash of the required values.
pub(super) fn hash_wanted(conditions: &[PropertyCondition<'_>]) -> u64 {
    let mut hash = ValuesHash::new();
    conditions.iter().for_each(|condition| hash.add(&condition.wanted()));
    hash.finish()
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(property) => write!(f, "sys.{property}"),
            Self::User(name) => f.write_str(name),
        }
    }
}
