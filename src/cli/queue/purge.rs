//! `peeklock queue purge`: deletes what is available now, in calls of bounded size (DEL-06).

use clap::Args;

use super::super::arguments::Source;
use super::super::connect::{Common, Output, Patience};
use super::super::message::messages;
use super::super::terminal::{Bar, note};
use super::super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue purge orders                      tells how many there are, and asks
  peeklock queue purge orders --dead-letter --yes

Deletes the messages that are available when it begins. Messages that are locked, deferred or \
scheduled stay, and so does what is sent meanwhile, and in a queue with sessions what is in a \
session that a receiver holds. Nothing deleted is dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct PurgeFlags {
    #[command(flatten)]
    source: Source,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.source.path();
        // A sub-queue can be named by its path too.
        let queue = path.split("/$").next().unwrap_or_default();
        let is_dead_letter = flags.source.is_dead_letter() || queue.len() < path.len();
        let admin = session.client.admin();
        let described = admin.queue(queue).await?;
        let by_session = described.description.requires_session && !is_dead_letter;
        let counts = described.counts;
        let there = if is_dead_letter { counts.dead_letter } else { counts.active };
        if !flags.yes {
            let question = format!("Delete the messages of `{path}`, {there} at present?");
            session.confirm(&question).await?;
        }
        let receiver = session.client.receiver(&path)?;
        let before = session.client.now();
        let bar = Bar::new("deleting", Some(there));
        let mut deleted = 0;
        let ended = loop {
            let deletion = if by_session {
                admin.delete_batch_unlocked(&path, None, Some(before)).await
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
        match flags.common.output {
            Output::Table => {
                session.out.say(&format!("deleted {} of {path}\n", messages(deleted)))?;
            }
            Output::Json | Output::Ndjson => {
                let told = serde_json::json!({ "path": path, "deleted": deleted });
                session.out.say(&format!("{told}\n"))?;
            }
        }
        let counts = admin.queue(queue).await?.counts;
        let left = if is_dead_letter {
            counts.dead_letter
        } else {
            counts.active + counts.deferred + counts.scheduled
        };
        if left > 0 && ended.is_ok() {
            note(&format!(
                "{left} {} there still: locked, deferred, scheduled, or sent meanwhile",
                if left == 1 { "is" } else { "are" }
            ));
        }
        ended.map_err(|failure| match failure {
            Failure::Ended { text, .. } if deleted > 0 => Failure::ended(exit::IN_PART, text),
            other => other,
        })
    })
}
