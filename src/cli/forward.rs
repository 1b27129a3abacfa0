//! `peeklock forward`: lists forwarding destinations, with counts of waiting and failed messages.
//! `cli.rs` dispatches to it.

use clap::Args;
use peeklock::command::Counts;

use super::connect::{Common, Output, Patience};
use super::message::{Form, Writer};
use super::terminal::{Cell, Table, WriteOutcome, note};
use super::{Failure, queue, subscription, topic};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock forward
  peeklock forward -o ndjson | jq -r 'select(.transferDeadLetterMessageCount > 0) | .from'
  peeklock queue update orders --forward-to archive
  peeklock subscription create orders eu --forward-to eu-orders

WAITING counts messages that are on their way; they wait while the destination is full or \
disabled. FAILED counts messages that could not be moved; they are in the transfer dead-letter \
queue, each with a reason. Receive them with:

  peeklock receive 'orders/$Transfer/$deadletterqueue'

",
    exit_codes!()
);

#[derive(Args)]
pub struct ForwardFlags {
    #[command(flatten)]
    common: Common,
}

/// Forwarding from an entity to a destination.
struct ForwardingPath {
    from: String,
    kind: &'static str,
    to: String,
    counts: Counts,
}

pub fn run(flags: &ForwardFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let mut ways = Vec::new();
        for queue in queue::all(&session.client).await? {
            let description = queue.description;
            let to = [
                ("messages", description.forward_to),
                ("dead letters", description.forward_dead_lettered_messages_to),
            ];
            add(&mut ways, &description.path, to, queue.counts);
        }
        for topic in topic::all(&session.client).await? {
            let topic = &topic.description.path;
            for one in subscription::all(&session.client, topic).await? {
                let path = one.description.path();
                let description = one.description;
                let to = [
                    ("messages", description.forward_to),
                    ("dead letters", description.forward_dead_lettered_messages_to),
                ];
                add(&mut ways, &path, to, one.counts);
            }
        }
        let form = match flags.common.output {
            Output::Table if ways.is_empty() => {
                note(
                    "no entity forwards messages; `peeklock queue update orders --forward-to \
                     archive` sets a destination",
                );
                return Ok(());
            }
            Output::Table => {
                let heads = ["FROM", "KIND", "TO", "WAITING", "FAILED"];
                let mut table = Table::new(&heads, heads.len(), session.out.colours);
                for way in ways {
                    table.row(vec![
                        Cell::Text(way.from),
                        Cell::Text(way.kind.to_owned()),
                        Cell::Text(way.to),
                        Cell::Number(way.counts.transfer),
                        Cell::Alarm(way.counts.transfer_dead_letter),
                    ]);
                }
                return session.out.print(&table.text(&session.out).0);
            }
            Output::Json => Form::Json,
            Output::Ndjson => Form::Ndjson,
        };
        let mut writer = Writer::new(session.out, form);
        for way in ways {
            let object = serde_json::json!({
                "from": way.from,
                "what": if way.kind == "messages" { "messages" } else { "deadLetters" },
                "to": way.to,
                "transferMessageCount": way.counts.transfer,
                "transferDeadLetterMessageCount": way.counts.transfer_dead_letter,
            });
            if writer.object(&object.to_string())? == WriteOutcome::OutputClosed {
                return Ok(());
            }
        }
        writer.end()
    })
}

/// Adds the destinations of an entity. The counts are those for both destinations together, so they
/// appear with each.
fn add(
    ways: &mut Vec<ForwardingPath>,
    from: &str,
    to: [(&'static str, Option<Box<str>>); 2],
    counts: Counts,
) {
    for (kind, to) in to {
        if let Some(to) = to {
            ways.push(ForwardingPath { from: from.to_owned(), kind, to: to.into(), counts });
        }
    }
}
