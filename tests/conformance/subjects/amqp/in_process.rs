//! Operations that AMQP lacks, and that run in this process instead, in every scenario.
//!
//! A caller names the row of the table that its operation belongs to; there is no other access to
//! the broker from here. A test in [`crate::faces`] checks for each operation which rows it uses.

use std::cell::RefCell;

use peeklock_core::Broker;

use crate::subjects::handles::Handles;

/// A row of [`TABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    Entities,
    Rules,
    Numbers,
    Outcomes,
    Deferred,
    Unlocked,
    Sessions,
}

/// Operations in this process, with the reasons.
pub const TABLE: [(Row, &str, &str); 7] = [
    (
        Row::Entities,
        "queues, topics and subscriptions are created, changed, described, listed and deleted",
        "management of entities is HTTP's (ADM-01)",
    ),
    (
        Row::Rules,
        "a rule is changed, and the effect of rules on a message is explained",
        "management nodes add, remove and list rules",
    ),
    (
        Row::Numbers,
        "the number of a message that was sent is looked up",
        "an accepted transfer returns none; a schedule does",
    ),
    (
        Row::Outcomes,
        "the result of each part of a commit is looked up",
        "an accepted discharge reports only that everything is done",
    ),
    (
        Row::Deferred,
        "a deferred message is removed by a client that has not received it",
        "operators do that, over HTTP",
    ),
    (
        Row::Unlocked,
        "messages of sessions that nobody holds are removed",
        "operators do that, over HTTP",
    ),
    (
        Row::Sessions,
        "all sessions are listed",
        "a request names an instant since which their state was set, or those with messages",
    ),
];

/// The broker in this process, only for operations in the table.
pub struct InProcess {
    handles: Handles,
    used: RefCell<Vec<Row>>,
}

impl InProcess {
    pub fn of(broker: &Broker) -> Self {
        Self { handles: Handles::in_process(broker), used: RefCell::default() }
    }

    /// The handles, for an operation of this row. Records the use.
    pub fn by(&self, row: Row) -> &Handles {
        let mut used = self.used.borrow_mut();
        if !used.contains(&row) {
            used.push(row);
        }
        &self.handles
    }

    /// The rows used since the last call.
    pub fn used(&self) -> Vec<Row> {
        self.used.take()
    }
}
