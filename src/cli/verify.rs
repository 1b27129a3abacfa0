//! `peeklock verify`: checks that all acknowledged data is present and readable. `cli.rs`
//! dispatches to it. It never writes to the data directory.

use std::io;

use peeklock::store::journal::verify::verify as scrub;

use super::scrub::{self, AffectedRecords, Bar, Output, ScrubFlags};
use super::{Failure, print};
use crate::telemetry::colours;

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
