//! What is declared of queues, topics, subscriptions and rules alike: how properties are left out, set and taken away.

use peeklock::declaration::Declaration;
use peeklock::description::Cleared;

use super::queue::QueueDeclaration;
use super::text::Scalar;
use super::topic::TopicDeclaration;

/// What becomes of a property that every new entity has alike, whatever the limits of its broker.
#[derive(Clone, Copy)]
pub(super) enum Usual {
    /// It is not named.
    IsLeftOut,
    /// It is named if nothing else is.
    IsNamed,
}

impl Usual {
    pub(super) fn of<T: Copy + PartialEq>(self, property: &mut Option<Scalar<T>>, usual: T) {
        match self {
            Self::IsLeftOut => *property = property.filter(|value| *value != Scalar(usual)),
            Self::IsNamed => *property = property.or(Some(Scalar(usual))),
        }
    }
}

pub(super) fn declaration(
    queues: &[QueueDeclaration],
    topics: &[TopicDeclaration],
) -> Result<Declaration, (String, String)> {
    let topics = topics.iter().enumerate().map(|(index, topic)| {
        let at = |(place, detail)| (format!("topics[{index}].{place}"), detail);
        topic.declared().map_err(at)
    });
    Ok(Declaration {
        queues: queues.iter().map(QueueDeclaration::declared).collect(),
        topics: topics.collect::<Result<_, _>>()?,
        ..Declaration::default()
    })
}

/// A property that is named.
pub(super) fn bare<T>(property: Option<Scalar<T>>) -> Option<T> {
    property.map(|Scalar(value)| value)
}

/// A text that is named; an empty one takes the value away.
pub(super) fn text(property: &Option<Scalar<String>>) -> Option<Box<str>> {
    let text = property.as_ref().map(|Scalar(text)| text.as_str());
    text.filter(|text| !text.is_empty()).map(Box::from)
}

/// The texts that are named and empty.
pub(super) fn cleared(
    forward_to: &Option<Scalar<String>>,
    forward_dead_lettered_messages_to: &Option<Scalar<String>>,
    user_metadata: &Option<Scalar<String>>,
) -> Cleared {
    let is_cleared = |property: &Option<Scalar<String>>| {
        property.as_ref().is_some_and(|Scalar(text)| text.is_empty())
    };
    Cleared {
        forward_to: is_cleared(forward_to),
        forward_dead_lettered_messages_to: is_cleared(forward_dead_lettered_messages_to),
        user_metadata: is_cleared(user_metadata),
    }
}

/// A property as it is.
#[expect(clippy::unnecessary_wraps, reason = "declared properties may be left out")]
pub(super) const fn some<T: Copy>(value: T) -> Option<Scalar<T>> {
    Some(Scalar(value))
}

/// A text as it is; left out if there is none.
pub(super) fn some_text(text: &Option<Box<str>>) -> Option<Scalar<String>> {
    text.as_deref().map(|text| Scalar(text.to_owned()))
}
