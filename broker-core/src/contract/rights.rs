//! Rights, ceilings and grants (SEC-01, SEC-15, CON-72). Authorizers return them, and every access
//! check uses them. A ceiling can only take rights away.

use std::sync::Arc;

use super::action::{Action, Actions, Requirement};
use super::epoch::Mark;
use crate::error::{Denial, Rejection};
use crate::time::Timestamp;

/// A right on an entity or on the namespace (SEC-01).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Right {
    /// Send, schedule, cancel.
    Send,
    /// Receive, settle, renew, defer, peek, batch delete.
    Listen,
    /// Create, update, delete, list and read entities and runtime information.
    Manage,
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Rights(u8);

/// Limit on the use of rights: the role of a console token (CON-72). Each ceiling includes the
/// lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Ceiling {
    /// Reads.
    Viewer,
    /// Also sends, receives, settles, and holds sessions.
    Operator,
    /// Everything that the rights allow.
    #[default]
    Admin,
}

/// Grant of an authorizer to a principal, on one entity or on the namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The rights; an empty set refuses everything.
    pub rights: Rights,
    /// Limit on the use of the rights.
    pub ceiling: Ceiling,
    /// End of the grant; none if unlimited. Links and calls under the grant end with it (SEC-15).
    pub until: Option<Timestamp>,
    /// Epoch of the decision; raising it ends the grant.
    pub epoch: Option<Mark>,
    /// Name of the policy behind the grant, if there is one; refusals for a missing right name it.
    pub policy: Option<Arc<str>>,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 3] = [Self::Send, Self::Listen, Self::Manage];

    /// The name of the right.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Listen => "Listen",
            Self::Manage => "Manage",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Listen => 2,
            Self::Manage => 4,
        }
    }
}

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Every right.
    pub const ALL: Self = Self::of(Right::Send).and(Right::Listen).and(Right::Manage);

    /// Returns a set of only this right.
    #[must_use]
    pub const fn of(right: Right) -> Self {
        Self(right.bit())
    }

    /// Adds a right.
    #[must_use]
    pub const fn and(self, right: Right) -> Self {
        Self(self.0 | right.bit())
    }

    /// Whether the set contains a right.
    #[must_use]
    pub const fn contains(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether the two sets have a right in common.
    #[must_use]
    pub const fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// One bit for each right, as in records.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the rights of such bits; none if unknown bits are set.
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Names of the rights, joined with "or".
    pub(crate) fn names(self) -> String {
        let names = Right::ALL.into_iter().filter(|right| self.contains(*right)).map(Right::name);
        names.collect::<Vec<_>>().join(" or ")
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        rights.into_iter().fold(Self::NONE, Self::and)
    }
}

impl Grant {
    /// Grants rights without an end.
    #[must_use]
    pub const fn of(rights: Rights) -> Self {
        Self { rights, ceiling: Ceiling::Admin, until: None, epoch: None, policy: None }
    }

    /// Grants every right without an end.
    #[must_use]
    pub const fn everything() -> Self {
        Self::of(Rights::ALL)
    }

    /// Grants no right.
    #[must_use]
    pub const fn nothing() -> Self {
        Self::of(Rights::NONE)
    }

    /// Limits the grant to a ceiling.
    #[must_use]
    pub const fn with_ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Ends the grant at an instant.
    #[must_use]
    pub const fn with_end(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// Ends the grant when an epoch is raised. Take the mark before you read the state on which the
    /// grant depends.
    #[must_use]
    pub fn with_epoch(mut self, epoch: Mark) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Names the policy behind the grant.
    #[must_use]
    pub fn with_policy(mut self, policy: &Arc<str>) -> Self {
        self.policy = Some(Arc::clone(policy));
        self
    }

    /// Whether the grant allows an action while it is in force.
    #[must_use]
    pub fn allows(&self, action: Action) -> bool {
        self.actions().contains(action)
    }

    pub(crate) fn actions(&self) -> Actions {
        Actions::granted(self.rights, self.ceiling)
    }
}

/// Returns the refusal of an action that is not granted. It is the same whether the entity exists
/// or not (SEC-08).
pub(crate) fn missing_right(action: Action, policy: Option<&str>) -> Rejection {
    let rejection = Rejection::unauthorized(missing_text(action, policy)).with_cause(Denial::RIGHT);
    let Requirement::OneOf(one_of, _) = action.needs() else { return rejection };
    match Right::ALL.into_iter().find(|right| one_of.contains(*right)) {
        Some(claim) => rejection.in_cloud_words(&format!(
            "Unauthorized access. '{}' claim(s) are required to perform this operation.",
            claim.name()
        )),
        None => rejection,
    }
}

fn missing_text(action: Action, policy: Option<&str>) -> String {
    match (action.needs(), policy) {
        (Requirement::OneOf(one_of, _), Some(policy)) => {
            format!(
                "this requires the right {}, which policy `{policy}` does not grant here",
                one_of.names()
            )
        }
        (Requirement::OneOf(one_of, _), None) => {
            format!("this requires the right {}, which was not granted", one_of.names())
        }
        (Requirement::Nothing, _) => {
            "this requires at least one right, and none was granted".to_owned()
        }
        (Requirement::BrokerItself, _) => "no client may do this".to_owned(),
    }
}
