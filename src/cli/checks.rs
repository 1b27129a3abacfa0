//! `peeklock checks`: findings of the check of each minute, and muting them (CON-39).

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use peeklock::inspect::{
    CheckFinding, CheckKind, CheckWeight, ChecksPage, ChecksQuery, Found, MuteChange, Question,
};
use peeklock::time::Timestamp;
use peeklock::websocket::client::findings_to_json;

use super::Failure;
use super::connect::{Common, Output, Patience};
use super::inspect::{ask, span};
use super::listing::objects;
use super::message::counted;
use super::terminal::{Cell, Table, line, note};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock checks                                  findings, the most urgent first
  peeklock checks orders                           entities with `orders` in their path
  peeklock checks --kind deadLettersUnread
  peeklock checks -o ndjson | jq -r 'select(.weight == \"error\") | .path'
  peeklock checks mute deadLettersUnread orders --reason 'known until Friday'
  peeklock checks --muted                          findings that are muted

The broker checks all entities each minute. SINCE is the time since the first check that found it, \
at most the time since the broker started.

",
    exit_codes!()
);

const MUTE_HELP: &str = concat!(
    "\
Examples:
  peeklock checks mute deadLettersUnread orders --reason 'known until Friday'
  peeklock checks mute diskNearlyFull --reason 'a new disk comes tomorrow'

A muted finding is no longer shown by `peeklock checks`; `--muted` shows it with its reason. You \
can mute a finding before there is one. The command needs the rights Send and Listen of the \
entity, or without an entity of the namespace, and the audit trail records it.

",
    exit_codes!()
);

const UNMUTE_HELP: &str = concat!(
    "\
Examples:
  peeklock checks unmute deadLettersUnread orders

",
    exit_codes!()
);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ChecksFlags {
    #[command(subcommand)]
    command: Option<ChecksCommand>,
    /// Show only findings about entities whose path contains this text
    #[arg(value_name = "TEXT")]
    path: Option<String>,
    /// Show only findings of this kind
    #[arg(long, value_name = "KIND", value_parser = kind_of)]
    kind: Option<CheckKind>,
    /// Show muted findings instead of others
    #[arg(long)]
    muted: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
pub enum ChecksCommand {
    /// Stop showing a finding, with a reason
    #[command(after_help = MUTE_HELP)]
    Mute(MuteFlags),
    /// Show a muted finding again
    #[command(after_help = UNMUTE_HELP)]
    Unmute(UnmuteFlags),
}

#[derive(Args)]
pub struct MuteFlags {
    /// Kind of the finding, such as deadLettersUnread
    #[arg(value_parser = kind_of)]
    kind: CheckKind,
    /// Queue, topic or subscription; without it, a finding about the broker
    entity: Option<String>,
    /// Why it is muted: one line of at most 256 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct UnmuteFlags {
    /// Kind of the finding, such as deadLettersUnread
    #[arg(value_parser = kind_of)]
    kind: CheckKind,
    /// Queue, topic or subscription; without it, a finding about the broker
    entity: Option<String>,
    #[command(flatten)]
    common: Common,
}

fn kind_of(text: &str) -> Result<CheckKind, String> {
    let kind = CheckKind::ALL.iter().copied().find(|kind| kind.name() == text);
    kind.ok_or_else(|| {
        let all: Vec<&str> = CheckKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("it must be one of {}", all.join(", "))
    })
}

pub fn run(flags: &ChecksFlags) -> Result<(), Failure> {
    match &flags.command {
        None => list(flags),
        Some(ChecksCommand::Mute(MuteFlags { kind, entity, reason, common })) => {
            let reason = reason.as_str().into();
            let mute = MuteChange::Mute { kind: *kind, reason };
            change(common, entity.as_deref(), (*kind, "muted"), mute)
        }
        Some(ChecksCommand::Unmute(UnmuteFlags { kind, entity, common })) => {
            let unmute = MuteChange::Unmute { kind: *kind };
            change(common, entity.as_deref(), (*kind, "unmuted"), unmute)
        }
    }
}

fn list(flags: &ChecksFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let query = ChecksQuery {
            path: flags.path.as_deref().map(Into::into),
            kind: flags.kind,
            is_muted: Some(flags.muted),
        };
        let read = |found: &Found| match found {
            Found::Checks(page) => Some(page.clone()),
            _ => None,
        };
        let (page, findings) = ask(session, "", Question::Checks(query), read).await?;
        if flags.common.output != Output::Table {
            return objects(session.out, flags.common.output, findings_to_json(findings));
        }
        if page.findings.is_empty() {
            let age = span(findings.at.since(page.checked_at));
            let state = match (flags.muted, &flags.path, flags.kind) {
                (false, None, None) => "no findings",
                (true, None, None) => "nothing is muted",
                _ => "no such finding",
            };
            note(&format!("{state}; the last check was {age} ago"));
            return Ok(());
        }
        let (text, _) = table(&page, findings.at, session.out.colours).text(&session.out);
        session.out.print(&text)?;
        let kinds: BTreeSet<CheckKind> = page.findings.iter().map(|it| it.kind).collect();
        for kind in kinds {
            note(&format!("{}: {}", kind.name(), kind.remedy()));
        }
        let more = page.total.saturating_sub(page.findings.len() as u64);
        if more > 0 {
            note(&format!("{} not shown", counted(more, "finding")));
        }
        if page.left_out_count > 0 {
            let count = counted(page.left_out_count, "less urgent finding");
            note(&format!("{count} left out: a check keeps the most urgent findings"));
        }
        Ok(())
    })
}

fn table(page: &ChecksPage, now: Timestamp, colours: bool) -> Table {
    let mut table = Table::new(&["WEIGHT", "KIND", "ENTITY", "SINCE", "DETAIL"], 5, colours);
    for CheckFinding { kind, path, since, detail, muted, .. } in &page.findings {
        let weight = match kind.weight() {
            CheckWeight::Error => "error",
            CheckWeight::Warning => "warning",
            CheckWeight::Notice => "notice",
        };
        let detail = match muted {
            Some(mute) => format!("{detail}; muted: {}", mute.reason),
            None => detail.to_string(),
        };
        let path = if path.is_empty() { "-" } else { path };
        table.row(vec![
            Cell::Text(weight.to_owned()),
            Cell::Text(kind.name().to_owned()),
            Cell::Text(path.to_owned()),
            Cell::Right(span(now.since(*since))),
            Cell::Text(detail),
        ]);
    }
    table
}

fn change(
    common: &Common,
    entity: Option<&str>,
    (kind, done): (CheckKind, &str),
    change: MuteChange,
) -> Result<(), Failure> {
    common.run(Patience::Limited, async |session| {
        let path = entity.unwrap_or_default();
        session.client.admin().mute_finding(path, change).await?;
        if common.output != Output::Table {
            let object = serde_json::json!({ "path": path, "kind": kind.name(), "result": done });
            return session.out.print(&format!("{object}\n"));
        }
        let of = entity.map_or_else(|| "the broker".to_owned(), |path| line(path).into_owned());
        session.out.print(&format!("{done} {} of {of}\n", kind.name()))
    })
}
