//! JSON forms of entities, driven by the table of their properties: the properties in a request,
//! and the view of an entity in an answer. The transports and the command line use them.

use std::fmt;
use std::marker::PhantomData;

use peeklock_core::command::{Described, DescribedSubscription, DescribedTopic};
use peeklock_core::description::{
    Cleared, Description, EntityStatus, Facts, Field, FieldKind, FieldValue, QueueDescription,
    SessionRetryOrder, SubscriptionDescription, TopicDescription,
};
use peeklock_core::error::Rejection;
use peeklock_core::limits::Limits;
use peeklock_core::time::TimeSpan;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::retry::RetryPolicyForm;
use crate::text::Span;

/// Properties of a queue in a request.
pub type QueueProperties = Properties<QueueDescription>;
/// Properties of a topic in a request.
pub type TopicProperties = Properties<TopicDescription>;
/// Properties of a subscription in a request.
pub type SubscriptionProperties = Properties<SubscriptionDescription>;
/// View of a queue.
pub type QueueView = View<QueueDescription>;
/// View of a topic.
pub type TopicView = View<TopicDescription>;
/// View of a subscription.
pub type SubscriptionView = View<SubscriptionDescription>;

/// A kind of entity in JSON: the parts that are not in its table of properties.
pub trait EntityForm: Description {
    /// Description and runtime part together.
    type Described;
    /// Counts and instants.
    type Runtime: Clone + PartialEq + fmt::Debug + Serialize + DeserializeOwned;
    /// Names of the schemas of [`Properties`] and [`View`].
    const SCHEMAS: [&'static str; 2];
    /// The names of an entity in its view, with their documentation, in the order of `Description::names`.
    const NAMES: &'static [(&'static str, &'static str)];

    /// Splits a described entity into its two parts.
    fn split(described: Self::Described) -> (Self, Self::Runtime);

    /// Joins the two parts.
    fn join(description: Self, runtime: Self::Runtime) -> Self::Described;
}

/// Properties of an entity to be created or updated. On create an absent property has its default.
/// On update it keeps its value, and `null` clears a property that may be without a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties<D> {
    /// The value of each named field, in the order of the fields.
    named: Vec<Option<Raw>>,
    entity: PhantomData<D>,
}

/// A value as written; texts are parsed when the request is carried out.
#[derive(Clone, Debug, PartialEq)]
enum Raw {
    Null,
    Flag(bool),
    Number(u64),
    Text(String),
    Retry(RetryPolicyForm),
}

impl<D: Description> Default for Properties<D> {
    fn default() -> Self {
        Self { named: vec![None; D::FIELDS.len()], entity: PhantomData }
    }
}

impl<D: Description> Properties<D> {
    fn pairs(&self) -> impl Iterator<Item = (&'static Field<D>, &Raw)> {
        let pairs = D::FIELDS.iter().zip(&self.named);
        pairs.filter_map(|(field, raw)| Some((field, raw.as_ref()?)))
    }

    fn raw_of(&self, name: &str) -> Option<&Raw> {
        self.pairs().find(|(field, _)| field.name == name).map(|(_, raw)| raw)
    }

    /// Returns the properties that the request sets to `null`.
    #[must_use]
    pub fn cleared(&self) -> Cleared {
        Cleared::of(|name| self.raw_of(name) == Some(&Raw::Null))
    }

    /// Returns the requested destinations of messages and of dead-lettered messages, if named.
    #[must_use]
    pub fn destinations(&self) -> [Option<&str>; 2] {
        ["forward_to", "forward_dead_lettered_messages_to"].map(|name| match self.raw_of(name)? {
            Raw::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Converts to the broker's update.
    ///
    /// # Errors
    /// Returns `ArgumentError` for an unknown status and for an invalid duration.
    pub fn to_update(&self) -> Result<D::Update, Rejection> {
        let mut update = D::Update::default();
        for (field, raw) in self.pairs() {
            field.put(&mut update, raw.value(field)?);
        }
        Ok(update)
    }

    /// Converts to a replacing update: text properties that are not named are cleared.
    #[must_use]
    pub fn replacing(self) -> Self {
        self.clearing(Cleared::ALL)
    }

    /// Sets the properties in `cleared` to `null` unless they have a value.
    #[must_use]
    pub fn clearing(mut self, cleared: Cleared) -> Self {
        for (field, named) in D::FIELDS.iter().zip(&mut self.named) {
            if cleared.contains(field.name) {
                named.get_or_insert(Raw::Null);
            }
        }
        self
    }

    /// Returns the properties that an update names.
    pub(crate) fn of(update: &D::Update) -> Self {
        let raw = |field: &Field<D>| {
            Some(match field.named(update)? {
                FieldValue::Flag(flag) => Raw::Flag(flag),
                FieldValue::Count(count) => Raw::Number(count.into()),
                FieldValue::Size(size) => Raw::Number(size),
                FieldValue::Span(span) => Raw::Text(span.to_string()),
                FieldValue::Status(status) => Raw::Text(status.name().to_owned()),
                FieldValue::Order(order) => Raw::Text(order.name().to_owned()),
                FieldValue::Text(text) => text.map_or(Raw::Null, |text| Raw::Text(text.into())),
                FieldValue::Retry(policy) => policy.map_or(Raw::Null, |it| Raw::Retry(it.into())),
            })
        };
        Self { named: D::FIELDS.iter().map(raw).collect(), entity: PhantomData }
    }
}

impl Raw {
    fn value(&self, facts: &Facts) -> Result<FieldValue, Rejection> {
        let name = facts.json;
        Ok(match (facts.kind, self) {
            (FieldKind::Flag, Self::Flag(flag)) => FieldValue::Flag(*flag),
            (FieldKind::Count, Self::Number(count)) => {
                FieldValue::Count(u32::try_from(*count).unwrap_or(u32::MAX))
            }
            (_, Self::Number(size)) => FieldValue::Size(*size),
            (FieldKind::Span, Self::Text(text)) => FieldValue::Span(span(name, text)?),
            (FieldKind::Status, Self::Text(text)) => {
                let status = EntityStatus::parse(text);
                let refused = || Rejection::argument(format!("{name} must be {}", facts.doc));
                FieldValue::Status(status.ok_or_else(refused)?)
            }
            (FieldKind::Order, Self::Text(text)) => {
                let order = SessionRetryOrder::parse(text);
                let refused = || Rejection::argument(format!("{name} must be hold or pass"));
                FieldValue::Order(order.ok_or_else(refused)?)
            }
            (FieldKind::Retry, Self::Retry(form)) => FieldValue::Retry(Some(form.read()?)),
            (FieldKind::Retry, _) => FieldValue::Retry(None),
            (_, Self::Text(text)) => FieldValue::Text(Some(text.as_str().into())),
            _ => FieldValue::Text(None),
        })
    }

    /// Reads a value. `null` counts as absent for a property that always has a value.
    fn read<'de, A: MapAccess<'de>>(
        kind: FieldKind,
        map: &mut A,
    ) -> Result<Option<Self>, A::Error> {
        Ok(match kind {
            FieldKind::Flag => map.next_value::<Option<bool>>()?.map(Self::Flag),
            FieldKind::Count => {
                map.next_value::<Option<u32>>()?.map(|count| Self::Number(count.into()))
            }
            FieldKind::Megabytes | FieldKind::Kilobytes => {
                map.next_value::<Option<u64>>()?.map(Self::Number)
            }
            FieldKind::Span | FieldKind::Status | FieldKind::Order => {
                map.next_value::<Option<String>>()?.map(Self::Text)
            }
            FieldKind::Destination | FieldKind::Text => {
                Some(map.next_value::<Option<String>>()?.map_or(Self::Null, Self::Text))
            }
            FieldKind::Retry => {
                Some(map.next_value::<Option<RetryPolicyForm>>()?.map_or(Self::Null, Self::Retry))
            }
        })
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Retry(form) => form.serialize(serializer),
        }
    }
}

impl<D: Description> Serialize for Properties<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, raw) in self.pairs() {
            map.serialize_entry(field.json, raw)?;
        }
        map.end()
    }
}

impl<'de, D: EntityForm> Deserialize<'de> for Properties<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        struct PropertiesVisitor<D>(PhantomData<D>);

        impl<'de, D: EntityForm> Visitor<'de> for PropertiesVisitor<D> {
            type Value = Properties<D>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "struct {}", D::SCHEMAS[0])
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties<D>, A::Error> {
                let mut properties = Properties::default();
                let mut seen = vec![false; D::FIELDS.len()];
                while let Some(name) = map.next_key::<String>()? {
                    let fields = D::FIELDS.iter().zip(&mut properties.named).zip(&mut seen);
                    let found = fields.into_iter().find(|((field, _), _)| field.json == name);
                    let Some(((field, named), is_seen)) = found else {
                        return Err(unknown_field::<D, _>(&name));
                    };
                    if std::mem::replace(is_seen, true) {
                        return Err(A::Error::duplicate_field(field.json));
                    }
                    *named = Raw::read(field.kind, &mut map)?;
                }
                Ok(properties)
            }
        }

        deserializer.deserialize_map(PropertiesVisitor(PhantomData))
    }
}

fn unknown_field<D: Description, E: Error>(name: &str) -> E {
    let known: Vec<String> = D::FIELDS.iter().map(|field| format!("`{}`", field.json)).collect();
    E::custom(format_args!("unknown field `{name}`, expected one of {}", known.join(", ")))
}

/// An entity: its properties with their effective values, and its runtime part.
#[derive(Clone, Debug, PartialEq)]
pub struct View<D: EntityForm> {
    description: D,
    runtime: D::Runtime,
}

impl<D: EntityForm> View<D> {
    /// Returns the description, which has no unknown properties.
    #[must_use]
    pub const fn description(&self) -> &D {
        &self.description
    }

    fn of(described: D::Described) -> Self {
        let (mut description, runtime) = D::split(described);
        description.set_extensions(None);
        Self { description, runtime }
    }
}

/// A value in a view.
struct Shown(FieldValue);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            FieldValue::Flag(flag) => serializer.serialize_bool(*flag),
            FieldValue::Count(count) => serializer.serialize_u32(*count),
            FieldValue::Size(size) => serializer.serialize_u64(*size),
            FieldValue::Span(span) => Span(*span).serialize(serializer),
            FieldValue::Status(status) => serializer.serialize_str(status.name()),
            FieldValue::Order(order) => serializer.serialize_str(order.name()),
            FieldValue::Text(text) => text.serialize(serializer),
            FieldValue::Retry(policy) => policy.map(RetryPolicyForm::from).serialize(serializer),
        }
    }
}

impl<D: EntityForm> Serialize for View<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (description, limits) = (&self.description, Limits::default());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("path", &description.path())?;
        for ((name, _), value) in D::NAMES.iter().zip(description.names()) {
            if *name != "path" {
                map.serialize_entry(name, value)?;
            }
        }
        for field in D::FIELDS {
            let value = field.get(description);
            if field.is_in_azure || value != (field.default)(&limits) {
                map.serialize_entry(field.json, &Shown(value))?;
            }
        }
        map.serialize_entry("runtime", &self.runtime)?;
        map.end()
    }
}

/// Reads a value in a view. A client reads an unknown status as `Unknown`.
fn read_shown<'de, A: MapAccess<'de>>(
    kind: FieldKind,
    map: &mut A,
) -> Result<FieldValue, A::Error> {
    Ok(match kind {
        FieldKind::Flag => FieldValue::Flag(map.next_value()?),
        FieldKind::Count => FieldValue::Count(map.next_value()?),
        FieldKind::Megabytes | FieldKind::Kilobytes => FieldValue::Size(map.next_value()?),
        FieldKind::Span => FieldValue::Span(map.next_value::<Span>()?.0),
        FieldKind::Status => {
            let status = EntityStatus::parse(&map.next_value::<String>()?);
            FieldValue::Status(status.unwrap_or(EntityStatus::Unknown))
        }
        FieldKind::Order => {
            let name = map.next_value::<Option<String>>()?;
            let order = name.and_then(|name| SessionRetryOrder::parse(&name));
            FieldValue::Order(order.unwrap_or_default())
        }
        FieldKind::Destination | FieldKind::Text => FieldValue::Text(map.next_value()?),
        FieldKind::Retry => {
            let form = map.next_value::<Option<RetryPolicyForm>>()?;
            FieldValue::Retry(form.and_then(|form| form.read().ok()))
        }
    })
}

impl<'de, D: EntityForm> Deserialize<'de> for View<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        struct ViewVisitor<D>(PhantomData<D>);

        impl<'de, D: EntityForm> Visitor<'de> for ViewVisitor<D> {
            type Value = View<D>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "struct {}", D::SCHEMAS[1])
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<View<D>, A::Error> {
                let mut names: Vec<Option<Box<str>>> = vec![None; D::NAMES.len()];
                let mut values: Vec<Option<FieldValue>> = vec![None; D::FIELDS.len()];
                let mut runtime = None;
                while let Some(key) = map.next_key::<String>()? {
                    let name = D::NAMES.iter().zip(&mut names).find(|((name, _), _)| *name == key);
                    if let Some((_, value)) = name {
                        *value = Some(map.next_value()?);
                        continue;
                    }
                    let field = D::FIELDS.iter().zip(&mut values).find(|(it, _)| it.json == key);
                    match (field, key.as_str()) {
                        (Some((field, value)), _) => {
                            *value = Some(read_shown(field.kind, &mut map)?);
                        }
                        (None, "runtime") => runtime = Some(map.next_value()?),
                        // A newer broker may have more properties.
                        (None, _) => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let mut named = D::NAMES.iter().zip(names);
                let mut description = D::named_by(|| {
                    let Some(((name, _), value)) = named.next() else { return Ok("".into()) };
                    value.ok_or_else(|| A::Error::missing_field(name))
                })?;
                for (field, value) in D::FIELDS.iter().zip(values) {
                    match value {
                        Some(value) => field.set(&mut description, value),
                        None if !field.is_in_azure || field.kind.is_nullable() => {}
                        None => return Err(A::Error::missing_field(field.json)),
                    }
                }
                let runtime = runtime.ok_or_else(|| A::Error::missing_field("runtime"))?;
                Ok(View { description, runtime })
            }
        }

        deserializer.deserialize_map(ViewVisitor(PhantomData))
    }
}

macro_rules! conversions {
    ($($description:ident: $described:ident,)*) => {$(
        impl From<$described> for View<$description> {
            fn from(described: $described) -> Self {
                Self::of(described)
            }
        }

        impl From<View<$description>> for $described {
            fn from(view: View<$description>) -> Self {
                $description::join(view.description, view.runtime)
            }
        }

        impl From<&<$description as Description>::Update> for Properties<$description> {
            fn from(update: &<$description as Description>::Update) -> Self {
                Self::of(update)
            }
        }
    )*};
}

conversions! {
    QueueDescription: Described,
    TopicDescription: DescribedTopic,
    SubscriptionDescription: DescribedSubscription,
}

/// Parses a duration in a request; `name` is the property in the error text.
pub(crate) fn span(name: &str, text: &str) -> Result<TimeSpan, Rejection> {
    TimeSpan::parse(text).ok_or_else(|| {
        Rejection::argument(format!("{name} must be an ISO 8601 duration such as PT1M"))
    })
}

#[cfg(feature = "schema")]
mod schema {
    use std::borrow::Cow;

    use peeklock_core::description::{Facts, FieldKind};
    use utoipa::openapi::schema::{
        AdditionalProperties, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema,
        SchemaFormat, SchemaType, Type,
    };
    use utoipa::openapi::{Ref, RefOr};
    use utoipa::{PartialSchema, ToSchema};

    use super::{EntityForm, Properties, RetryPolicyForm, View};

    type Schemas = Vec<(String, RefOr<Schema>)>;

    /// The schema of a property; with `may_be_null` it may be absent or `null`.
    fn of_field(facts: &Facts, may_be_null: bool, about: String) -> RefOr<Schema> {
        let null = may_be_null.then_some(serde_json::Value::Null);
        if facts.kind == FieldKind::Retry {
            let mut reference = Ref::from_schema_name("RetryPolicyForm");
            reference.description = about;
            let null_schema = Object::with_type(Type::Null);
            let either = OneOfBuilder::new().item(reference).item(null_schema).default(null);
            return Schema::from(either.build()).into();
        }
        let (kind, format) = match facts.kind {
            FieldKind::Flag => (Type::Boolean, None),
            FieldKind::Count => (Type::Integer, Some(KnownFormat::Int32)),
            FieldKind::Megabytes | FieldKind::Kilobytes => {
                (Type::Integer, Some(KnownFormat::Int64))
            }
            _ => (Type::String, None),
        };
        let is_nullable = may_be_null || facts.kind.is_nullable();
        let schema = ObjectBuilder::new()
            .schema_type(match is_nullable {
                true => SchemaType::Array(vec![kind, Type::Null]),
                false => SchemaType::Type(kind),
            })
            .minimum(format.as_ref().map(|_| 0_u64))
            .format(format.map(SchemaFormat::KnownFormat))
            .default(null)
            .description(Some(about).filter(|about| !about.is_empty()));
        Schema::from(schema.build()).into()
    }

    fn about(facts: &Facts) -> String {
        let form = match facts.kind {
            FieldKind::Span => "; an ISO 8601 duration",
            FieldKind::Order => ": hold or pass",
            _ => "",
        };
        let fixed = if facts.is_fixed { "; fixed at creation" } else { "" };
        format!("{}{form}{fixed}.", facts.doc)
    }

    impl<D: EntityForm> PartialSchema for Properties<D> {
        fn schema() -> RefOr<Schema> {
            let about_all = format!(
                "Properties of a {} to be created or updated. On create an absent property has its default; on update it \
                 keeps its value, and `null` clears a property that can be without a value.",
                D::KIND.noun()
            );
            let mut all = ObjectBuilder::new()
                .description(Some(about_all))
                .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
            for field in D::FIELDS {
                all = all.property(field.json, of_field(field, true, about(field)));
            }
            Schema::from(all.build()).into()
        }
    }

    impl<D: EntityForm> ToSchema for Properties<D> {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed(D::SCHEMAS[0])
        }

        fn schemas(schemas: &mut Schemas) {
            schemas.push((RetryPolicyForm::name().into_owned(), RetryPolicyForm::schema()));
        }
    }

    impl<D: EntityForm<Runtime: ToSchema>> PartialSchema for View<D> {
        fn schema() -> RefOr<Schema> {
            let about_all = format!(
                "A {}: its properties with their effective values, and its runtime part.",
                D::KIND.noun()
            );
            let text = |about: &str| {
                ObjectBuilder::new().schema_type(Type::String).description(Some(about))
            };
            let mut all = ObjectBuilder::new().description(Some(about_all));
            if !D::NAMES.iter().any(|(name, _)| *name == "path") {
                let about = "Path to receive from: `<topic>/Subscriptions/<name>`.";
                all = all.property("path", text(about)).required("path");
            }
            for (name, about) in D::NAMES {
                all = all.property(*name, text(about)).required(*name);
            }
            for field in D::FIELDS {
                let about = match (field.is_in_azure, field.kind) {
                    (false, FieldKind::Retry) | (true, _) => String::new(),
                    (false, _) => "Left out if it has its default.".to_owned(),
                };
                all = all.property(field.json, of_field(field, false, about));
                if field.is_in_azure && !field.kind.is_nullable() {
                    all = all.required(field.json);
                }
            }
            let runtime = Ref::from_schema_name(D::Runtime::name());
            Schema::from(all.property("runtime", runtime).required("runtime").build()).into()
        }
    }

    impl<D: EntityForm<Runtime: ToSchema>> ToSchema for View<D> {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed(D::SCHEMAS[1])
        }

        fn schemas(schemas: &mut Schemas) {
            schemas.push((RetryPolicyForm::name().into_owned(), RetryPolicyForm::schema()));
            schemas.push((D::Runtime::name().into_owned(), D::Runtime::schema()));
        }
    }
}
