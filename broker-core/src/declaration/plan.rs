//! What is to be done, as it is shown and told: plain values, in process and on the wire alike.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::breather::Breather;
use crate::description::EntityKind;
use crate::error::Quoted;

/// The steps that make a declaration so (DEC-06).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In an order in which each can be done (DEC-07).
    pub steps: Vec<Step>,
    /// What would be a step if entities that exist were updated ([`super::Existing::IsKept`]).
    pub kept: Vec<Step>,
    /// How many of the entities named need no step.
    pub unchanged_count: usize,
    digest: Digest,
}

/// What is done to one entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done.
    pub kind: StepKind,
    /// The kind of the entity.
    pub entity: EntityKind,
    /// Its path.
    pub path: Box<str>,
    /// The properties that change. Of a new entity, those that are not at their defaults.
    pub changes: Vec<Change>,
}

/// What is done to an entity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// It is created.
    Create,
    /// It is updated.
    Update,
}

/// A property that changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Its name, such as `lock_duration`; of a rule, `rule` and its name.
    pub property: Box<str>,
    /// The value before; none if there was none.
    pub before: Option<Box<str>>,
    /// The value after; none if there is none.
    pub after: Option<Box<str>>,
}

/// Stands for the steps of a plan: plans with the same steps have the same digest, others have others (DEC-09).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(u64);

impl Plan {
    pub(super) async fn new(
        steps: Vec<Step>,
        kept: Vec<Step>,
        unchanged_count: usize,
        breather: &mut Breather,
    ) -> Self {
        let digest = Digest::of(&steps, breather).await;
        Self { steps, kept, unchanged_count, digest }
    }

    /// A plan that another broker has told, with the digest that it knows it by.
    #[must_use]
    pub const fn of_another(
        steps: Vec<Step>,
        kept: Vec<Step>,
        unchanged_count: usize,
        digest: Digest,
    ) -> Self {
        Self { steps, kept, unchanged_count, digest }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps are of a kind.
    #[must_use]
    pub fn count(&self, kind: StepKind) -> usize {
        self.steps.iter().filter(|step| step.kind == kind).count()
    }

    /// By which it is carried out.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// What is left when the first steps are done.
    pub(crate) async fn after(self, done: usize) -> Self {
        let Self { mut steps, kept, unchanged_count, .. } = self;
        let left = steps.split_off(done.min(steps.len()));
        let finished = {
            let still: BTreeSet<&str> = left.iter().map(|step| &*step.path).collect();
            // What is on a circle has one step more.
            steps.iter().filter(|step| !still.contains(&*step.path)).count()
        };
        let unchanged_count = unchanged_count + finished;
        Self::new(left, kept, unchanged_count, &mut Breather::default()).await
    }
}

/// Text that is hashed as it comes, and kept nowhere: a step may tell of all rules of a subscription.
struct Hashed(SipHasher13);

impl fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl StepKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Create, Self::Update];

    /// Its name, as transports spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Digest {
    async fn of(steps: &[Step], breather: &mut Breather) -> Self {
        let mut text = Hashed(SipHasher13::new());
        for Step { kind, entity, path, changes } in steps {
            // All of it is names of variants, and text between quotes. Hashing it cannot fail.
            write!(text, "{kind:?} {entity:?} {path:?}: ").unwrap_or_default();
            breather.part().await;
            for change in changes {
                write!(text, "{change:?}, ").unwrap_or_default();
                breather.part().await;
            }
        }
        Self(text.0.finish())
    }

    /// The digest of that text: 16 hexadecimal digits.
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

/// Such as ``create queue `orders` ``.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.name(), self.entity, Quoted(&self.path))
    }
}
