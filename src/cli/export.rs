//! `peeklock export`: a namespace as a file that declares it (DEC-17).

use std::path::PathBuf;

use clap::Args;

use super::connect::{Common, Output, Patience};
use super::terminal::{note, toml};
use super::{Failure, queue, rule, subscription, topic};
use crate::config::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration, Topology};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock export
  peeklock export --to topology.toml
  peeklock export | peeklock apply --context other -f - --dry-run

Written are queues, topics, subscriptions and rules with all their properties, for who may manage the namespace; not \
messages, not policies. What every new one has alike, such as no sessions, is left out, and a line says so. `peeklock \
apply -f` makes another broker so; on the same one it changes nothing.

",
    exit_codes!()
);

#[derive(Args)]
pub struct ExportFlags {
    /// File to write; it is replaced if it is there [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ExportFlags) -> Result<(), Failure> {
    if flags.common.output != Output::Table {
        return Err(Failure::usage(
            "what is exported is TOML, without --output; --to names the file",
        ));
    }
    flags.common.run(Patience::Limited, async |session| {
        let mut topology = Topology::default();
        for queue in queue::all(&session.client).await? {
            topology.queues.push(QueueDeclaration::from(&queue.description));
        }
        for topic in topic::all(&session.client).await? {
            let topic = topic.description;
            let mut below = Vec::new();
            for one in subscription::all(&session.client, &topic.path).await? {
                let rules = rule::all(&session.client, &one.description.path()).await?;
                below.push(SubscriptionDeclaration::of(&one.description, &rules));
            }
            topology.topics.push(TopicDeclaration::of(&topic, below));
        }
        let text = topology.text().map_err(|error| {
            Failure::Failed(format!("the namespace has a value that TOML cannot hold: {error}"))
        })?;
        let text = toml(&text);
        let Some(path) = &flags.to else { return session.out.say(&text) };
        std::fs::write(path, &*text)
            .map_err(|error| Failure::Failed(format!("`{}`: {error}", path.display())))?;
        let (queues, topics) = (topology.queues.len(), topology.topics.len());
        note(&format!("{}: {queues} queues, {topics} topics", path.display()));
        Ok(())
    })
}
