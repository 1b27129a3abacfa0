//! `peeklock verify`: checks that all acknowledged data is present and readable. `cli.rs`
//! dispatches to it. It never writes to the data directory.

use std::io;

use peeklock::store::journal::verify::verify as scrub;

use super::scrub::{self, AffectedRecords, Bar, Output, ScrubFlags};
use super::{Failure, print};
use crate::telemetry::colours;

pub const HELP: &str = "\
Examples:
  peeklock verify
  peeklock verify --data-dir /var/lib/peeklock
  peeklock verify --output json | jq .findings

Stop the broker first. The command works on the journal in a data directory, not on a PostgreSQL \
database. It reads everything and verifies its checksums: the log, its \
segments and side files, the record and the content of every message. It writes nothing. It \
reports each damaged place with file, byte offset and the messages concerned, and also harmless \
findings.

Results for a message in a damaged place:
  lost     the message can no longer be read
  earlier  its last change cannot be read; it returns to the state before, and may be delivered again
  saved    the message can be read, but data around it is damaged
  removed  the message was settled and stays settled

Exit codes:
  0  sound
  1  the data cannot be read, or there is no journal
  2  usage or configuration
  3  damaged";

/// Exit code for a damaged journal.
const DAMAGED: u8 = 3;

pub fn verify(flags: &ScrubFlags) -> Result<(), Failure> {
    let path = flags.data_dir()?;
    let shown = path.display().to_string();
    let disk = scrub::look_at(&path)?;
    let mut bar = Bar::new();
    let verified = scrub(&disk, &mut |progress| bar.show(progress));
    bar.end();
    let verified = verified.map_err(|error| scrub::failed(&error))?;
    let report = verified.report();
    let meanings = AffectedRecords::of(report, &|key| verified.value(key));
    match flags.output {
        Output::Json => print(&scrub::json(&shown, report, &meanings, None))?,
        Output::Text => {
            let mut text = format!("{shown}: {}", scrub::totals(report));
            for part in [
                scrub::findings(report, colours(&io::stdout())),
                if report.totals.segments == 0 { String::new() } else { scrub::remedies(report) },
                meanings.text(),
            ] {
                if !part.is_empty() {
                    text.push('\n');
                    text.push_str(&part);
                }
            }
            text.push_str(&match (report.is_sound(), report.findings.is_empty()) {
                (true, true) => "sound\n".to_owned(),
                (true, false) => "\nsound: no acknowledged data is damaged\n".to_owned(),
                (false, _) if report.totals.segments == 0 => "\ndamaged: no segment can be read, \
                    so nothing can be saved here; restore the files from a backup\n"
                    .to_owned(),
                (false, _) => format!(
                    "\ndamaged: `peeklock repair --data-dir {shown}` shows the data that can be \
                     saved, and asks\n"
                ),
            });
            print(&text)?;
        }
    }
    if report.is_sound() { Ok(()) } else { Err(Failure::Reported(DAMAGED)) }
}
