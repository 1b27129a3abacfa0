//! Common part of the commands that delete something: the report of the result. The delete commands
//! of queues, topics, subscriptions, rules and policies use it.

use peeklock::condition::Condition;
use peeklock::error::BrokerError;

use super::Failure;
use super::connect::{CommandConnection, Output};
use super::terminal::note;

/// Deletion of an item.
pub struct Deletion<'a> {
    /// Kind and name for people, such as "queue `orders`".
    pub shown: String,
    /// Name for programs.
    pub name: &'a str,
    /// Whether a missing item is accepted.
    pub if_exists: bool,
    /// Output format of the report.
    pub output: Output,
}

impl Deletion<'_> {
    /// Reports the result.
    pub fn finish(
        self,
        session: &CommandConnection,
        ended: Result<(), BrokerError>,
    ) -> Result<(), Failure> {
        match ended {
            Err(error) if self.if_exists && error.condition() == Condition::EntityNotFound => {
                note(&format!("there is no {}", self.shown));
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(()) if self.output == Output::Table => {
                session.out.print(&format!("{} deleted\n", self.shown))
            }
            Ok(()) => {
                session.out.print(&format!("{}\n", serde_json::json!({ "deleted": self.name })))
            }
        }
    }
}
