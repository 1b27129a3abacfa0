//! Report of findings, as a table for people and as JSON for programs. `verify` and `repair` print
//! with it. The keys of the JSON are stable.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use indicatif::{BinaryBytes, HumanCount};
use peeklock::store::journal::verify::{Fate, Finding, FindingKind, Report, Severity};
use serde::Serialize;

use super::meaning::{AffectedRecords, word};

const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

/// Text of a size.
pub fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// Text of the totals that were read.
pub fn totals(report: &Report) -> String {
    let totals = &report.totals;
    let count = |count: u64, one: &str, many: &str| {
        format!("{} {}", HumanCount(count), if count == 1 { one } else { many })
    };
    format!(
        "{}, {}, {}; {} with {}, and {} of garbage\n",
        count(totals.segments, "segment", "segments"),
        count(totals.frames, "frame", "frames"),
        count(totals.records, "record", "records"),
        count(totals.live_keys, "live key", "live keys"),
        bytes(totals.live_bytes),
        bytes(totals.garbage_bytes()),
    )
}

/// Table of the findings.
pub fn findings(report: &Report, colours: bool) -> String {
    const HEAD: [&str; 5] = ["FILE", "BYTE", "BYTES", "MEANS", "FINDING"];
    if report.findings.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 5]> = report.findings.iter().map(row).collect();
    let mut widths = HEAD.map(str::len);
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    let [file_width, offset_width, bytes_width, means_width, _] = widths;
    let mut text = String::new();
    let mut line = |[file, offset, bytes, means, finding]: [&str; 5], colour: &str| {
        let end = if colour.is_empty() { "" } else { PLAIN };
        // Writing into a string cannot fail.
        writeln!(
            text,
            "{file:<file_width$}  {offset:>offset_width$}  {bytes:>bytes_width$}  \
             {colour}{means:<means_width$}{end}  {finding}"
        )
        .unwrap_or_default();
    };
    line(HEAD, "");
    for (row, finding) in rows.iter().zip(&report.findings) {
        let colour = match finding.severity() {
            Severity::Damage => RED,
            Severity::Harmless => YELLOW,
        };
        line(row.each_ref().map(String::as_str), if colours { colour } else { "" });
    }
    if report.findings_omitted > 0 {
        writeln!(text, "and {} more", HumanCount(report.findings_omitted)).unwrap_or_default();
    }
    text
}

fn row(finding: &Finding) -> [String; 5] {
    let bytes = if finding.bytes == 0 { "-".to_owned() } else { finding.bytes.to_string() };
    let mut what = finding.description.clone();
    if let Some(frames) = finding.frames {
        let readable = match (frames.readable_record_count, frames.are_all_readable) {
            (0, true) => "; no records are in these places".to_owned(),
            (0, false) => "; the records in these places cannot be determined".to_owned(),
            (count, true) => format!("; {count} records, all identified"),
            (count, false) => format!("; {count} records identified, others not"),
        };
        what.push_str(&readable);
    }
    let offset = finding.offset.to_string();
    [finding.file.clone(), offset, bytes, severity(finding.severity()).to_owned(), what]
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Harmless => "harmless",
        Severity::Damage => "damage",
    }
}

/// Remedy of each kind of finding, one line each.
pub fn remedies(report: &Report) -> String {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for finding in &report.findings {
        let (name, remedy) = (title(finding.kind), finding.kind.remedy());
        if seen.insert(name) {
            writeln!(text, "{name}: {remedy}").unwrap_or_default();
        }
    }
    text
}

const fn title(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::UnfinishedWrite => "unfinished write",
        FindingKind::HeaderCopy => "copy of a header",
        FindingKind::SideFile => "side file",
        FindingKind::SideFileDiffers => "side file that differs",
        FindingKind::Manifest => "manifest",
        FindingKind::Frames => "frames",
        FindingKind::Record => "record or content",
        FindingKind::Header => "both copies of a header",
        FindingKind::Missing => "missing segment",
        FindingKind::Foreign => "foreign segment",
        FindingKind::Stray => "stray file",
    }
}

#[derive(Serialize)]
struct JsonReport<'a> {
    data_dir: &'a str,
    sound: bool,
    segments: u64,
    frames: u64,
    records: u64,
    live_keys: u64,
    log_bytes: u64,
    live_bytes: u64,
    garbage_bytes: u64,
    holes: u64,
    leftover_files: u64,
    findings: Vec<JsonFinding<'a>>,
    findings_omitted: u64,
    affected: Vec<JsonAffected>,
    affected_omitted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<JsonRepair>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    file: &'a str,
    offset: u64,
    bytes: u64,
    kind: &'static str,
    severity: &'static str,
    what: &'a str,
    remedy: &'static str,
    segment: Option<u32>,
    first_lsn: Option<u64>,
    last_lsn: Option<u64>,
    told_records: Option<u64>,
    are_all_told: Option<bool>,
}

#[derive(Serialize)]
struct JsonAffected {
    entity: u64,
    queue: Option<String>,
    fate: &'static str,
    sequence_numbers: Vec<u64>,
    description: bool,
    other_records: u64,
}

/// Result of a repair.
#[derive(Serialize)]
pub struct JsonRepair {
    /// Steps that were done, one line each.
    pub steps: Vec<String>,
    /// Path of the copy made before the repair.
    pub copy: Option<String>,
}

/// JSON text of the report.
pub fn json(
    data_dir: &str,
    report: &Report,
    meanings: &AffectedRecords,
    repair: Option<JsonRepair>,
) -> String {
    let mut affected = Vec::new();
    meanings.each(|entity, queue, fate: Fate, touched| {
        affected.push(JsonAffected {
            entity,
            queue: queue.map(str::to_owned),
            fate: word(fate),
            sequence_numbers: touched.messages.clone(),
            description: touched.description,
            other_records: touched.others,
        });
    });
    let findings = report.findings.iter().map(|finding| JsonFinding {
        file: &finding.file,
        offset: finding.offset,
        bytes: finding.bytes,
        kind: finding.kind.name(),
        severity: severity(finding.severity()),
        what: &finding.description,
        remedy: finding.kind.remedy(),
        segment: finding.segment,
        first_lsn: finding.frames.map(|frames| frames.first_lsn),
        last_lsn: finding.frames.and_then(|frames| frames.last_lsn),
        told_records: finding.frames.map(|frames| frames.readable_record_count),
        are_all_told: finding.frames.map(|frames| frames.are_all_readable),
    });
    let totals = &report.totals;
    let report = JsonReport {
        data_dir,
        sound: report.is_sound(),
        segments: totals.segments,
        frames: totals.frames,
        records: totals.records,
        live_keys: totals.live_keys,
        log_bytes: totals.log_bytes,
        live_bytes: totals.live_bytes,
        garbage_bytes: totals.garbage_bytes(),
        holes: totals.holes,
        leftover_files: totals.leftover_files,
        findings: findings.collect(),
        findings_omitted: report.findings_omitted,
        affected,
        affected_omitted: report.affected_omitted,
        repair,
    };
    let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
    text.push('\n');
    text
}
