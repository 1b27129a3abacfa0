//! Roles and their rights (SEC-30). The authorizer looks up the roles of a token here. Configured
//! roles map names in tokens to rights.

use peeklock_core::contract::{Right, Rights};

/// A role, its rights, and the entity that they apply to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    name: Box<str>,
    rights: Rights,
    /// The path of an entity, or empty for everything.
    entity: Box<str>,
}

impl Role {
    /// Creates a role with these rights on all entities.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, rights: Rights) -> Self {
        Self { name: name.into(), rights, entity: "".into() }
    }

    /// Limits the role to an entity and everything below its path.
    #[must_use]
    pub fn at(mut self, entity: &str) -> Self {
        self.entity = entity.trim_matches('/').into();
        self
    }

    /// Returns whether the role applies to a resource: the path of an entity or sub-queue, or empty
    /// for the namespace. Compares whole segments and ignores case.
    fn covers(&self, resource: &str) -> bool {
        let length = self.entity.len();
        let begins = resource.get(..length).is_some_and(|it| it.eq_ignore_ascii_case(&self.entity));
        begins && (length == 0 || matches!(resource.as_bytes().get(length), None | Some(b'/')))
    }
}

/// Returns the union of the rights that these roles give at a resource.
pub fn rights<'a>(roles: impl Iterator<Item = &'a Role>, resource: &str) -> Rights {
    let given = roles.filter(|role| role.covers(resource)).map(|role| role.rights);
    let each =
        given.flat_map(|rights| Right::ALL.into_iter().filter(move |it| rights.contains(*it)));
    each.collect()
}

/// Returns the roles of the table with these names.
pub fn with_names<'a>(table: &'a [Role], names: &[&str]) -> Vec<&'a Role> {
    table.iter().filter(|role| names.contains(&&*role.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-30: the rights of several roles add up. Each role applies to its entity and everything
    /// below it, by whole segments and without regard to case.
    #[test]
    fn roles_add_up_where_they_are_given() {
        let table = [
            Role::new("reader", Rights::of(Right::Listen)),
            Role::new("sender", Rights::of(Right::Send)).at("/Orders/"),
            Role::new("eu", Rights::ALL).at("eu"),
            Role::new("sender", Rights::of(Right::Send)).at("t/subscriptions/s"),
        ];
        let check = |names: &[&str], resource: &str, expected: &[Right]| {
            let given = rights(with_names(&table, names).into_iter(), resource);
            assert_eq!(given, expected.iter().copied().collect(), "{names:?} {resource}");
        };
        let (send, listen) = (Right::Send, Right::Listen);
        check(&["reader"], "", &[listen]);
        check(&["reader", "sender"], "orders", &[send, listen]);
        check(&["sender"], "orders/$DeadLetterQueue", &[send]);
        for elsewhere in ["", "orders2", "order", "other", "é"] {
            check(&["sender"], elsewhere, &[]);
        }
        check(&["sender"], "T/Subscriptions/S", &[send]);
        check(&["eu"], "eu/orders", &Right::ALL);
        check(&["eu"], "eux", &[]);
        check(&["Reader", "", "other"], "orders", &[]);
    }
}
