//! The oracle: the rights that each operation needs, and the rights of a policy. It is independent
//! of the broker's table and authorizer; a separate test compares it with that table.

use peeklock_core::contract::Right::{self, Listen, Manage, Send};
use peeklock_core::contract::{Action, Requirement as Table, Rights};

use crate::world::{AT_QUEUE, Place};

/// One of these rights at this path.
pub type Need = (&'static str, &'static [Right]);

/// An operation with all of its needs.
pub type Operation = (&'static str, &'static [Need]);

/// Operations of sending, receiving and sessions, in the order of the specification, each with its
/// needs at [`AT_QUEUE`] (SEC-05, SEC-06, SEC-07).
const AT_PLACE: &[Operation] = &[
    ("send", &[("orders", &[Send])]),
    ("send many", &[("orders", &[Send])]),
    ("send batch", &[("orders", &[Send])]),
    ("schedule", &[("orders", &[Send])]),
    ("cancel scheduled", &[("orders", &[Send])]),
    ("send via", &[("orders", &[Send]), ("sibling", &[Send])]),
    ("send in a transaction", &[("orders", &[Send])]),
    ("receive", &[("orders", &[Listen])]),
    ("receive and delete", &[("orders", &[Listen])]),
    ("receive of the dead letters", &[("orders", &[Listen])]),
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
    ("inspect", &[("orders", &[Listen])]),
    ("inspect a body", &[("orders", &[Listen])]),
    ("inspect sessions", &[("held", &[Listen])]),
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
    ("break locks", &[("orders", &[Listen]), ("orders", &[Send])]),
    ("act on messages", &[("orders", &[Listen]), ("orders", &[Send])]),
    ("create job", &[("orders", &[Listen]), ("orders", &[Send])]),
    ("forget job", &[("orders", &[Listen]), ("orders", &[Send])]),
    ("break session", &[("held", &[Listen]), ("held", &[Send])]),
    ("set state of session", &[("held", &[Listen]), ("held", &[Send])]),
    ("delete deferred", &[("orders", &[Manage])]),
    ("delete unlocked", &[("orders", &[Manage])]),
];

/// Other operations.
const ELSEWHERE: &[Operation] = &[
    ("publish", &[("news", &[Send])]),
    ("receive of a subscription", &[("news", &[Listen])]),
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
    ("close client", &[("", &[Manage])]),
    ("mute finding", &[("orders", &[Listen]), ("orders", &[Send])]),
    ("read audit", &[("", &[Manage])]),
    // No entity has this job.
    ("control job", &[("", &[Listen]), ("", &[Send])]),
    ("read job", &[("", &[Listen])]),
];

/// Returns the operations to test at a place; all operations at the queue.
pub fn done_at(at: Place) -> impl Iterator<Item = Operation> {
    let elsewhere: &[Operation] = if at == AT_QUEUE { ELSEWHERE } else { &[] };
    AT_PLACE.iter().chain(elsewhere).copied()
}

/// Sets of rights that a policy can have (SEC-01).
pub const RIGHTS: [&[Right]; 4] = [&[Send], &[Listen], &[Send, Listen], &[Send, Listen, Manage]];

/// Returns whether these rights at `owner`, empty for the namespace, satisfy the needs at a place.
pub fn are_met(needs: &[Need], at: Place, owner: &str, rights: &[Right]) -> bool {
    let is_of_place = |path: &str| path == AT_QUEUE.to || path == AT_QUEUE.sessions;
    let is_met = |(path, one_of): &Need| {
        // A subscription has the policies of its topic.
        let has_policies = if at != AT_QUEUE && is_of_place(path) { at.to } else { *path };
        let covers = owner.is_empty() || owner == has_policies;
        covers && one_of.iter().any(|right| rights.contains(right))
    };
    needs.iter().all(is_met)
}

/// Returns the client operations that perform an action of the broker's table. There is no other
/// list of actions: for a new action, add its operations here, or none.
pub fn operations(action: Action) -> &'static [&'static str] {
    match action {
        Action::Send => {
            &["send", "send many", "send batch", "schedule", "publish", "send in a transaction"]
        }
        Action::SendVia | Action::BeSentTo => &["send via"],
        Action::CancelScheduled => &["cancel scheduled"],
        Action::Receive => &[
            "receive",
            "receive and delete",
            "receive of the dead letters",
            "receive of a subscription",
            "receive in a session",
            "consume",
        ],
        Action::ReceiveDeferred => &["receive deferred"],
        Action::Settle => &[
            "complete",
            "complete many",
            "abandon",
            "abandon with delay",
            "defer",
            "dead-letter",
            "release",
            "release many",
            "settle token",
            "complete in a transaction",
        ],
        Action::RenewLock => &["renew lock", "renew many", "renew lock in a transaction"],
        Action::Peek => &["peek", "peek next", "peek session"],
        Action::AcceptSession => &["accept session", "accept next session"],
        Action::HoldSession => &["renew session", "session state", "set session state"],
        Action::Inspect => &["inspect", "inspect a body", "inspect sessions", "read job"],
        Action::ListSessions => &["list sessions"],
        Action::DeleteBatch => &["delete batch", "delete most", "purge"],
        Action::DeleteUnlocked => &["delete unlocked"],
        Action::DeleteDeferred => &["delete deferred"],
        Action::Operate => &[
            "act on messages",
            "create job",
            "control job",
            "forget job",
            "break locks",
            "break session",
            "set state of session",
            "mute finding",
        ],
        Action::CloseClients => &["close client"],
        Action::ReadAudit => &["read audit"],
        Action::Create => &[
            "create queue",
            "create another queue",
            "create queue that forwards",
            "create topic",
            "create subscription",
        ],
        Action::Describe => &[
            "queue",
            "queue exists",
            "topic",
            "topic exists",
            "subscription",
            "subscription exists",
        ],
        Action::Plan => &["plan", "carry out"],
        Action::Update => &[
            "update queue",
            "update queue of",
            "change queue",
            "forward",
            "update topic",
            "update topic of",
            "change topic",
            "update subscription",
            "update subscription of",
            "change subscription",
        ],
        Action::Delete => {
            &["delete queue", "delete absent queue", "delete topic", "delete subscription"]
        }
        Action::BeForwardedTo => &["create queue that forwards", "forward"],
        Action::ReadRules => &["rule", "rules", "explain"],
        Action::ChangeRules => &["create rule", "update rule", "delete rule"],
        Action::ReadPolicies => &["policies", "policies of the namespace", "policy"],
        Action::ReadKeys => &["policy keys"],
        Action::ChangePolicies => {
            &["create policy", "update policy", "regenerate key", "delete policy"]
        }
        // `lists.rs` tests the lists. The others belong to HTTP or another broker, or need no
        // right.
        Action::List
        | Action::Overview
        | Action::ChangeOwnRules
        | Action::ReadMetrics
        | Action::Forward
        | Action::End
        | Action::Commit
        | Action::Internal => &[],
    }
}

/// SEC-05: this oracle and the broker's table cover the same operations with the same needs.
#[test]
fn every_action_of_the_table_is_done_by_the_operations_here() {
    let mut named = std::collections::BTreeSet::new();
    for action in Action::ALL {
        for name in operations(action) {
            let (_, needs) = done_at(AT_QUEUE).find(|(it, _)| it == name).unwrap();
            let says =
                |(_, rights): &Need, wanted| rights.iter().copied().collect::<Rights>() == wanted;
            let named_needs = match action.needs() {
                Table::OneOf(one_of, _) => needs.iter().any(|need| says(need, one_of)),
                // Each right is a need of its own.
                Table::AllOf(all, _) => Right::ALL
                    .into_iter()
                    .filter(|right| all.contains(*right))
                    .all(|right| needs.iter().any(|need| says(need, Rights::of(right)))),
                Table::Nothing | Table::BrokerItself => panic!("{action:?}"),
            };
            assert!(named_needs, "{name} is {action:?}");
            named.insert(*name);
        }
    }
    let all = done_at(AT_QUEUE).map(|(name, _)| name).collect();
    assert_eq!(named, all, "each operation is some action");
}
