//! Ceilings and grants (SEC-15, CON-72). Authorizers return them, and every access check uses them.
//! A ceiling can only take rights away.

use std::sync::Arc;

use super::action::{Action, Actions, Requirement};
use super::epoch::Mark;
use crate::error::{Denial, Rejection};
use crate::time::Timestamp;

pub use peeklock_words::policy::{Right, Rights};

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

impl Ceiling {
    /// All ceilings, the lowest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Returns the ceiling with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ceiling| ceiling.name() == name)
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

/// Returns the refusal of an action that the rights allow, but not the role (CON-72).
pub(crate) fn missing_role(least: Ceiling, role: Ceiling) -> Rejection {
    let (least, role) = (least.name(), role.name());
    let detail = format!("this requires the role {least}; the role of this client is {role}");
    Rejection::unauthorized(detail).with_cause(Denial::RIGHT)
}

/// Returns the refusal of an action that is not granted. It is the same whether the entity exists
/// or not (SEC-08).
pub(crate) fn missing_right(action: Action, policy: Option<&str>) -> Rejection {
    let rejection = Rejection::unauthorized(missing_text(action, policy)).with_cause(Denial::RIGHT);
    let (Requirement::OneOf(rights, _) | Requirement::AllOf(rights, _)) = action.needs() else {
        return rejection;
    };
    match rights.iter().next() {
        Some(claim) => rejection.in_cloud_words(&format!(
            "Unauthorized access. '{}' claim(s) are required to perform this operation.",
            claim.name()
        )),
        None => rejection,
    }
}

fn missing_text(action: Action, policy: Option<&str>) -> String {
    let (rights, were) = match action.needs() {
        Requirement::OneOf(rights, _) => (format!("right {}", rights.names(" or ")), "was"),
        Requirement::AllOf(rights, _) => (format!("rights {}", rights.names(" and ")), "were"),
        Requirement::Nothing => {
            return "this requires at least one right, and none was granted".to_owned();
        }
        Requirement::BrokerItself => return "no client may do this".to_owned(),
    };
    match policy {
        Some(policy) => {
            format!("this requires the {rights}, which policy `{policy}` does not grant here")
        }
        None => format!("this requires the {rights}, which {were} not granted"),
    }
}
