//! What AMQP has no words for, and is done in this process instead, whatever the scenario.
//!
//! Who does so names the row of the table that it belongs to; there is no other way to the broker from here. Of each
//! operation [`crate::faces`] has a test that says which rows it uses.

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

/// What is done in this process, and why.
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

/// The broker in this process, for what stands in the table alone.
pub struct InProcess {
    handles: Handles,
    used: RefCell<Vec<Row>>,
}

impl InProcess {
    pub fn of(broker: &Broker) -> Self {
        Self { handles: Handles::in_process(broker), used: RefCell::default() }
    }

    /// The handles, for what this row says; it is noted.
    pub fn by(&self, row: Row) -> &Handles {
        let mut used = self.used.borrow_mut();
        if !used.contains(&row) {
            used.push(row);
        }
        &self.handles
    }

    /// The rows that were used since this was asked last.
    pub fn used(&self) -> Vec<Row> {
        self.used.take()
    }
}
