//! `peeklock queue show`: shows properties and message counts of a queue. `queue.rs` dispatches to
//! it.

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::{Described, SessionCounts};
use peeklock::time::Timestamp;
use peeklock::websocket::client::queue_to_json;

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience};
use super::super::properties;
use super::super::terminal::{Out, object, sheet};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue show orders
  peeklock queue show orders -o json | jq .runtime.activeMessageCount

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let described = session.client.admin().queue(&flags.queue).await?;
        session.out.print(&form(&described, flags.common.output, &session.out))
    })
}

/// A queue in the requested output format.
pub fn form(described: &Described, output: Output, out: &Out) -> String {
    match output {
        Output::Table => sheet(&rows(described), out),
        output => object(&queue_to_json(described), output),
    }
}

fn rows(described: &Described) -> Vec<(&'static str, String)> {
    let Described { description, counts, .. } = described;
    let at = |at: Timestamp| {
        if at == Timestamp::NONE { "never".to_owned() } else { at.to_string() }
    };
    let mut rows = vec![
        ("queue", description.path.to_string()),
        ("status", description.status.name().to_owned()),
        ("active messages", counts.active.to_string()),
        ("delayed for a retry", counts.delayed.to_string()),
        ("dead-lettered", counts.dead_letter.to_string()),
        ("scheduled", counts.scheduled.to_string()),
        ("deferred", counts.deferred.to_string()),
        ("waiting for transfer", counts.transfer.to_string()),
        ("transfer dead-lettered", counts.transfer_dead_letter.to_string()),
        ("size", BinaryBytes(described.size_bytes).to_string()),
        ("last sequence number", described.last_sequence.to_string()),
    ];
    rows.extend(properties::rows(description));
    rows.extend([
        ("created", at(described.created_at)),
        ("updated", at(described.updated_at)),
        ("last used", at(described.accessed_at)),
    ]);
    if let Some(sessions) = described.sessions {
        let SessionCounts { existing, locked } = sessions;
        rows.insert(7, ("sessions there", format!("{existing}, {locked} locked")));
    }
    rows
}
