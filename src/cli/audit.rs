//! `peeklock audit`: lists, exports and verifies the audit trail (CON-23). `cli.rs` dispatches to it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use peeklock::audit::{NotedEntry, Report, verify, verify_lines};
use peeklock::contract::{AUDIT_PAGE_MAX, AuditPage, AuditQuery};
use peeklock::inspect::{Found, Question};
use peeklock::store::journal::disk::OsDisk;
use peeklock::time::{TimeSpan, Timestamp};
use serde_json::{Value, json};

use super::arguments::span_of;
use super::connect::{CommandConnection, Common, Output, Patience};
use super::inspect::{Rows, ask, page_rows, print_table};
use super::listing::objects;
use super::message::{CELL_CHARS_MAX, counted, instant};
use super::terminal::{Cell, Table, WriteOutcome, cut};
use super::{Failure, print};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock audit list --since 1h                   actions of the last hour, newest first
  peeklock audit list --operation deleteEntity --result done
  peeklock audit export > audit.jsonl              the whole trail, oldest entry first
  peeklock audit verify audit.jsonl
  peeklock audit verify data/audit                 the files of a stopped broker

The trail has the actions of operators: changes of entities, rules, policies and keys, broken \
locks, closed clients, searches, sign-ins, and messages that the console sends or deletes. Each \
action has an entry before it begins and an entry with its result, with the same tracking id. \
`list` and `export` need the right Manage of the namespace.

",
    exit_codes!()
);

const VERIFY_HELP: &str = "\
Examples:
  peeklock audit verify data/audit
  peeklock audit verify audit.jsonl
  peeklock audit verify data/audit --expect 1204:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  peeklock audit verify data/audit --output json | jq .faults

PATH is the folder `audit` in the data directory of a stopped broker, its copy, or a file that \
`peeklock audit export` has written without conditions. Each entry has the hash of the entry \
before it, so the command finds changed, added and missing entries and names their lines. It cannot \
find entries that were cut off at the end, a trail that was rewritten from some entry on, or oldest \
files that were removed with a forged line about it. Note the last number and hash elsewhere: \
`--expect` reports if that entry is missing or changed.

Exit codes:
  0  sound
  1  the files cannot be read
  2  usage
  3  damaged";

#[derive(Subcommand)]
pub enum AuditCommand {
    /// List actions of operators, newest first
    #[command(after_help = HELP)]
    List(ListFlags),
    /// Write the trail to standard output, one JSON object per line, oldest first
    #[command(after_help = HELP)]
    Export(ExportFlags),
    /// Check a folder or an exported file for changed and missing entries, without a broker
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyFlags),
}

#[derive(Args)]
pub struct Selection {
    /// Only entries from this instant on, or of the last time span, such as 1h
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<Past>,
    /// Only entries before this instant, or older than a time span
    #[arg(long, value_name = "TIME", value_parser = past)]
    until: Option<Past>,
    /// Only actions under this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Only this operation, such as deleteEntity
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only actions on this entity
    #[arg(long, value_name = "PATH")]
    resource: Option<String>,
    /// Only results: done, unknown, or an error such as QuotaExceeded
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
}

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct ExportFlags {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct VerifyFlags {
    /// Folder of the trail, or an exported file
    path: PathBuf,
    /// Number and hash of an entry that you have noted; it must be in the trail unchanged
    #[arg(long, value_name = "NUMBER:HASH")]
    expect: Option<NotedEntry>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    output: VerifyOutput,
}

/// Output format of `verify`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerifyOutput {
    /// Text for people
    Text,
    /// One JSON object for programs
    Json,
}

/// An instant in the past.
#[derive(Clone, Copy)]
enum Past {
    At(Timestamp),
    Ago(TimeSpan),
}

fn past(text: &str) -> Result<Past, String> {
    match Timestamp::parse(text) {
        Some(at) => Ok(Past::At(at)),
        None => span_of(text).map(Past::Ago).map_err(|_| {
            "expected an instant such as 2026-05-01T12:00:00Z, or a time span such as 1h".to_owned()
        }),
    }
}

pub fn run(command: &AuditCommand) -> Result<(), Failure> {
    match command {
        AuditCommand::List(flags) => {
            flags.common.run(Patience::Limited, async |session| list(flags, session).await)
        }
        AuditCommand::Export(flags) => {
            flags.common.run(Patience::Limited, async |session| export(flags, session).await)
        }
        AuditCommand::Verify(flags) => verify_path(flags),
    }
}

impl Selection {
    fn query(&self, now: Timestamp) -> AuditQuery {
        let at = |past: Past| match past {
            Past::At(at) => at,
            Past::Ago(span) => now.minus(span),
        };
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        AuditQuery {
            since: self.since.map(at),
            until: self.until.map(at),
            policy: text(&self.policy),
            action: text(&self.operation),
            resource: text(&self.resource),
            result: text(&self.result),
            ..AuditQuery::default()
        }
    }
}

async fn page(session: &CommandConnection, query: &AuditQuery) -> Result<AuditPage, Failure> {
    let page = |found: &Found| match found {
        Found::Audit(page) => Some(page.clone()),
        _ => None,
    };
    Ok(ask(session, "", Question::Audit(query.clone()), page).await?.0)
}

async fn list(flags: &ListFlags, session: &CommandConnection) -> Result<(), Failure> {
    let output = flags.common.output;
    let count = flags.rows.count(output);
    let mut query = flags.selection.query(session.client.now());
    let heads = ["TIME", "OPERATION", "RESOURCE", "POLICY", "ADDRESS", "RESULT", "COUNT", "DETAIL"];
    let mut table = Table::new(&heads, 8, session.out.colours);
    let (mut lines, mut shown) = (Vec::new(), 0);
    let is_more = loop {
        query.count_max = page_rows(count, shown);
        let AuditPage { lines: read, next } = page(session, &query).await?;
        shown += read.len();
        for line in read {
            if output == Output::Table {
                table.row(row(&line));
            } else {
                lines.push(line.into_string());
            }
        }
        if next.is_none() || shown >= count {
            break next.is_some();
        }
        query.after = next;
    };
    if output != Output::Table {
        return objects(session.out, output, lines);
    }
    print_table(session, table, (shown, is_more), "there is no such entry")
}

/// Cells of an entry.
fn row(line: &str) -> Vec<Cell> {
    let entry: Value = serde_json::from_str(line).unwrap_or_default();
    let text = |name: &str| entry[name].as_str().unwrap_or("-");
    let cell = |text: &str| Cell::Text(cut(text.as_bytes(), CELL_CHARS_MAX).0);
    let at = Timestamp::parse(text("atUtc")).map_or_else(String::new, instant);
    let changes = entry["changes"].as_array().into_iter().flatten().map(|change| {
        let value = |name: &str| change[name].as_str().unwrap_or("none");
        format!("{}: {} -> {}", value("property"), value("before"), value("after"))
    });
    let changes = changes.collect::<Vec<_>>().join("; ");
    let detail = if changes.is_empty() { text("request").to_owned() } else { changes };
    let is_begin = entry["stage"] == "begin";
    vec![
        Cell::Text(at),
        cell(text("operation")),
        cell(text("resource")),
        cell(text("policy")),
        cell(text("address")),
        cell(if is_begin { "begins" } else { text("result") }),
        match entry["count"].as_u64() {
            Some(count) => Cell::Number(count),
            None => Cell::Right("-".to_owned()),
        },
        cell(&detail),
    ]
}

async fn export(flags: &ExportFlags, session: &CommandConnection) -> Result<(), Failure> {
    let mut query = flags.selection.query(session.client.now());
    (query.is_ascending, query.count_max) = (true, AUDIT_PAGE_MAX);
    loop {
        let AuditPage { lines, next } = page(session, &query).await?;
        for line in lines {
            if session.out.write(format!("{line}\n"))? == WriteOutcome::OutputClosed {
                return Ok(());
            }
        }
        if next.is_none() {
            return Ok(());
        }
        query.after = next;
    }
}

/// Exit code for a damaged trail.
const DAMAGED: u8 = 3;

fn verify_path(flags: &VerifyFlags) -> Result<(), Failure> {
    let report = report(&flags.path, flags.expect.as_ref())?;
    match flags.output {
        VerifyOutput::Text => print(&report_text(&flags.path, &report))?,
        VerifyOutput::Json => {
            let faults = report.faults.iter().map(
                |fault| json!({ "file": fault.file, "line": fault.line, "reason": fault.reason }),
            );
            let faults: Vec<Value> = faults.collect();
            let text = json!({
                "entries": report.lines,
                "first": report.first,
                "last": report.last,
                "lastHash": report.last_hash,
                "tornBytes": report.torn_bytes,
                "sound": report.is_sound(),
                "faults": faults,
            });
            print(&format!("{text}\n"))?;
        }
    }
    if report.is_sound() { Ok(()) } else { Err(Failure::Reported(DAMAGED)) }
}

fn report(path: &Path, noted: Option<&NotedEntry>) -> Result<Report, Failure> {
    let unreadable =
        |error| Failure::Failed(format!("`{}` cannot be read: {error}", path.display()));
    if path.is_dir() {
        let disk = OsDisk::open_read_only(path).map_err(unreadable)?;
        return verify(&disk, noted).map_err(unreadable);
    }
    Ok(verify_lines(&std::fs::read(path).map_err(unreadable)?, noted))
}

fn report_text(path: &Path, report: &Report) -> String {
    let mut text = format!("{}: {}", path.display(), entries(report.lines));
    if let (Some(first), Some(last)) = (report.first, report.last) {
        text.push_str(&format!(", {first} to {last}"));
    }
    text.push('\n');
    if let Some(hash) = &report.last_hash {
        text.push_str(&format!("hash of the last entry: {hash}\n"));
    }
    if report.torn_bytes > 0 {
        text.push_str(&format!(
            "the last line was not written to its end ({}); the next start of the broker removes \
             it\n",
            counted(report.torn_bytes, "byte")
        ));
    }
    for fault in &report.faults {
        text.push_str(&format!("{fault}\n"));
    }
    text.push_str(if report.is_sound() { "sound\n" } else { "damaged\n" });
    text
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}
