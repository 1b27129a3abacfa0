//! What the commands have in common that delete something: what is told at the end, and of what was not there.

use peeklock::condition::Condition;
use peeklock::error::BrokerError;

use super::Failure;
use super::connect::{Output, Session};
use super::terminal::note;

/// Something that is being deleted.
pub struct Deletion<'a> {
    /// What it is and how it is called, such as "queue `orders`".
    pub shown: String,
    /// How programs call it.
    pub name: &'a str,
    /// Whether it need not be there.
    pub if_exists: bool,
    /// For whom the end is told.
    pub output: Output,
}

impl Deletion<'_> {
    /// Tells how it ended.
    pub fn end(self, session: &Session, ended: Result<(), BrokerError>) -> Result<(), Failure> {
        match ended {
            Err(error) if self.if_exists && error.condition() == Condition::EntityNotFound => {
                note(&format!("there is no {}", self.shown));
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(()) if self.output == Output::Table => {
                session.out.say(&format!("{} deleted\n", self.shown))
            }
            Ok(()) => {
                session.out.say(&format!("{}\n", serde_json::json!({ "deleted": self.name })))
            }
        }
    }
}
