//! Correlation filters: values that properties of the message must have (TOP-18 to TOP-23).

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::description::check_size;
use super::properties::Properties;
use super::sql::{self, Operand};
use super::system::SystemProperty;
use crate::error::{Quoted, Rejection};
use crate::limits::Limits;
use crate::message::{SettableProperty, Value};

/// The values that a message must have, all of them (TOP-19).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CorrelationFilter {
    /// CorrelationId.
    pub correlation_id: Option<Box<str>>,
    /// MessageId.
    pub message_id: Option<Box<str>>,
    /// To.
    pub to: Option<Box<str>>,
    /// ReplyTo.
    pub reply_to: Option<Box<str>>,
    /// Subject, also known as Label.
    pub subject: Option<Box<str>>,
    /// SessionId.
    pub session_id: Option<Box<str>>,
    /// ReplyToSessionId.
    pub reply_to_session_id: Option<Box<str>>,
    /// ContentType.
    pub content_type: Option<Box<str>>,
    /// Application properties; names ignore case (TOP-20).
    pub properties: Vec<(Box<str>, Value)>,
}

/// A property that a filter constrains, with its name as the filter spells it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Property {
    System(SystemProperty),
    User(Box<str>),
}

/// One value that one property must have.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) property: Property,
    pub(super) value: Value,
}

impl CorrelationFilter {
    /// A filter on one application property.
    #[must_use]
    pub fn property(name: impl Into<Box<str>>, value: impl Into<Value>) -> Self {
        Self::default().and_property(name, value)
    }

    /// This filter with one more application property.
    #[must_use]
    pub fn and_property(mut self, name: impl Into<Box<str>>, value: impl Into<Value>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// The broker properties with the values given, in a fixed order.
    pub(super) fn broker_properties(&self) -> impl Iterator<Item = (SettableProperty, &str)> {
        [
            (SettableProperty::CorrelationId, &self.correlation_id),
            (SettableProperty::MessageId, &self.message_id),
            (SettableProperty::To, &self.to),
            (SettableProperty::ReplyTo, &self.reply_to),
            (SettableProperty::Subject, &self.subject),
            (SettableProperty::SessionId, &self.session_id),
            (SettableProperty::ReplyToSessionId, &self.reply_to_session_id),
            (SettableProperty::ContentType, &self.content_type),
        ]
        .into_iter()
        .filter_map(|(property, value)| Some((property, value.as_deref()?)))
    }

    /// All that it asks for, ordered by property, so that filters on the same properties are alike.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let broker = self.broker_properties().map(|(property, value)| Condition {
            property: Property::System(SystemProperty::Settable(property)),
            value: Value::from(value),
        });
        let user = self.properties.iter().map(|(name, value)| Condition {
            property: Property::User(name.clone()),
            value: value.clone(),
        });
        let mut conditions: Vec<_> = broker.chain(user).collect();
        conditions.sort_by(|left, right| left.property.cmp(&right.property));
        conditions
    }

    /// TOP-18
    pub(super) fn validate(&self, rule: &str, limits: &Limits) -> Result<(), Rejection> {
        let rule_name = Quoted(rule);
        if self.broker_properties().next().is_none() && self.properties.is_empty() {
            return Err(Rejection::argument(format!(
                "correlation filter of rule {rule_name} has no property; give one, or use the true \
                 filter"
            )));
        }
        let mut bytes = Vec::new();
        for (position, (name, value)) in self.properties.iter().enumerate() {
            if name.is_empty() {
                return Err(Rejection::argument(format!(
                    "correlation filter of rule {rule_name} has a property without a name"
                )));
            }
            if self.properties.iter().take(position).any(|(other, _)| other == name) {
                return Err(Rejection::argument(format!(
                    "correlation filter of rule {rule_name} has property {} twice",
                    Quoted(name)
                )));
            }
            if *value == Value::Null {
                return Err(Rejection::argument(format!(
                    "correlation filter of rule {rule_name} has no value for property {}, and null \
                     equals nothing",
                    Quoted(name)
                )));
            }
            bytes.extend_from_slice(name.as_bytes());
            value.encode_to(&mut bytes);
        }
        for (_, value) in self.broker_properties() {
            bytes.extend_from_slice(value.as_bytes());
        }
        check_size("values of the correlation filter", rule, bytes.len(), limits)
    }
}

impl Property {
    /// Its value in a message; Unknown if it has none.
    #[inline]
    pub(super) fn of<'p>(&self, properties: &'p impl Properties) -> Operand<'p> {
        match self {
            Self::System(property) => properties.system(*property),
            Self::User(name) => properties.user(name).unwrap_or_default(),
        }
    }
}

impl Condition {
    /// Whether a message has the value (TOP-20, TOP-21).
    pub(super) fn holds(&self, properties: &impl Properties) -> bool {
        sql::equal(&self.property.of(properties), &self.value.borrow().into())
    }
}

/// A hash of several values in order; the same for values that are equal by [`sql::equal`].
///
/// The key is fixed, so that everything is the same in every run. Who can make rules can make them
/// collide, and harms the own topic with it; senders cannot.
pub(super) fn hash_values<'v>(values: impl Iterator<Item = Operand<'v>>) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    for value in values {
        sql::hash(&value, &mut hasher);
    }
    hasher.finish()
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(property) => write!(f, "sys.{property}"),
            Self::User(name) => f.write_str(name),
        }
    }
}
