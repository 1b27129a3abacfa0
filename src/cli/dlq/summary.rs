//! `peeklock dlq summary`: counts dead letters by reason. `dlq.rs` dispatches to it. The number of
//! listed reasons is limited; the others are counted together.

use std::collections::BTreeMap;

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::path::dead_letter_path;
use peeklock::time::Timestamp;
use peeklock::websocket::client::Received;
use serde_json::json;

use super::super::arguments::queue_of;
use super::super::connect::{CommandConnection, Common, Output, Patience};
use super::super::message::{CELL_CHARS_MAX, instant, messages};
use super::super::peek::Browse;
use super::super::terminal::{Bar, Cell, Table, cut, json as escaped};
use super::super::{Failure, exit};
use super::condition::{MessageCondition, all_hold, condition, conditions};
use super::explain_topic;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock dlq summary orders
  peeklock dlq summary orders --where 'description~timeout'
  peeklock dlq summary orders -o json | jq '.reasons[0]'

Reads all dead letters without locking them, and prints how many there are in all and for each reason, with the times \
at which the oldest and the newest of them were enqueued and one description. A bar shows the progress.

",
    conditions!(),
    "\n\n",
    exit_codes!()
);

/// Maximum reasons that are counted separately; applications may use any text.
const REASONS_MAX: usize = 1_000;

#[derive(Args)]
pub struct SummaryFlags {
    /// Queue or subscription, such as `orders` or `sales/subscriptions/eu`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// Count only messages that meet a condition; may be repeated
    #[arg(long = "where", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<MessageCondition>,
    #[command(flatten)]
    common: Common,
}

/// Dead letters with the same reason.
struct Group {
    count: u64,
    oldest: Timestamp,
    newest: Timestamp,
    description: String,
}

/// Dead letters by reason.
#[derive(Default)]
struct Summary {
    total: u64,
    reasons: BTreeMap<String, Group>,
    /// Dead letters with further reasons.
    others: u64,
}

impl Summary {
    fn add(&mut self, message: &Received) {
        self.total += 1;
        let reason = message.dead_letter_reason().unwrap_or_default();
        let at = message.enqueued_at();
        if let Some(group) = self.reasons.get_mut(reason) {
            group.count += 1;
            (group.oldest, group.newest) = (group.oldest.min(at), group.newest.max(at));
        } else if self.reasons.len() < REASONS_MAX {
            let description = message.dead_letter_error_description().unwrap_or_default();
            let (description, _) = cut(description.as_bytes(), CELL_CHARS_MAX);
            let group = Group { count: 1, oldest: at, newest: at, description };
            self.reasons.insert(reason.to_owned(), group);
        } else {
            self.others += 1;
        }
    }

    /// Groups with the most frequent reason first.
    fn groups(&self) -> Vec<(&String, &Group)> {
        let mut groups: Vec<_> = self.reasons.iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        groups
    }
}

pub fn run(flags: &SummaryFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        explain_topic(session, &flags.queue, summary(flags, session).await).await
    })
}

async fn summary(flags: &SummaryFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = dead_letter_path(&flags.queue);
    let receiver = session.client.receiver(&path)?;
    let bar = Bar::new("reading", None);
    let mut browse = Browse::new(&receiver, SequenceNumber(0));
    let mut summary = Summary::default();
    loop {
        let page = tokio::select! {
            biased;
            () = session.interrupt.hit() => return Err(Failure::Reported(exit::INTERRUPTED)),
            page = browse.page() => page?,
        };
        if page.is_empty() {
            break;
        }
        bar.advance(page.len() as u64);
        for message in page.iter().filter(|message| all_hold(&flags.conditions, message)) {
            summary.add(message);
        }
    }
    drop(bar);
    receiver.close().await?;
    if flags.common.output != Output::Table {
        return session.out.print(&object(&path, &summary));
    }
    if summary.total == 0 {
        return session.out.print(&format!("0 messages in {path}\n"));
    }
    let heads = ["COUNT", "REASON", "OLDEST", "NEWEST", "DESCRIPTION"];
    let mut table = Table::new(&heads, 4, session.out.colours);
    for (reason, group) in summary.groups() {
        table.row(vec![
            Cell::Number(group.count),
            Cell::Text(if reason.is_empty() { "(none)".to_owned() } else { reason.clone() }),
            Cell::Text(instant(group.oldest)),
            Cell::Text(instant(group.newest)),
            Cell::Text(group.description.clone()),
        ]);
    }
    let (table, _) = table.text(&session.out);
    let others = match summary.others {
        0 => String::new(),
        others => format!(", including {others} with other reasons"),
    };
    session.out.print(&format!("{table}{} in {path}{others}\n", messages(summary.total)))
}

fn object(path: &str, summary: &Summary) -> String {
    let group = |(reason, group): (&String, &Group)| {
        json!({
            "reason": reason,
            "count": group.count,
            "oldestEnqueuedTimeUtc": group.oldest.to_string(),
            "newestEnqueuedTimeUtc": group.newest.to_string(),
            "description": group.description,
        })
    };
    let reasons: Vec<_> = summary.groups().into_iter().map(group).collect();
    let object = json!({
        "path": path, "total": summary.total, "reasons": reasons, "otherReasons": summary.others,
    });
    format!("{}\n", escaped(&object.to_string()))
}
