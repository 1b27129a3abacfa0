//! What each operation needs, and what a policy gives: the oracle. It knows neither the table of the broker nor its
//! authorizer.

use peeklock_core::contract::Right::{self, Listen, Manage, Send};

/// One of these rights at this path.
pub type Need = (&'static str, &'static [Right]);

/// The operations in the order of the specification, each with what it needs, all of it (SEC-05, SEC-06, SEC-07).
pub const OPERATIONS: &[(&str, &[Need])] = &[
    ("send", &[("orders", &[Send])]),
    ("send many", &[("orders", &[Send])]),
    ("send batch", &[("orders", &[Send])]),
    ("schedule", &[("orders", &[Send])]),
    ("cancel scheduled", &[("orders", &[Send])]),
    ("publish", &[("news", &[Send])]),
    ("send via", &[("orders", &[Send]), ("sibling", &[Send])]),
    ("send in a transaction", &[("orders", &[Send])]),
    ("receive", &[("orders", &[Listen])]),
    ("receive and delete", &[("orders", &[Listen])]),
    ("receive of the dead letters", &[("orders", &[Listen])]),
    ("receive of a subscription", &[("news", &[Listen])]),
    ("receive deferred", &[("orders", &[Listen])]),
    ("complete", &[("orders", &[Listen])]),
    ("complete many", &[("orders", &[Listen])]),
    ("abandon", &[("orders", &[Listen])]),
    ("abandon with delay", &[("orders", &[Listen])]),
    ("defer", &[("orders", &[Listen])]),
    ("dead-letter", &[("orders", &[Listen])]),
    ("release", &[("orders", &[Listen])]),
    ("release many", &[("orders", &[Listen])]),
    ("settle token", &[("orders", &[Listen])]),
    ("renew lock", &[("orders", &[Listen])]),
    ("renew many", &[("orders", &[Listen])]),
    ("complete in a transaction", &[("orders", &[Listen])]),
    ("renew lock in a transaction", &[("orders", &[Listen])]),
    ("peek", &[("orders", &[Listen])]),
    ("peek next", &[("orders", &[Listen])]),
    ("peek session", &[("held", &[Listen])]),
    ("delete batch", &[("orders", &[Listen])]),
    ("delete most", &[("orders", &[Listen])]),
    ("purge", &[("orders", &[Listen])]),
    ("consume", &[("orders", &[Listen])]),
    ("accept session", &[("held", &[Listen])]),
    ("accept next session", &[("held", &[Listen])]),
    ("list sessions", &[("held", &[Listen])]),
    ("receive in a session", &[("held", &[Listen])]),
    ("renew session", &[("held", &[Listen])]),
    ("session state", &[("held", &[Listen])]),
    ("set session state", &[("held", &[Listen])]),
    ("create queue", &[("orders", &[Manage])]),
    ("create another queue", &[("fresh", &[Manage])]),
    ("create queue that forwards", &[("fresh", &[Manage]), ("orders", &[Manage])]),
    ("queue", &[("orders", &[Manage])]),
    ("queue exists", &[("orders", &[Manage])]),
    ("update queue", &[("orders", &[Manage])]),
    ("update queue of", &[("orders", &[Manage])]),
    ("change queue", &[("orders", &[Manage])]),
    ("forward", &[("orders", &[Manage]), ("sibling", &[Manage])]),
    ("delete queue", &[("sibling", &[Manage])]),
    ("delete absent queue", &[("absent", &[Manage])]),
    ("delete deferred", &[("orders", &[Manage])]),
    ("delete unlocked", &[("orders", &[Manage])]),
    ("create topic", &[("news", &[Manage])]),
    ("topic", &[("news", &[Manage])]),
    ("topic exists", &[("news", &[Manage])]),
    ("update topic", &[("news", &[Manage])]),
    ("update topic of", &[("news", &[Manage])]),
    ("change topic", &[("news", &[Manage])]),
    ("delete topic", &[("news", &[Manage])]),
    ("create subscription", &[("news", &[Manage])]),
    ("subscription", &[("news", &[Manage])]),
    ("subscription exists", &[("news", &[Manage])]),
    ("update subscription", &[("news", &[Manage])]),
    ("update subscription of", &[("news", &[Manage])]),
    ("change subscription", &[("news", &[Manage])]),
    ("delete subscription", &[("news", &[Manage])]),
    ("create rule", &[("news", &[Manage])]),
    ("update rule", &[("news", &[Manage])]),
    ("delete rule", &[("news", &[Manage])]),
    ("rule", &[("news", &[Listen, Manage])]),
    ("rules", &[("news", &[Listen, Manage])]),
    ("explain", &[("news", &[Listen, Manage])]),
    ("policies", &[("orders", &[Manage])]),
    ("policies of the namespace", &[("", &[Manage])]),
    ("policy", &[("orders", &[Manage])]),
    ("policy keys", &[("orders", &[Manage])]),
    ("create policy", &[("orders", &[Manage])]),
    ("update policy", &[("orders", &[Manage])]),
    ("regenerate key", &[("orders", &[Manage])]),
    ("delete policy", &[("orders", &[Manage])]),
    ("plan", &[("orders", &[Manage])]),
    ("carry out", &[("orders", &[Manage])]),
];

/// The rights that a policy can have (SEC-01).
pub const RIGHTS: [&[Right]; 4] = [&[Send], &[Listen], &[Send, Listen], &[Send, Listen, Manage]];

/// Whether somebody who has these rights at `owner`, empty for the namespace, has what is needed.
pub fn are_met(needs: &[Need], owner: &str, rights: &[Right]) -> bool {
    let is_met = |(path, one_of): &Need| {
        (owner.is_empty() || owner == *path) && one_of.iter().any(|right| rights.contains(right))
    };
    needs.iter().all(is_met)
}
