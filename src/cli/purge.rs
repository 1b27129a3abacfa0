//! Deletes available messages in calls of bounded size, with a progress bar and a report of the
//! remaining ones (DEL-06).

use peeklock::command::Counts;
use peeklock::websocket::client::Admin;

use super::connect::{Output, Session};
use super::message::messages;
use super::terminal::{Bar, note};
use super::{Failure, exit};

/// Parameters of a purge.
pub struct Purge {
    pub kind: Kind,
    /// Path of the queue or subscription.
    pub entity: String,
    /// Path of the purged entity, or of its dead-letter queue.
    pub path: String,
    pub asks: Asks,
}

/// Kind of the purged entity.
#[derive(Clone, Copy)]
pub enum Kind {
    Queue,
    Subscription,
}

/// Whether to ask for confirmation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Yes,
    No,
}

impl Purge {
    fn is_dead_letter(&self) -> bool {
        self.entity.len() < self.path.len()
    }

    /// Message counts of the entity, and whether it requires sessions.
    async fn look(&self, admin: &Admin) -> Result<(Counts, bool), Failure> {
        match self.kind {
            Kind::Queue => {
                let described = admin.queue(&self.entity).await?;
                Ok((described.counts, described.description.requires_session))
            }
            Kind::Subscription => {
                let described = admin.subscription(&self.entity).await?;
                Ok((described.counts, described.description.requires_session))
            }
        }
    }
}

/// Asks for confirmation, deletes messages, and reports deleted and remaining ones.
pub async fn purge(session: &Session, purge: &Purge, output: Output) -> Result<(), Failure> {
    let path = &purge.path;
    let is_dead_letter = purge.is_dead_letter();
    let admin = session.client.admin();
    let (counts, requires_session) = purge.look(&admin).await?;
    let by_session = requires_session && !is_dead_letter;
    let there = if is_dead_letter { counts.dead_letter } else { counts.active };
    if purge.asks == Asks::Yes {
        let question = format!("Delete the messages of `{path}` (now {there})?");
        session.confirm(&question).await?;
    }
    let receiver = session.client.receiver(path)?;
    let before = session.client.now();
    let bar = Bar::new("deleting", Some(there));
    let mut deleted = 0;
    let ended = loop {
        let deletion = if by_session {
            admin.delete_batch_unlocked(path, None, Some(before)).await
        } else {
            receiver.delete_most(before).await
        };
        match deletion {
            Ok(0) => break Ok(()),
            Ok(count) => {
                deleted += count;
                bar.advance(count);
            }
            Err(error) => break Err(Failure::from(error)),
        }
        if session.interrupt.is_set() {
            break Err(Failure::Told(exit::INTERRUPTED));
        }
    };
    drop(bar);
    receiver.close().await?;
    match output {
        Output::Table => {
            session.out.say(&format!("deleted {} of {path}\n", messages(deleted)))?;
        }
        Output::Json | Output::Ndjson => {
            let object = serde_json::json!({ "path": path, "deleted": deleted });
            session.out.say(&format!("{object}\n"))?;
        }
    }
    let (counts, _) = purge.look(&admin).await?;
    let left = if is_dead_letter {
        counts.dead_letter
    } else {
        counts.active + counts.deferred + counts.scheduled
    };
    if left > 0 && ended.is_ok() {
        note(&format!(
            "{left} {} still there: locked, deferred, scheduled, or sent meanwhile",
            if left == 1 { "is" } else { "are" }
        ));
    }
    ended.map_err(|failure| match failure {
        Failure::Ended { text, .. } if deleted > 0 => Failure::ended(exit::IN_PART, text),
        other => other,
    })
}
