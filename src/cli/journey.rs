//! `peeklock journey`: the stations of a message, also after it is gone (CON-29).

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{
    DeadLetterCause, Found, Journey, JourneyQuery, LockEnd, MessagePlace, Question, Station,
    StationKind,
};
use peeklock::websocket::client::findings_to_json;

use super::connect::{Common, Output, Patience};
use super::inspect::{ask, client_text};
use super::listing::objects;
use super::message::{counted, instant_exact};
use super::terminal::{Cell, Table, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock journey orders 17                       message 17 of `orders`, and where it went
  peeklock journey --message-id 4711               all messages with this id, in any entity
  peeklock journey orders --message-id 4711        messages that were sent to `orders`
  peeklock journey orders 17 -o ndjson | jq .station

The table has the stations in the order of time, from acceptance to settlement, also in other \
entities: copies, hops, resubmits. The broker keeps them in memory, of a message that failed longer \
than of others. The line below the table says since when nothing is missing.

",
    exit_codes!()
);

#[derive(Args)]
pub struct JourneyFlags {
    /// Queue, topic or subscription
    #[arg(required_unless_present = "message_id")]
    entity: Option<String>,
    /// Sequence number of the message in that entity
    #[arg(required_unless_present = "message_id", conflicts_with = "message_id")]
    sequence: Option<u64>,
    /// Id of the message
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &JourneyFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.entity.as_deref().unwrap_or_default();
        let query = match &flags.message_id {
            Some(id) => JourneyQuery::MessageId(id.as_str().into()),
            None => JourneyQuery::Sequence(SequenceNumber(flags.sequence.unwrap_or_default())),
        };
        let read = |found: &Found| match found {
            Found::Journey(journey) => Some(journey.clone()),
            _ => None,
        };
        let (journey, findings) = ask(session, path, Question::Journey(query), read).await?;
        if flags.common.output != Output::Table {
            return objects(session.out, flags.common.output, findings_to_json(findings));
        }
        if !journey.stations.is_empty() {
            let (text, _) = table(&journey, session.out.colours).text(&session.out);
            session.out.print(&text)?;
        }
        report(&journey);
        match journey.stations.is_empty() {
            true => Err(Failure::Reported(exit::NOTHING)),
            false => Ok(()),
        }
    })
}

fn table(journey: &Journey, colours: bool) -> Table {
    let heads = ["TIME", "ENTITY", "NUMBER", "STATION", "DETAIL", "CLIENT"];
    let mut table = Table::new(&heads, 6, colours);
    for station in &journey.stations {
        let client = station.client.as_deref().map(client_text);
        table.row(vec![
            Cell::Text(instant_exact(station.at)),
            Cell::Text((*station.place.path).to_owned()),
            Cell::Right(number(station.place.sequence)),
            Cell::Text(name(station.kind).to_owned()),
            Cell::Text(detail(station)),
            Cell::Text(client.unwrap_or_default()),
        ]);
    }
    table
}

/// Prints since when the journey is complete, and whether something is left out.
fn report(journey: &Journey) {
    if journey.stations.is_empty() {
        note("no station of this message is known");
    }
    note(&format!("complete since {}", instant_exact(journey.complete_since)));
    if journey.is_cut {
        note("further stations are left out");
    }
    if journey.hidden_count > 0 {
        let count = counted(journey.hidden_count, "link");
        note(&format!("{count} to entities that you may not read or that no longer exist"));
    }
}

fn number(sequence: SequenceNumber) -> String {
    if sequence.0 == 0 { "-".to_owned() } else { sequence.0.to_string() }
}

/// Facts of a station, without its client.
fn detail(station: &Station) -> String {
    let mut facts = Vec::new();
    if let Some(MessagePlace { path, sequence }) = &station.other {
        match sequence.0 {
            0 => facts.push((**path).to_owned()),
            number => facts.push(format!("{path} {number}")),
        }
    }
    facts.extend(station.rule.as_deref().map(|rule| format!("rule {rule}")));
    facts.extend(station.hop.map(|hop| format!("hop {hop}")));
    facts.extend(station.cause.map(|cause| cause_text(cause).to_owned()));
    facts.extend(station.lock_end.map(|end| end_text(end).to_owned()));
    facts.extend(station.count.map(|count| match station.kind {
        StationKind::Renewed => counted(count.into(), "time"),
        StationKind::Delivered => format!("after {}", failures(count)),
        _ => failures(count),
    }));
    facts.extend(station.job.map(|job| job.to_string()));
    facts.extend(station.due_at.map(|at| format!("due {}", instant_exact(at))));
    facts.join(", ")
}

/// Number of failed deliveries.
fn failures(count: u32) -> String {
    match count {
        1 => "1 failed delivery".to_owned(),
        count => format!("{count} failed deliveries"),
    }
}

const fn name(kind: StationKind) -> &'static str {
    match kind {
        StationKind::Accepted => "accepted",
        StationKind::Published => "published",
        StationKind::Scheduled => "scheduled",
        StationKind::Pending => "waits for its transfer",
        StationKind::Duplicate => "duplicate dropped",
        StationKind::MaterialisedTo => "became active as",
        StationKind::MaterialisedFrom => "was scheduled as",
        StationKind::CopiedTo => "copied to",
        StationKind::CopiedFrom => "copied from",
        StationKind::Delivered => "delivered",
        StationKind::Renewed => "lock renewed",
        StationKind::Abandoned => "abandoned",
        StationKind::LockEnded => "lock ended",
        StationKind::Released => "released",
        StationKind::Deferred => "deferred",
        StationKind::DeadLettered => "dead-lettered",
        StationKind::ForwardedTo => "forwarded to",
        StationKind::ForwardedFrom => "forwarded from",
        StationKind::ForwardedOut => "forwarded out of the broker",
        StationKind::ForwardedIn => "came from another broker",
        StationKind::DroppedAt => "dropped as a duplicate at",
        StationKind::Expired => "expired",
        StationKind::Completed => "completed",
        StationKind::Received => "received and deleted",
        StationKind::Cancelled => "cancelled",
        StationKind::Deleted => "deleted",
        StationKind::Job => "job of an operator",
        StationKind::Undeferred => "active again",
        StationKind::Rescheduled => "rescheduled",
        StationKind::PutBack => "put back",
    }
}

const fn cause_text(cause: DeadLetterCause) -> &'static str {
    match cause {
        DeadLetterCause::Expired => "expired",
        DeadLetterCause::DeliveryCount => "delivery count",
        DeadLetterCause::Application => "by its receiver",
        DeadLetterCause::Rule => "a rule failed",
        DeadLetterCause::HeaderSize => "header too large",
        DeadLetterCause::NoSession => "no session id",
        DeadLetterCause::Forwarding => "forwarding failed",
        DeadLetterCause::CopyCount => "too many copies",
        DeadLetterCause::Operator => "by an operator",
    }
}

const fn end_text(end: LockEnd) -> &'static str {
    match end {
        LockEnd::Settled => "by its receiver",
        LockEnd::TimeOver => "time over",
        LockEnd::LinkEnded => "link ended",
        LockEnd::SessionEnded => "session lock ended",
        LockEnd::Operator => "by an operator",
    }
}
