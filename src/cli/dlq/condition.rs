//! Conditions that select dead-lettered messages, such as `--where reason=TTLExpiredException`. The
//! `dlq` commands and `apply` use them.

use peeklock::websocket::client::Received;

use super::super::message::{id, plain};

/// Help text about conditions.
macro_rules! conditions {
    () => {
        "A condition is FIELD=VALUE, FIELD!=VALUE, FIELD~PART or FIELD!~PART. Fields are reason, \
         description, id, subject, correlation-id and property.KEY; case matters. A field that a \
         message does not have is empty. With several conditions, a message must meet all of them."
    };
}
pub(super) use conditions;

/// Condition on a message.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageCondition {
    field: Field,
    test: Test,
    value: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Field {
    Reason,
    Description,
    Id,
    Subject,
    CorrelationId,
    Property(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    Is,
    IsNot,
    Has,
    HasNot,
}

impl MessageCondition {
    /// Whether the message meets the condition.
    pub fn holds(&self, message: &Received) -> bool {
        let sent = message.message();
        let found = match &self.field {
            Field::Reason => message.dead_letter_reason().unwrap_or_default().to_owned(),
            Field::Description => {
                message.dead_letter_error_description().unwrap_or_default().to_owned()
            }
            Field::Id => id(sent),
            Field::Subject => sent.subject.clone().unwrap_or_default(),
            Field::CorrelationId => {
                sent.correlation_id.as_ref().map(ToString::to_string).unwrap_or_default()
            }
            Field::Property(key) => sent.application_property(key).map(plain).unwrap_or_default(),
        };
        match self.test {
            Test::Is => found == self.value,
            Test::IsNot => found != self.value,
            Test::Has => found.contains(&self.value),
            Test::HasNot => !found.contains(&self.value),
        }
    }
}

/// Parses a condition.
pub fn condition(text: &str) -> Result<MessageCondition, String> {
    let place = text
        .find(['=', '~'])
        .ok_or("expected a condition FIELD=VALUE, FIELD!=VALUE, FIELD~PART or FIELD!~PART")?;
    let (before, after) = text.split_at(place);
    let is_part = after.starts_with('~');
    let value = after.get(1..).unwrap_or_default().to_owned();
    let (name, is_not) = match before.strip_suffix('!') {
        Some(name) => (name, true),
        None => (before, false),
    };
    let field = match name.trim() {
        "reason" => Field::Reason,
        "description" => Field::Description,
        "id" => Field::Id,
        "subject" => Field::Subject,
        "correlation-id" => Field::CorrelationId,
        other => match other.strip_prefix("property.").filter(|key| !key.is_empty()) {
            Some(key) => Field::Property(key.to_owned()),
            None => {
                return Err(format!(
                    "`{other}` is not a field; fields are reason, description, id, subject, \
                     correlation-id and property.KEY"
                ));
            }
        },
    };
    let test = match (is_part, is_not) {
        (false, false) => Test::Is,
        (false, true) => Test::IsNot,
        (true, false) => Test::Has,
        (true, true) => Test::HasNot,
    };
    Ok(MessageCondition { field, test, value })
}

/// Whether a message meets all conditions.
pub fn all_hold(conditions: &[MessageCondition], message: &Received) -> bool {
    conditions.iter().all(|condition| condition.holds(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: Option<(Field, Test, &str)>) {
        let expected = expected.map(|(field, test, value)| MessageCondition {
            field,
            test,
            value: value.to_owned(),
        });
        assert_eq!(condition(given).ok(), expected, "{given}");
    }

    #[test]
    fn conditions_have_a_field_a_test_and_a_value() {
        check("reason=poison", Some((Field::Reason, Test::Is, "poison")));
        check("reason!=poison", Some((Field::Reason, Test::IsNot, "poison")));
        check(
            "description~out of ~ range",
            Some((Field::Description, Test::Has, "out of ~ range")),
        );
        check("description!~a=b", Some((Field::Description, Test::HasNot, "a=b")));
        check("property.table=7", Some((Field::Property("table".into()), Test::Is, "7")));
        check("reason=", Some((Field::Reason, Test::Is, "")));
        check("property.=7", None);
        check("raeson=x", None);
        check("reason", None);
    }
}
