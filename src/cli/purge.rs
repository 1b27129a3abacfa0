//! `peeklock queue purge` and `peeklock subscription purge`: available messages go, in calls of bounded size, with a bar and in
//! the end the number that is left (DEL-06).

use clap::Args;
use peeklock::command::Counts;
use peeklock::path::{EntityAddress, EntityName, dead_letter_path};
use peeklock::websocket::client::Admin;

use super::arguments::{Source, SubscriptionName};
use super::connect::{CommandConnection, Common, Output, Patience};
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
    pub asks: Confirmation,
}

/// Kind of the purged entity.
#[derive(Clone, Copy)]
pub enum Kind {
    Queue,
    Subscription,
}

/// Whether to ask for confirmation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
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
pub async fn purge(
    session: &CommandConnection,
    purge: &Purge,
    output: Output,
) -> Result<(), Failure> {
    let path = &purge.path;
    let is_dead_letter = purge.is_dead_letter();
    let admin = session.client.admin();
    let (counts, requires_session) = purge.look(&admin).await?;
    let by_session = requires_session && !is_dead_letter;
    let there = if is_dead_letter { counts.dead_letter } else { counts.active };
    if purge.asks == Confirmation::Yes {
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
            break Err(Failure::Reported(exit::INTERRUPTED));
        }
    };
    drop(bar);
    receiver.close().await?;
    match output {
        Output::Table => {
            session.out.print(&format!("deleted {} of {path}\n", messages(deleted)))?;
        }
        Output::Json | Output::Ndjson => {
            let object = serde_json::json!({ "path": path, "deleted": deleted });
            session.out.print(&format!("{object}\n"))?;
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

pub const QUEUE_HELP: &str = concat!(
    "\
Examples:
  peeklock queue purge orders                      show the number of messages and ask
  peeklock queue purge orders --dead-letter --yes

Deletes the messages that are available at the start. Locked, deferred and scheduled messages \
stay, and so do messages that are sent meanwhile. In a queue with sessions, messages in a session \
that a receiver holds stay too. Deleted messages are not dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct QueuePurgeFlags {
    #[command(flatten)]
    source: Source,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn queue(flags: &QueuePurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.source.path();
        // The path may name a sub-queue.
        let entity = path.split("/$").next().unwrap_or_default().to_owned();
        let kind = match EntityAddress::parse(&entity) {
            Ok(EntityAddress { entity: EntityName::Subscription { .. }, .. }) => Kind::Subscription,
            _ => Kind::Queue,
        };
        let asks = if flags.yes { Confirmation::No } else { Confirmation::Yes };
        purge(session, &Purge { kind, entity, path, asks }, flags.common.output).await
    })
}

pub const SUBSCRIPTION_HELP: &str = concat!(
    "\
Examples:
  peeklock subscription purge orders eu                      show the number of messages and ask
  peeklock subscription purge orders eu --dead-letter --yes

Deletes the messages that are available at the start. Locked and deferred messages stay, and so \
do messages that are published meanwhile. In a subscription with sessions, messages in a session \
that a receiver holds stay too. Other subscriptions keep their copies. Deleted messages are not \
dead-lettered.

",
    exit_codes!()
);

#[derive(Args)]
pub struct SubscriptionPurgeFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Use its dead-letter queue instead
    #[arg(short, long)]
    dead_letter: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

pub fn subscription(flags: &SubscriptionPurgeFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let entity = flags.of.path();
        let path = if flags.dead_letter { dead_letter_path(&entity) } else { entity.clone() };
        let asks = if flags.yes { Confirmation::No } else { Confirmation::Yes };
        let request = Purge { kind: Kind::Subscription, entity, path, asks };
        purge(session, &request, flags.common.output).await
    })
}
