//! Names and paths: the addresses of entities and their sub-queues (spec file 01, ADR).
//!
//! Reading an address and validating a new name differ: any text may be read as an address, and
//! names an entity or none. Only [`validate_entity_path`] and its siblings decide which names may
//! be created. Not here: percent-decoding, which the transport does, and whether an entity exists,
//! which the directory knows.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use crate::error::{Quoted, Rejection};
use crate::limits::Limits;

#[cfg(test)]
mod tests;

const SUBSCRIPTIONS: &str = "Subscriptions";
const RULES: &str = "Rules";
const DEAD_LETTER_QUEUE: &str = "$deadletterqueue";
const TRANSFER: &str = "$Transfer";
const MANAGEMENT: &str = "$management";
const TOKENS: &str = "$cbs";
const DEFAULT_RULE: &str = "$Default";
/// Schemes that may precede the host of an absolute address of this broker (ADR-15).
const SCHEMES: [&str; 5] = ["sb", "amqp", "amqps", "http", "https"];

/// The target of an address: the token node of the namespace, or a node of an entity (ADR-13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// The node `$cbs`, to which clients send tokens.
    Tokens,
    /// An entity, a sub-queue, or a node of either.
    Entity(EntityAddress),
}

/// An entity, one of its sub-queues, or a node of either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntityAddress {
    /// The queue, topic or subscription.
    pub entity: EntityName,
    /// The queue of the entity.
    pub sub_queue: SubQueue,
    /// The node of that queue.
    pub node: Node,
}

/// The name of an entity; keeps the case given, compares without it (ADR-06).
#[derive(Clone, Debug)]
pub enum EntityName {
    /// A queue or a topic; they share one name space (ADR-12).
    Root(Box<str>),
    /// A subscription of a topic.
    Subscription {
        /// The path of the topic.
        topic: Box<str>,
        /// The name of the subscription.
        name: Box<str>,
    },
}

/// One of the queues of an entity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SubQueue {
    /// The entity itself.
    #[default]
    Main,
    /// Its dead-letter queue (ADR-02).
    DeadLetter,
    /// Its transfer dead-letter queue (ADR-04).
    TransferDeadLetter,
}

/// The part of an entity or sub-queue that an address names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Node {
    /// The queue, topic or subscription itself.
    #[default]
    Entity,
    /// Its management node (ADR-13).
    Management,
    /// A rule of the subscription (ADR-01), by its name in the case given.
    Rule(Box<str>),
}

/// The path of an entity with its case folded: the key of look-ups and lists (ADR-06, ENT-30).
///
/// A clone shares the text. A look-up by `&str` requires folded text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathKey(Arc<str>);

impl Address {
    /// Reads an address of an entity, or `$cbs` in any case.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let path = path_part(text);
        let path = path.strip_prefix(is_separator).unwrap_or(path);
        if same(path.strip_suffix(is_separator).unwrap_or(path), TOKENS) {
            return Ok(Self::Tokens);
        }
        EntityAddress::parse(text).map(Self::Entity)
    }
}

impl EntityAddress {
    /// Reads any address, relative or absolute, in any case, with `/` or `\` (ADR-01 to ADR-15).
    ///
    /// One slash before and one after the path are ignored. Text that can name no entity gives
    /// `EntityNotFound`, like an unused name (ADR-14).
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        Self::read(text).ok_or_else(|| Rejection::entity_not_found(text))
    }

    fn read(text: &str) -> Option<Self> {
        let path = path_part(text);
        let path = path.strip_prefix(is_separator).unwrap_or(path);
        let path = path.strip_suffix(is_separator).unwrap_or(path);
        let segments: Vec<&str> = path.split(is_separator).collect();

        let (segments, managed) = match segments.split_last()? {
            (last, before) if same(last, MANAGEMENT) => (before, true),
            _ => (&segments[..], false),
        };
        let (segments, sub_queue) = match segments {
            [before @ .., transfer, last]
                if same(last, DEAD_LETTER_QUEUE) && same(transfer, TRANSFER) =>
            {
                (before, SubQueue::TransferDeadLetter)
            }
            [before @ .., last] if same(last, DEAD_LETTER_QUEUE) => (before, SubQueue::DeadLetter),
            all => (all, SubQueue::Main),
        };
        let plain = !managed && sub_queue == SubQueue::Main;
        let node = if managed { Node::Management } else { Node::Entity };
        let (entity, node) = match segments {
            [topic @ .., marker, name] if same(marker, SUBSCRIPTIONS) => {
                (subscription(topic, name)?, node)
            }
            [topic @ .., marker, name, rules, rule]
                if plain && same(marker, SUBSCRIPTIONS) && same(rules, RULES) =>
            {
                if rule.is_empty() {
                    return None;
                }
                (subscription(topic, name)?, Node::Rule((*rule).into()))
            }
            root => (EntityName::Root(root_path(root)?), node),
        };
        Some(Self { entity, sub_queue, node })
    }

    /// The entity itself: its main queue, no node.
    #[must_use]
    pub const fn of(entity: EntityName) -> Self {
        Self { entity, sub_queue: SubQueue::Main, node: Node::Entity }
    }

    /// The key of the entity, without the sub-queue or node.
    #[must_use]
    pub fn key(&self) -> PathKey {
        self.entity.key()
    }
}

impl EntityName {
    /// The whole path in the case given: `orders`, `events/Subscriptions/audit` (ADR-01).
    #[must_use]
    pub fn path(&self) -> Cow<'_, str> {
        match self {
            Self::Root(path) => Cow::Borrowed(path),
            Self::Subscription { topic, name } => {
                Cow::Owned(format!("{topic}/{SUBSCRIPTIONS}/{name}"))
            }
        }
    }

    /// The path of the queue or topic at the root of the entity's tree.
    #[must_use]
    pub fn root(&self) -> &str {
        match self {
            Self::Root(path) => path,
            Self::Subscription { topic, .. } => topic,
        }
    }

    /// The key of the entity.
    #[must_use]
    pub fn key(&self) -> PathKey {
        PathKey::fold(&self.path())
    }
}

impl SubQueue {
    /// All sub-queues.
    pub const ALL: [Self; 3] = [Self::Main, Self::DeadLetter, Self::TransferDeadLetter];

    /// Text after the entity's path in an address of the sub-queue (ADR-02, ADR-04).
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::DeadLetter => "/$deadletterqueue",
            Self::TransferDeadLetter => "/$Transfer/$deadletterqueue",
        }
    }
}

impl PathKey {
    /// Folds a path. Names have only ASCII letters (ADR-10), so ASCII lower case is enough.
    #[must_use]
    pub fn fold(path: &str) -> Self {
        Self(path.to_ascii_lowercase().into())
    }

    /// The folded path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path of a subscription, for receivers (ADR-01).
#[must_use]
pub fn subscription_path(topic: &str, name: &str) -> String {
    format!("{topic}/{SUBSCRIPTIONS}/{name}")
}

/// The address of an entity's dead-letter queue, in the spelling of the official SDKs (ADR-03).
#[must_use]
pub fn dead_letter_path(entity_path: &str) -> String {
    format!("{entity_path}/$DeadLetterQueue")
}

/// The address of an entity's transfer dead-letter queue (ADR-05).
#[must_use]
pub fn transfer_dead_letter_path(entity_path: &str) -> String {
    format!("{entity_path}{}", SubQueue::TransferDeadLetter.suffix())
}

/// Validates the path of a new queue or topic (ADR-07 to ADR-11) and returns its name, with `/` for
/// every `\`. Only the path part of an absolute address counts (ADR-15).
pub fn validate_entity_path(text: &str, limits: &Limits) -> Result<EntityName, Rejection> {
    let path = path_part(text).replace('\\', "/");
    validate_length("path of a queue or topic", &path, limits.path_chars_max)?;
    if path.starts_with('/') || path.ends_with('/') {
        return Err(Rejection::argument(format!(
            "path {} starts or ends with a separator; remove it",
            Quoted(&path)
        )));
    }
    for segment in path.split('/') {
        if segment.is_empty() {
            return Err(Rejection::argument(format!(
                "path {} has two separators in a row; remove one",
                Quoted(&path)
            )));
        }
        if same(segment, SUBSCRIPTIONS) {
            return Err(Rejection::argument(format!(
                "path {} has the reserved segment `{SUBSCRIPTIONS}`",
                Quoted(&path)
            )));
        }
        validate_characters(segment)?;
    }
    Ok(EntityName::Root(path.into()))
}

/// Validates the name of a new subscription (ADR-07, ADR-08, ADR-10, ADR-11).
pub fn validate_subscription_name(name: &str, limits: &Limits) -> Result<(), Rejection> {
    validate_length("name of a subscription", name, limits.name_chars_max)?;
    validate_characters(name)
}

/// Validates the name of a new rule (ADR-07, ADR-08, ADR-10). `$Default` is valid (ADR-11).
pub fn validate_rule_name(name: &str, limits: &Limits) -> Result<(), Rejection> {
    if same(name, DEFAULT_RULE) {
        return Ok(());
    }
    validate_length("name of a rule", name, limits.name_chars_max)?;
    validate_characters(name)
}

fn validate_length(part: &str, text: &str, chars_max: usize) -> Result<(), Rejection> {
    let chars = text.chars().count();
    if (1..=chars_max).contains(&chars) {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!("the {part} has {chars} characters, not 1 to {chars_max}")))
}

fn validate_characters(name: &str) -> Result<(), Rejection> {
    if name.starts_with('$') {
        return Err(Rejection::argument(format!(
            "name {} begins with `$`, which is reserved for names of the system",
            Quoted(name)
        )));
    }
    if matches!(name, "." | "..") {
        return Err(Rejection::argument(format!(
            "name {} cannot be in the path of a URL, where it has another meaning",
            Quoted(name)
        )));
    }
    let foreign = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if let Some(character) = name.chars().find(foreign) {
        return Err(Rejection::argument(format!(
            "name {} has the character {character:?}; letters, digits, `.`, `-` and `_` are allowed",
            Quoted(name)
        ))
        .in_cloud_words(
            "Entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores (_).",
        ));
    }
    Ok(())
}

/// Returns the part of an absolute address after the host, up to a query or fragment. Other text is
/// returned unchanged.
fn path_part(text: &str) -> &str {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text;
    };
    if !SCHEMES.iter().any(|known| same(known, scheme)) {
        return text;
    }
    let whole = rest.split(['?', '#']).next().unwrap_or(rest);
    whole.split_once(is_separator).map_or("", |(_host, path)| path)
}

/// The scheme of an address, such as `webhook+https`, unless it is one of this broker's.
pub(crate) fn foreign_scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    (!SCHEMES.iter().any(|known| same(known, scheme))).then_some(scheme)
}

fn subscription(topic: &[&str], name: &str) -> Option<EntityName> {
    if name.is_empty() || name.starts_with('$') {
        return None;
    }
    Some(EntityName::Subscription { topic: root_path(topic)?, name: name.into() })
}

/// Joins the segments of a queue's or topic's path, if they can form one.
fn root_path(segments: &[&str]) -> Option<Box<str>> {
    let impossible = |segment: &&str| {
        segment.is_empty() || segment.starts_with('$') || same(segment, SUBSCRIPTIONS)
    };
    if segments.is_empty() || segments.iter().any(impossible) {
        return None;
    }
    Some(segments.join("/").into())
}

/// A backslash counts as a slash (ADR-09).
const fn is_separator(character: char) -> bool {
    matches!(character, '/' | '\\')
}

const fn same(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right)
}

impl PartialEq for EntityName {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Root(left), Self::Root(right)) => same(left, right),
            (
                Self::Subscription { topic: left_topic, name: left_name },
                Self::Subscription { topic: right_topic, name: right_name },
            ) => same(left_topic, right_topic) && same(left_name, right_name),
            (Self::Root(_), Self::Subscription { .. })
            | (Self::Subscription { .. }, Self::Root(_)) => false,
        }
    }
}

impl Eq for EntityName {}

/// The whole path in the case given.
impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

/// The whole address, which `EntityAddress::parse` can read.
impl fmt::Display for EntityAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.entity, self.sub_queue.suffix())?;
        match &self.node {
            Node::Entity => Ok(()),
            Node::Management => write!(f, "/{MANAGEMENT}"),
            Node::Rule(rule) => write!(f, "/{RULES}/{rule}"),
        }
    }
}

/// The folded path.
impl fmt::Display for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for PathKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}
