//! `peeklock export`: writes a namespace as a file that declares it (DEC-17). `cli.rs` dispatches
//! to it. `peeklock apply` of the file changes nothing on the same namespace.

use std::path::PathBuf;

use clap::Args;

use super::connect::{Common, Output, Patience};
use super::message::counted;
use super::terminal::{note, toml};
use super::{Failure, queue, rule, subscription, topic};
use crate::config::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration, Topology};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock export
  peeklock export --to topology.toml
  peeklock export | peeklock apply --context other -f - --dry-run

Writes queues, topics, subscriptions and rules with all their properties, but no messages and no \
policies. Requires the Manage right on the namespace. Properties with the default of new entities \
are left out, and a line in the file states this. `peeklock apply -f` creates the same entities \
on another broker; on the same broker it changes nothing.

",
    exit_codes!()
);

#[derive(Args)]
pub struct ExportFlags {
    /// File to write, such as topology.toml; an existing file is replaced [default: standard
    /// output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ExportFlags) -> Result<(), Failure> {
    if flags.common.output != Output::Table {
        return Err(Failure::usage(
            "the export is always TOML: leave out --output, and name the file with --to",
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
            Failure::Failed(format!("a value of the namespace cannot be written as TOML: {error}"))
        })?;
        let text = toml(&text);
        let Some(path) = &flags.to else { return session.out.print(&text) };
        std::fs::write(path, &*text)
            .map_err(|error| Failure::Failed(format!("`{}`: {error}", path.display())))?;
        let queues = counted(topology.queues.len() as u64, "queue");
        let topics = counted(topology.topics.len() as u64, "topic");
        note(&format!("{}: {queues}, {topics}", path.display()));
        Ok(())
    })
}
