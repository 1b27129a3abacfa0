//! Declarations `[[queues]]`, `[[topics]]` and `[[topics.subscriptions]]`: the desired form of
//! entities, read and written by the table of their properties (DEC-02).

use std::fmt;
use std::marker::PhantomData;

use peeklock::declaration::{Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic};
use peeklock::description::{
    Cleared, Description, Field, FieldKind, FieldValue, QueueDescription, SubscriptionDescription,
    TopicDescription,
};
use peeklock::limits::Limits;
use peeklock::rule::RuleDescription;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::retry::RetryDeclaration;
use super::rule::RuleDeclaration;
use super::text::{Scalar, ToScalar};

/// A queue with the properties that are named.
pub type QueueDeclaration = EntityDeclaration<QueueDescription, ()>;
/// A topic with the properties that are named, and its subscriptions.
pub type TopicDeclaration = EntityDeclaration<TopicDescription, Vec<SubscriptionDeclaration>>;
/// A subscription with the properties that are named, and the list of all its rules; without a list it has `$Default` at
/// creation (DEC-03).
pub type SubscriptionDeclaration =
    EntityDeclaration<SubscriptionDescription, Option<Vec<RuleDeclaration>>>;

/// Treatment of a property whose default is the same for all brokers.
#[derive(Clone, Copy)]
pub(super) enum Usual {
    /// A default is not named.
    IsLeftOut,
    /// A default is named if no other value is.
    IsNamed,
}

/// An entity, as a file declares it.
#[derive(Clone, Debug)]
pub struct EntityDeclaration<D, B> {
    /// The path of a queue or topic; the name of a subscription within its topic.
    pub name: String,
    /// The value of each field that is named, in the order of the fields. An empty text removes a value.
    named: Vec<Option<FieldValue>>,
    below: B,
    entity: PhantomData<D>,
}

/// The list below an entity in a file.
pub trait Below: Default {
    /// The key of the list, if there is one.
    const KEY: Option<&'static str>;

    /// Reads the list.
    ///
    /// # Errors
    /// For values that are not such a list.
    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error>;

    /// Writes the list, unless it is left out.
    ///
    /// # Errors
    /// For values that cannot be written.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

impl Below for () {
    const KEY: Option<&'static str> = None;

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error> {
        map.next_value()
    }

    fn write<M: SerializeMap>(&self, _: &mut M) -> Result<(), M::Error> {
        Ok(())
    }
}

impl Below for Vec<SubscriptionDeclaration> {
    const KEY: Option<&'static str> = Some("subscriptions");

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error> {
        map.next_value()
    }

    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if self.is_empty() { Ok(()) } else { map.serialize_entry("subscriptions", self) }
    }
}

impl Below for Option<Vec<RuleDeclaration>> {
    const KEY: Option<&'static str> = Some("rules");

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error> {
        map.next_value()
    }

    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.as_ref().map_or(Ok(()), |rules| map.serialize_entry("rules", rules))
    }
}

impl<D: Description, B> EntityDeclaration<D, B> {
    fn pairs(&self) -> impl Iterator<Item = (&'static Field<D>, &FieldValue)> {
        let pairs = D::FIELDS.iter().zip(&self.named);
        pairs.filter_map(|(field, value)| Some((field, value.as_ref()?)))
    }

    fn properties(&self) -> (D::Update, Cleared) {
        let mut properties = D::Update::default();
        for (field, value) in self.pairs() {
            field.put(&mut properties, value.clone());
        }
        let cleared = Cleared::of(|name| {
            let cleared = FieldValue::Text(None);
            self.pairs().any(|(field, value)| field.name == name && *value == cleared)
        });
        (properties, cleared)
    }

    /// Leaves out the properties that have the same default for all brokers, or names them.
    fn with_usual_fields(&mut self, usual: Usual) {
        let is_usual = |field: &Field<D>| {
            matches!(field.kind, FieldKind::Flag | FieldKind::Status | FieldKind::Order)
        };
        for (field, value) in D::FIELDS.iter().zip(&mut self.named) {
            let default = Some((field.default)(&Limits::default()));
            match usual {
                _ if !is_usual(field) => {}
                Usual::IsLeftOut if *value == default => *value = None,
                Usual::IsNamed if value.is_none() => *value = default,
                Usual::IsLeftOut | Usual::IsNamed => {}
            }
        }
    }

    fn describe(name: &str, description: &D, below: B) -> Self {
        let value = |field: &Field<D>| match field.get(description) {
            FieldValue::Text(None) | FieldValue::Retry(None) => None,
            value => Some(value),
        };
        let named = D::FIELDS.iter().map(value).collect();
        Self { name: name.to_owned(), named, below, entity: PhantomData }
    }
}

impl QueueDeclaration {
    /// The queue as the broker takes it.
    pub fn declared(&self) -> DeclaredQueue {
        let (properties, cleared) = self.properties();
        DeclaredQueue { path: self.name.as_str().into(), properties, cleared }
    }

    pub(super) fn with_usual(&mut self, usual: Usual) {
        self.with_usual_fields(usual);
    }
}

impl From<&QueueDescription> for QueueDeclaration {
    fn from(queue: &QueueDescription) -> Self {
        Self::describe(&queue.path, queue, ())
    }
}

impl TopicDeclaration {
    /// The topic as the broker takes it.
    ///
    /// # Errors
    /// The place of a rule in the topic, and the reason why it is refused.
    pub fn declared(&self) -> Result<DeclaredTopic, (String, String)> {
        let (properties, cleared) = self.properties();
        let below = self.below.iter().enumerate().map(|(index, subscription)| {
            let at = |(place, detail)| (format!("subscriptions[{index}].{place}"), detail);
            subscription.declared().map_err(at)
        });
        let subscriptions = below.collect::<Result<_, _>>()?;
        Ok(DeclaredTopic { path: self.name.as_str().into(), properties, cleared, subscriptions })
    }

    pub(super) fn with_usual(&mut self, usual: Usual) {
        self.with_usual_fields(usual);
        for subscription in &mut self.below {
            subscription.with_usual_fields(usual);
        }
    }

    /// A topic as it is, with these subscriptions.
    pub fn of(topic: &TopicDescription, subscriptions: Vec<SubscriptionDeclaration>) -> Self {
        Self::describe(&topic.path, topic, subscriptions)
    }
}

impl SubscriptionDeclaration {
    fn declared(&self) -> Result<DeclaredSubscription, (String, String)> {
        let (properties, cleared) = self.properties();
        let rules = self.below.as_ref().map(|rules| {
            let described = rules.iter().enumerate().map(|(index, rule)| {
                rule.described().map_err(|detail| (format!("rules[{index}]"), detail))
            });
            described.collect::<Result<Vec<_>, _>>()
        });
        Ok(DeclaredSubscription {
            name: self.name.as_str().into(),
            properties,
            cleared,
            rules: rules.transpose()?,
            ..DeclaredSubscription::default()
        })
    }

    /// A subscription as it is, with its rules.
    pub fn of(subscription: &SubscriptionDescription, rules: &[RuleDescription]) -> Self {
        let rules = rules.iter().map(Into::into).collect();
        Self::describe(&subscription.name, subscription, Some(rules))
    }

    /// A subscription as it is, without a list of rules and without properties that have their
    /// usual value.
    pub(super) fn without_rules(subscription: &SubscriptionDescription) -> Self {
        let mut declared = Self::describe(&subscription.name, subscription, None);
        declared.with_usual_fields(Usual::IsLeftOut);
        declared
    }
}

/// The declaration of these entities.
///
/// # Errors
/// The key of a rule, and the reason why it is refused.
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

/// A key of an entity. It is judged while it is read, so that errors have its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Name,
    Field(usize),
    Below,
}

struct KeyOf<D, B>(PhantomData<(D, B)>);

impl<'de, D: Description, B: Below> DeserializeSeed<'de> for KeyOf<D, B> {
    type Value = Key;

    fn deserialize<S: Deserializer<'de>>(self, deserializer: S) -> Result<Key, S::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<D: Description, B: Below> Visitor<'_> for KeyOf<D, B> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
        let is_field = |field: &Field<D>| field.name == key || field.aliases.contains(&key);
        if key == "name" {
            return Ok(Key::Name);
        }
        if Some(key) == B::KEY {
            return Ok(Key::Below);
        }
        if let Some(index) = D::FIELDS.iter().position(is_field) {
            return Ok(Key::Field(index));
        }
        let fields = D::FIELDS
            .iter()
            .flat_map(|field| std::iter::once(field.name).chain(field.aliases.iter().copied()));
        let known = std::iter::once("name").chain(fields).chain(B::KEY);
        let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
        Err(E::custom(format_args!("unknown field `{key}`, expected one of {}", known.join(", "))))
    }
}

fn scalar<'de, T, A>(
    map: &mut A,
    value: fn(T) -> FieldValue,
) -> Result<Option<FieldValue>, A::Error>
where
    A: MapAccess<'de>,
    Scalar<T>: Deserialize<'de>,
{
    let scalar: Option<Scalar<T>> = map.next_value()?;
    Ok(scalar.map(|Scalar(it)| value(it)))
}

fn read_value<'de, A: MapAccess<'de>>(
    kind: FieldKind,
    map: &mut A,
) -> Result<Option<FieldValue>, A::Error> {
    match kind {
        FieldKind::Flag => scalar(map, FieldValue::Flag),
        FieldKind::Count => scalar(map, FieldValue::Count),
        FieldKind::Megabytes | FieldKind::Kilobytes => scalar(map, FieldValue::Size),
        FieldKind::Span => scalar(map, FieldValue::Span),
        FieldKind::Status => scalar(map, FieldValue::Status),
        FieldKind::Order => scalar(map, FieldValue::Order),
        FieldKind::Destination | FieldKind::Text => scalar(map, |text: String| {
            FieldValue::Text(Some(text).filter(|text| !text.is_empty()).map(Into::into))
        }),
        FieldKind::Retry => {
            let policy: Option<RetryDeclaration> = map.next_value()?;
            Ok(policy.map(|policy| FieldValue::Retry(policy.policy())))
        }
    }
}

impl<'de, D: Description, B: Below> Deserialize<'de> for EntityDeclaration<D, B> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        deserializer.deserialize_map(EntityVisitor(PhantomData))
    }
}

struct EntityVisitor<D, B>(PhantomData<(D, B)>);

impl<'de, D: Description, B: Below> Visitor<'de> for EntityVisitor<D, B> {
    type Value = EntityDeclaration<D, B>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table with the properties of a {}", D::KIND)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut name, mut below, mut named) = (None, B::default(), vec![None; D::FIELDS.len()]);
        let mut seen = Vec::new();
        while let Some(key) = map.next_key_seed(KeyOf::<D, B>(PhantomData))? {
            if seen.contains(&key) {
                let twice = match key {
                    Key::Name => Some("name"),
                    Key::Field(index) => D::FIELDS.get(index).map(|field| field.name),
                    Key::Below => B::KEY,
                };
                return Err(A::Error::duplicate_field(twice.unwrap_or_default()));
            }
            seen.push(key);
            match key {
                Key::Name => name = Some(map.next_value()?),
                Key::Below => below = B::read(&mut map)?,
                Key::Field(index) => {
                    if let (Some(field), Some(value)) = (D::FIELDS.get(index), named.get_mut(index))
                    {
                        *value = read_value(field.kind, &mut map)?;
                    }
                }
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        Ok(EntityDeclaration { name, named, below, entity: PhantomData })
    }
}

impl<D: Description, B: Below> Serialize for EntityDeclaration<D, B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        for (field, value) in self.pairs() {
            let scalar = match value {
                FieldValue::Flag(flag) => flag.to_scalar(),
                FieldValue::Count(count) => count.to_scalar(),
                FieldValue::Size(size) => size.to_scalar(),
                FieldValue::Span(span) => span.to_scalar(),
                FieldValue::Status(status) => status.to_scalar(),
                FieldValue::Order(order) => order.to_scalar(),
                FieldValue::Text(text) => text.as_deref().unwrap_or_default().into(),
                FieldValue::Retry(_) => continue,
            };
            map.serialize_entry(field.name, &scalar)?;
        }
        // Tables follow all values.
        for (field, value) in self.pairs() {
            if let FieldValue::Retry(policy) = value {
                map.serialize_entry(field.name, &RetryDeclaration::from(*policy))?;
            }
        }
        self.below.write(&mut map)?;
        map.end()
    }
}
