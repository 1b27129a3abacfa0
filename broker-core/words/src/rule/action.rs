//! Actions: the changes that a rule makes to its copy (ACT-01 to ACT-11). Judging a message runs
//! them; they never alter the message itself.

use super::properties::{Properties, PublishedMessage};
use super::sql::{
    EvaluationError, Fault, Observer, Operand, Random, Statement, Target, to_text, to_time_span,
    to_timestamp, to_type_of,
};
use super::system::SystemProperty;
use crate::limits::Limits;
use crate::message::{Overlay, PropertyChange, SettableProperty, Value, ValueRef, same_name};
use crate::time::TimeSpan;

/// The application property that names the rule which made a copy (TOP-03).
const RULE_NAME: &str = "RuleName";

/// The changes of a rule to its copy of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyChanges {
    /// The name of the rule.
    pub rule: Box<str>,
    /// All changes, RuleName included (TOP-03).
    pub overlay: Overlay,
    /// The session of the copy (ACT-09).
    pub session_id: Option<Box<str>>,
    /// The time to live of the copy, if it has one (ACT-09).
    pub time_to_live: Option<TimeSpan>,
}

/// A message in the middle of an action. Each statement sees the changes of earlier ones (ACT-02).
struct Draft<'m, 'a> {
    published: &'m PublishedMessage<'a>,
    /// Changed application properties by exact key; `None` is removed.
    user: Vec<(Box<str>, Option<Value>)>,
    /// Changed broker properties; null is unset.
    system: Vec<(SettableProperty, Value)>,
}

/// Runs the statements of a rule on a message.
///
/// # Errors
/// ACT-10
pub(super) fn run(
    rule: &str,
    statements: &[Statement],
    (published, limits): (&PublishedMessage<'_>, &Limits),
    random: &mut Random<'_>,
    observer: &mut impl Observer,
) -> Result<CopyChanges, EvaluationError> {
    let mut draft = Draft { published, user: Vec::new(), system: Vec::new() };
    for statement in statements {
        draft.carry_out(statement, limits, random, observer)?;
    }
    draft.put(RULE_NAME.into(), Some(Value::from(rule)));
    Ok(draft.finish(rule))
}

impl Draft<'_, '_> {
    fn carry_out(
        &mut self,
        statement: &Statement,
        limits: &Limits,
        random: &mut Random<'_>,
        observer: &mut impl Observer,
    ) -> Result<(), EvaluationError> {
        observer.count_steps(Properties::lookup_steps(self));
        let fault = |fault| EvaluationError { from: statement.from, to: statement.to, fault };
        let Some(expression) = &statement.expression else {
            return self.remove(&statement.target).map_err(fault);
        };
        match &statement.target {
            Target::User(name) => {
                let value = expression.value(self, random, observer)?;
                let (key, value) = match self.resolve(name) {
                    Some((key, old)) => {
                        let kept = to_type_of(old, &value).unwrap_or_else(|| value.to_value());
                        (Box::from(key), kept)
                    }
                    None => (name.clone(), value.to_value()),
                };
                check_property_size(&key, &value, limits).map_err(fault)?;
                self.put(key, Some(value));
            }
            Target::System(property) => {
                let value = expression.value(self, random, observer)?;
                let property = settable(*property).map_err(fault)?;
                let value = broker_value(property, &value, limits).map_err(fault)?;
                self.put_system(property, value);
            }
            Target::NoSuchProperty => return Err(fault(Fault::NoSuchProperty)),
        }
        Ok(())
    }

    fn remove(&mut self, target: &Target) -> Result<(), Fault> {
        match target {
            Target::User(name) => {
                if let Some((key, _)) = self.resolve(name) {
                    let key = Box::from(key);
                    self.put(key, None);
                }
                Ok(())
            }
            Target::System(property) => {
                self.put_system(settable(*property)?, Value::Null);
                Ok(())
            }
            Target::NoSuchProperty => Err(Fault::NoSuchProperty),
        }
    }

    fn put(&mut self, key: Box<str>, value: Option<Value>) {
        match self.user.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.user.push((key, value)),
        }
    }

    fn put_system(&mut self, property: SettableProperty, value: Value) {
        match self.system.iter_mut().find(|(known, _)| *known == property) {
            Some((_, old)) => *old = value,
            None => self.system.push((property, value)),
        }
    }

    /// The property that `name` refers to at this point of the action (SQL-07).
    fn resolve<'s>(&'s self, name: &str) -> Option<(&'s str, ValueRef<'s>)> {
        let view = self.published.view();
        if self.user.is_empty() {
            return view.resolve(name);
        }
        let is_changed = |key: &str| self.user.iter().any(|(changed, _)| **changed == *key);
        let kept = view.keys().filter(|key| !is_changed(key)).map(|key| -> &'s str { key });
        let set = self.user.iter().filter_map(|(key, value)| value.as_ref().map(|_| &**key));
        let key = kept
            .chain(set)
            .filter(|key| same_name(key, name))
            .min_by_key(|key| (*key != name, *key))?;
        match self.user.iter().find(|(changed, _)| **changed == *key) {
            Some((key, value)) => Some((key, value.as_ref()?.borrow())),
            // `name` differs in case only, so look up by the exact key.
            None => view.resolve(key),
        }
    }

    /// The expiry that follows from a changed time to live; `None` if no statement changed it.
    fn changed_expiry(&self) -> Option<Operand<'static>> {
        let is_own =
            |(known, _): &&(SettableProperty, Value)| *known == SettableProperty::TimeToLive;
        let (_, value) = self.system.iter().find(is_own)?;
        Some(match value {
            Value::TimeSpan(ticks) => {
                let enqueued_at = self.published.facts().enqueued_at;
                Operand::instant(enqueued_at.plus(TimeSpan::from_ticks(*ticks)))
            }
            _ => Operand::Unknown,
        })
    }

    fn finish(self, rule: &str) -> CopyChanges {
        let system = |property| Properties::system(&self, SystemProperty::Settable(property));
        let session_id = match system(SettableProperty::SessionId) {
            Operand::Text(id) => Some(Box::from(id.as_ref())),
            _ => None,
        };
        let time_to_live = match system(SettableProperty::TimeToLive) {
            Operand::TimeSpan(ticks) => Some(TimeSpan::from_ticks(ticks)),
            _ => None,
        };
        let user = self.user.iter().map(|(key, value)| match value {
            Some(value) => PropertyChange::Set(key, value.borrow()),
            None => PropertyChange::Remove(key),
        });
        let system = self
            .system
            .iter()
            .map(|(property, value)| PropertyChange::SetBroker(*property, value.borrow()));
        let overlay = Overlay::of_changes(system.chain(user));
        CopyChanges { rule: rule.into(), overlay, session_id, time_to_live }
    }
}

impl Properties for Draft<'_, '_> {
    fn system(&self, property: SystemProperty) -> Operand<'_> {
        if let SystemProperty::Settable(wanted) = property
            && let Some((_, value)) = self.system.iter().find(|(known, _)| *known == wanted)
        {
            return value.borrow().into();
        }
        if property == SystemProperty::ExpiresAtUtc
            && let Some(expires_at) = self.changed_expiry()
        {
            return expires_at;
        }
        self.published.system(property)
    }

    fn user(&self, name: &str) -> Option<Operand<'_>> {
        self.resolve(name).map(|(_, value)| value.into())
    }

    /// Each property is compared with each changed one.
    fn lookup_steps(&self) -> u64 {
        self.published.lookup_steps().saturating_mul(1 + self.user.len() as u64)
    }
}

/// ACT-07
fn settable(property: SystemProperty) -> Result<SettableProperty, Fault> {
    match property {
        SystemProperty::Settable(property) => Ok(property),
        other => Err(Fault::ReadOnly(other.name())),
    }
}

/// Converts a value to the type of the broker property and checks its limit (ACT-07).
fn broker_value(
    property: SettableProperty,
    value: &Operand<'_>,
    limits: &Limits,
) -> Result<Value, Fault> {
    if *value == Operand::Unknown {
        return Ok(Value::Null);
    }
    let name = property.name();
    let refused = || Fault::NotConvertible { property: name, value: value.kind() };
    match property {
        SettableProperty::TimeToLive => {
            let ticks = to_time_span(value).ok_or_else(refused)?;
            if ticks <= 0 { Err(Fault::NoTimeToLive) } else { Ok(Value::TimeSpan(ticks)) }
        }
        SettableProperty::ScheduledEnqueueTimeUtc => {
            to_timestamp(value).map(Value::Timestamp).ok_or_else(refused)
        }
        SettableProperty::MessageId
        | SettableProperty::SessionId
        | SettableProperty::PartitionKey
        | SettableProperty::ReplyToSessionId => {
            let text = to_text(value).ok_or_else(refused)?;
            let (characters, limit) = (text.chars().count(), limits.message_id_chars_max);
            if characters > limit {
                return Err(Fault::TooManyCharacters { property: name, characters, limit });
            }
            Ok(Value::String(text))
        }
        SettableProperty::CorrelationId
        | SettableProperty::Subject
        | SettableProperty::To
        | SettableProperty::ReplyTo
        | SettableProperty::ContentType => to_text(value).map(Value::String).ok_or_else(refused),
    }
}

/// MSG-26
fn check_property_size(key: &str, value: &Value, limits: &Limits) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    Value::from(key).encode_to(&mut bytes);
    value.encode_to(&mut bytes);
    let limit = usize::try_from(limits.property_bytes_max).unwrap_or(usize::MAX);
    if bytes.len() > limit {
        return Err(Fault::PropertySize { bytes: bytes.len(), limit });
    }
    Ok(())
}
