//! Plans as plain values, the same in process and on the wire. The planner makes them, and
//! transports convert them. A digest identifies a plan, so only the plan that a client has seen is
//! carried out.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::yielder::Yielder;
use crate::description::EntityKind;
use crate::error::Quoted;

/// Steps that satisfy a declaration (DEC-06).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Steps in an order in which each can be done (DEC-07).
    pub steps: Vec<Step>,
    /// Steps that are omitted because existing entities are kept ([`super::Existing::Keep`]).
    pub kept: Vec<Step>,
    /// Number of declared entities that need no step.
    pub unchanged_count: usize,
    digest: Digest,
}

/// Change of an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Kind of the change.
    pub kind: StepKind,
    /// Kind of the entity.
    pub entity: EntityKind,
    /// Path of the entity.
    pub path: Box<str>,
    /// Changed properties. For a new entity, properties that differ from their defaults. For a
    /// deletion, the facts that identify the entity: `created_at`, and of a topic
    /// `subscription_count`.
    pub changes: Vec<Change>,
}

/// Kind of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// Creates the entity.
    Create,
    /// Updates the entity.
    Update,
    /// Deletes the entity; a topic with its subscriptions.
    Delete,
}

/// A changed property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Name of the property, such as `lock_duration`; for a rule, `rule` and its name.
    pub property: Box<str>,
    /// Previous value; none if it had none.
    pub before: Option<Box<str>>,
    /// New value; none if it gets none.
    pub after: Option<Box<str>>,
}

/// Digest of the steps of a plan: plans with the same steps have the same digest, different ones
/// differ (DEC-09).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(u64);

impl Plan {
    pub(super) async fn new(
        steps: Vec<Step>,
        kept: Vec<Step>,
        unchanged_count: usize,
        yielder: &mut Yielder,
    ) -> Self {
        let digest = Digest::of(&steps, yielder).await;
        Self { steps, kept, unchanged_count, digest }
    }

    /// Creates a plan from the answer of another broker, with the digest that it uses.
    #[must_use]
    pub const fn from_remote(
        steps: Vec<Step>,
        kept: Vec<Step>,
        unchanged_count: usize,
        digest: Digest,
    ) -> Self {
        Self { steps, kept, unchanged_count, digest }
    }

    /// Whether the plan has no steps.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Number of steps of a kind.
    #[must_use]
    pub fn count(&self, kind: StepKind) -> usize {
        self.steps.iter().filter(|step| step.kind == kind).count()
    }

    /// Digest with which the plan is carried out.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the plan that remains after the first `done` steps.
    pub(crate) async fn after(self, done: usize) -> Self {
        let Self { mut steps, kept, unchanged_count, .. } = self;
        let left = steps.split_off(done.min(steps.len()));
        let finished = {
            let still: BTreeSet<&str> = left.iter().map(|step| &*step.path).collect();
            // An entity on a circle has a further step; a deleted one is not declared.
            let is_finished =
                |step: &&Step| step.kind != StepKind::Delete && !still.contains(&*step.path);
            steps.iter().filter(is_finished).count()
        };
        let unchanged_count = unchanged_count + finished;
        Self::new(left, kept, unchanged_count, &mut Yielder::default()).await
    }
}

/// Hashes text without storing it: a step may contain all rules of a subscription.
struct TextHasher(SipHasher13);

impl fmt::Write for TextHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl StepKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Delete];

    /// Name as transports spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Returns the kind with a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Digest {
    async fn of(steps: &[Step], yielder: &mut Yielder) -> Self {
        let mut text = TextHasher(SipHasher13::new());
        for Step { kind, entity, path, changes } in steps {
            // The text consists of variant names and quoted text. Hashing cannot fail.
            write!(text, "{kind:?} {entity:?} {path:?}: ").unwrap_or_default();
            yielder.part().await;
            for change in changes {
                write!(text, "{change:?}, ").unwrap_or_default();
                yielder.part().await;
            }
        }
        Self(text.0.finish())
    }

    /// Parses a digest of 16 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// For example ``create queue `orders` ``.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.name(), self.entity, Quoted(&self.path))
    }
}
