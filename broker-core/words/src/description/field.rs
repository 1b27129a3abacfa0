//! Elements of a table of properties: kinds, values, and the macro that generates an entity from
//! its list of fields. Only `schema.rs` calls the macro.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use super::{EntityKind, EntityStatus, RetryPolicy, SessionRetryOrder};
use crate::limits::Limits;
use crate::time::TimeSpan;

/// Kind of a property: its type, its unit, and so its form on every interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// True or false.
    Flag,
    /// Whole number without a unit.
    Count,
    /// Size in MiB.
    Megabytes,
    /// Size in KiB.
    Kilobytes,
    /// Duration.
    Span,
    /// Status of an entity.
    Status,
    /// Entity or URL as a destination, or none.
    Destination,
    /// Text, or none.
    Text,
    /// Retry policy, or none.
    Retry,
    /// Order of a session while a message is delayed.
    Order,
}

impl FieldKind {
    /// Whether a property of this kind can be without a value.
    #[must_use]
    pub const fn is_nullable(self) -> bool {
        matches!(self, Self::Destination | Self::Text | Self::Retry)
    }

    /// Whether a property of this kind is a text that an update without it removes (ENT-17).
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Destination | Self::Text)
    }
}

/// Value of a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// Value of a `Flag`.
    Flag(bool),
    /// Value of a `Count`.
    Count(u32),
    /// Value of a `Megabytes` or `Kilobytes`.
    Size(u64),
    /// Value of a `Span`.
    Span(TimeSpan),
    /// Value of a `Status`.
    Status(EntityStatus),
    /// Value of a `Destination` or `Text`.
    Text(Option<Box<str>>),
    /// Value of a `Retry`.
    Retry(Option<RetryPolicy>),
    /// Value of an `Order`.
    Order(SessionRetryOrder),
}

/// The value in errors.
impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::Count(value) => value.fmt(f),
            Self::Size(value) => value.fmt(f),
            Self::Span(value) => value.fmt(f),
            Self::Status(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value.as_deref().unwrap_or("none")),
            Self::Retry(value) => f.write_str(value.map_or("none", |policy| policy.kind.name())),
            Self::Order(value) => f.write_str(value.name()),
        }
    }
}

/// Type of a property.
pub(super) trait FieldType: Sized {
    fn value(&self) -> FieldValue;
    fn of(value: FieldValue) -> Option<Self>;
}

macro_rules! field_types {
    ($($variant:ident: $type:ty,)*) => {$(
        impl FieldType for $type {
            fn value(&self) -> FieldValue {
                FieldValue::$variant(self.clone())
            }

            fn of(value: FieldValue) -> Option<Self> {
                match value {
                    FieldValue::$variant(value) => Some(value),
                    _ => None,
                }
            }
        }
    )*};
}

field_types! {
    Flag: bool,
    Count: u32,
    Size: u64,
    Span: TimeSpan,
    Status: EntityStatus,
    Text: Option<Box<str>>,
    Retry: Option<RetryPolicy>,
    Order: SessionRetryOrder,
}

/// Facts about a property, the same for all entities that have it.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Name in snake case, in configuration files and plans: `lock_duration`.
    pub name: &'static str,
    /// Name in Azure, in errors, in Atom and in the emulator's file: `LockDuration`.
    pub title: &'static str,
    /// Name in JSON: `lockDuration`.
    pub json: &'static str,
    /// Flag of the command line, without its dashes: `lock-duration`.
    pub flag: &'static str,
    /// Short name of the flag, if it has one.
    pub flag_alias: Option<&'static str>,
    /// Kind, which determines the type.
    pub kind: FieldKind,
    /// Number in records. It never changes, and no other property ever gets it.
    pub tag: u8,
    /// Position among the flags and in the output of the command line, in steps of ten, so that a
    /// new property fits between two others.
    pub place: u8,
    /// Name in the output of the command line.
    pub label: &'static str,
    /// One line of documentation, without a full stop.
    pub doc: &'static str,
    /// Example of a value on the command line; may be empty.
    pub example: &'static str,
    /// Further names in configuration files.
    pub aliases: &'static [&'static str],
    /// Name in Atom, if it differs from `title`.
    pub element: Option<&'static str>,
    /// Default, which may depend on the limits.
    pub default: fn(&Limits) -> FieldValue,
    /// Minimum and maximum; for a text, of its length in characters.
    pub range: Option<fn(&Limits) -> [FieldValue; 2]>,
    /// Whether it cannot be changed after creation (ENT-16).
    pub is_fixed: bool,
    /// Whether Azure has the property. If not, Atom does not have it, an update over Atom keeps its
    /// value, and JSON omits it while it has its default: older clients and brokers lack it.
    pub is_in_azure: bool,
    /// Whether an update over Atom that lacks the property keeps its value instead of setting the
    /// default, because some SDKs do not know the property.
    pub is_kept_if_absent: bool,
    /// Whether the tier Basic allows only the default (ENT-02).
    pub needs_standard: bool,
}

impl Facts {
    /// A flag that is off by default.
    pub(super) const fn flag(tag: u8, place: u8, label: &'static str, doc: &'static str) -> Self {
        Self::with_default(tag, place, label, doc, |_| FieldValue::Flag(false))
    }

    /// A text or destination that is absent by default.
    pub(super) const fn text(tag: u8, place: u8, label: &'static str, doc: &'static str) -> Self {
        Self::with_default(tag, place, label, doc, |_| FieldValue::Text(None))
    }

    /// A property of any kind. The list of fields fills in names and kind.
    pub(super) const fn with_default(
        tag: u8,
        place: u8,
        label: &'static str,
        doc: &'static str,
        default: fn(&Limits) -> FieldValue,
    ) -> Self {
        Self {
            name: "",
            title: "",
            json: "",
            flag: "",
            flag_alias: None,
            kind: FieldKind::Flag,
            tag,
            place,
            label,
            doc,
            example: "",
            aliases: &[],
            element: None,
            default,
            range: None,
            is_fixed: false,
            is_in_azure: true,
            is_kept_if_absent: false,
            needs_standard: false,
        }
    }

    /// The element of the property in Atom.
    #[must_use]
    pub fn element(&self) -> &'static str {
        self.element.unwrap_or(self.title)
    }
}

/// A property of a kind of entity: its facts, and access to its value.
pub struct Field<D: Description> {
    pub(super) facts: Facts,
    pub(super) get: fn(&D) -> FieldValue,
    pub(super) set: fn(&mut D, FieldValue),
    pub(super) named: fn(&D::Update) -> Option<FieldValue>,
    pub(super) put: fn(&mut D::Update, FieldValue),
}

impl<D: Description> Deref for Field<D> {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

impl<D: Description> Field<D> {
    /// The value in a description.
    #[must_use]
    pub fn get(&self, description: &D) -> FieldValue {
        (self.get)(description)
    }

    /// Sets the value in a description; a value of another kind changes nothing.
    pub fn set(&self, description: &mut D, value: FieldValue) {
        (self.set)(description, value);
    }

    /// The value in an update, if the update names the property.
    #[must_use]
    pub fn named(&self, update: &D::Update) -> Option<FieldValue> {
        (self.named)(update)
    }

    /// Names the value in an update; a value of another kind leaves the property unnamed.
    pub fn put(&self, update: &mut D::Update, value: FieldValue) {
        (self.put)(update, value);
    }
}

/// A kind of entity, as the list of its properties.
pub trait Description: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The properties in a create or update request.
    type Update: Clone + Default + PartialEq + fmt::Debug + Send + Sync + 'static;
    /// The kind.
    const KIND: EntityKind;
    /// All properties, in the order of their forms in JSON and in configuration files.
    const FIELDS: &'static [Field<Self>];

    /// The whole path (ADR-01).
    fn path(&self) -> Cow<'_, str>;

    /// The names of the entity, in the order of records.
    fn names(&self) -> Vec<&str>;

    /// An entity with defaults and the names that `next` returns, in the order of
    /// [`Description::names`].
    ///
    /// # Errors
    /// The error of `next`.
    fn named_by<E>(next: impl FnMut() -> Result<Box<str>, E>) -> Result<Self, E>;

    /// Properties from administration clients that this broker does not know (HTP-17).
    fn extensions(&self) -> Option<&str>;

    /// Replaces the unknown properties.
    fn set_extensions(&mut self, extensions: Option<Box<str>>);

    /// Sets the unknown properties in an update.
    fn put_extensions(update: &mut Self::Update, extensions: Option<Box<str>>);

    /// The description after an update, even if it is not valid (ENT-17).
    #[must_use]
    fn over(update: Self::Update, base: &Self) -> Self;

    /// Sets all properties that `other` has too to the values of `other`.
    fn take<D: Description>(&mut self, other: &D) {
        for theirs in D::FIELDS {
            if let Some(field) = Self::FIELDS.iter().find(|field| field.name == theirs.name) {
                field.set(self, theirs.get(other));
            }
        }
    }
}

/// Converts the name of a field to another spelling at compile time: without `_`, or with dashes
/// instead.
pub(super) const fn spelled<const N: usize>(name: &str, spelling: Spelling) -> [u8; N] {
    let (from, mut to) = (name.as_bytes(), [0; N]);
    let (mut read, mut written) = (0, 0);
    let mut is_upper = matches!(spelling, Spelling::Title);
    while read < from.len() {
        match from[read] {
            b'_' if !matches!(spelling, Spelling::Flag) => is_upper = true,
            b'_' => {
                to[written] = b'-';
                written += 1;
            }
            byte => {
                to[written] = if is_upper { byte.to_ascii_uppercase() } else { byte };
                written += 1;
                is_upper = false;
            }
        }
        read += 1;
    }
    to
}

/// Length of a name in a spelling.
pub(super) const fn spelled_len(name: &str, spelling: Spelling) -> usize {
    let (bytes, mut at, mut length) = (name.as_bytes(), 0, 0);
    while at < bytes.len() {
        if bytes[at] != b'_' || matches!(spelling, Spelling::Flag) {
            length += 1;
        }
        at += 1;
    }
    length
}

pub(super) const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// A spelling of names.
#[derive(Clone, Copy)]
pub(super) enum Spelling {
    /// `LockDuration`.
    Title,
    /// `lockDuration`.
    Json,
    /// `lock-duration`.
    Flag,
}

macro_rules! name_of {
    ($field:ident, $spelling:ident) => {{
        const NAME: &str = stringify!($field);
        const BYTES: [u8; $crate::description::field::spelled_len(
            NAME,
            $crate::description::field::Spelling::$spelling,
        )] = $crate::description::field::spelled(
            NAME,
            $crate::description::field::Spelling::$spelling,
        );
        $crate::description::field::text(&BYTES)
    }};
}

/// The type of a property in a description.
#[rustfmt::skip]
macro_rules! value_of {
    (Flag) => { bool };
    (Count) => { u32 };
    (Megabytes) => { u64 };
    (Kilobytes) => { u64 };
    (Span) => { TimeSpan };
    (Status) => { EntityStatus };
    (Destination) => { Option<Box<str>> };
    (Text) => { Option<Box<str>> };
    (Retry) => { Option<RetryPolicy> };
    (Order) => { SessionRetryOrder };
}

/// The type of a property in an update: a text that is absent is removed, and any other value stays
/// (ENT-17).
#[rustfmt::skip]
macro_rules! named_of {
    (Destination) => { Option<Box<str>> };
    (Text) => { Option<Box<str>> };
    ($kind:ident) => { Option<value_of!($kind)> };
}

/// Code that depends on the kind of a property: its merge, its value in an update, and the length
/// of its text.
#[rustfmt::skip]
macro_rules! by_kind {
    (over Destination $named:expr, $base:expr) => { $named };
    (over Text $named:expr, $base:expr) => { $named };
    (over $kind:ident $named:expr, $base:expr) => { $named.unwrap_or($base) };
    (get Destination $named:expr) => { $named.as_ref().map(|_| FieldType::value(&$named)) };
    (get Text $named:expr) => { $named.as_ref().map(|_| FieldType::value(&$named)) };
    (get $kind:ident $named:expr) => { $named.as_ref().map(FieldType::value) };
    (put Destination $value:expr) => { FieldType::of($value).flatten() };
    (put Text $value:expr) => { FieldType::of($value).flatten() };
    (put $kind:ident $value:expr) => { FieldType::of($value) };
    (bytes Destination $text:expr) => { by_kind!(bytes Text $text) };
    (bytes Text $text:expr) => { $text.as_ref().map_or(0, |text| text.len() as u64) };
    (bytes $kind:ident $value:expr) => { 0 };
}

/// Generates a description, its update and their fields from a list of properties: `name: Kind =
/// facts`.
macro_rules! entity {
    (
        $(#[$about:meta])*
        $description:ident, $properties:ident, $kind:ident named by { $($(#[$names:meta])* $name:ident,)+ }
        $($(#[$doc:meta])* $field:ident: $form:ident = $facts:expr,)+
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $description {
            $($(#[$names])* pub $name: Box<str>,)+
            $($(#[$doc])* pub $field: value_of!($form),)+
            /// Properties from administration clients that this broker does not know, in their
            /// original text (HTP-17).
            pub extensions: Option<Box<str>>,
        }

        /// The properties in a create or update request; `None` is an absent property (ENT-03,
        /// ENT-17). An update may only repeat a property that is fixed at creation.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $properties {
            $($(#[$doc])* pub $field: named_of!($form),)+
            /// Unknown properties; empty for none (HTP-17).
            pub extensions: Option<Box<str>>,
        }

        impl Description for $description {
            type Update = $properties;
            const KIND: EntityKind = EntityKind::$kind;
            const FIELDS: &'static [Field<Self>] = &[$(Field {
                facts: Facts {
                    name: stringify!($field),
                    title: name_of!($field, Title),
                    json: name_of!($field, Json),
                    flag: name_of!($field, Flag),
                    kind: FieldKind::$form,
                    ..$facts
                },
                get: |description| FieldType::value(&description.$field),
                set: |description, value| {
                    if let Some(value) = FieldType::of(value) {
                        description.$field = value;
                    }
                },
                named: |update| by_kind!(get $form update.$field),
                put: |update, value| update.$field = by_kind!(put $form value),
            },)+];

            fn path(&self) -> Cow<'_, str> {
                self.full_path()
            }

            fn names(&self) -> Vec<&str> {
                vec![$(&self.$name),+]
            }

            fn named_by<E>(mut next: impl FnMut() -> Result<Box<str>, E>) -> Result<Self, E> {
                Ok(Self::new($({ let $name = next()?; $name },)+ &Limits::default()))
            }

            fn extensions(&self) -> Option<&str> {
                self.extensions.as_deref()
            }

            fn set_extensions(&mut self, extensions: Option<Box<str>>) {
                self.extensions = extensions;
            }

            fn put_extensions(update: &mut $properties, extensions: Option<Box<str>>) {
                update.extensions = extensions;
            }

            fn over(update: $properties, base: &Self) -> Self {
                update.over(base)
            }
        }

        impl $description {
            /// An entity with only its names: exactly the defaults of the tier (ENT-03, ENT-08).
            #[must_use]
            pub fn new($($name: impl Into<Box<str>>,)+ limits: &Limits) -> Self {
                let mut new = Self {
                    $($name: $name.into(),)+
                    $($field: Default::default(),)+
                    extensions: None,
                };
                for field in Self::FIELDS {
                    field.set(&mut new, (field.default)(limits));
                }
                new
            }

            /// An entity with only its names: the defaults of the namespace (TMP-02).
            pub(super) fn within_namespace(
                $($name: impl Into<Box<str>>,)+
                settings: &Settings,
            ) -> Self {
                Self {
                    auto_delete_on_idle: settings.auto_delete_on_idle_default,
                    ..Self::new($($name,)+ &settings.limits)
                }
            }

            /// Size in bytes of all texts in the description.
            #[must_use]
            pub fn text_bytes(&self) -> u64 {
                let lengths = [$(by_kind!(bytes $form self.$field),)+];
                let extensions = by_kind!(bytes Text self.extensions);
                lengths.iter().sum::<u64>() + extensions
            }
        }

        impl $properties {
            /// No properties: each has its default at creation and keeps its value in an update.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// The description of a new entity: absent properties take the defaults of the
            /// namespace.
            pub fn create(
                self,
                $($name: impl Into<Box<str>>,)+
                settings: &Settings,
            ) -> Result<$description, Rejection> {
                let description = self.over(&$description::within_namespace($($name,)+ settings));
                description.validate(&settings.limits)?;
                Ok(description)
            }

            /// The description that replaces `current`: absent ForwardTo,
            /// ForwardDeadLetteredMessagesTo and UserMetadata mean none, other absent properties
            /// keep their value (ENT-17), and those fixed at creation cannot change (ENT-16).
            pub fn apply_to(
                self,
                current: &$description,
                limits: &Limits,
            ) -> Result<$description, Rejection> {
                super::bounds::keep_fixed(&self, current)?;
                let description = self.over(current);
                description.validate(limits)?;
                Ok(description)
            }

            /// The named values, and the values of `base` for the others.
            pub(super) fn put_over(self, base: &$description) -> $description {
                $description {
                    $($name: base.$name.clone(),)+
                    $($field: by_kind!(over $form self.$field, base.$field),)+
                    extensions: match self.extensions {
                        Some(text) => Some(text).filter(|text| !text.is_empty()),
                        None => base.extensions.clone(),
                    },
                }
            }
        }
    };
}

pub(super) use {by_kind, entity, name_of, named_of, value_of};
