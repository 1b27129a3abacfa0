//! `peeklock job export` and `job download`: messages in a file (CON-22).

use std::fs::{self, File};
use std::io::{self, Write as _};

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::{Deed, ExportForm};
use peeklock::ids::JobId;
use peeklock::inspect::{
    Found, JOB_EXPORT_PART_BYTES_MAX, JOB_RATE_MAX, JobControl, JobDraft, JobQuery, JobState,
    Question,
};

use super::super::connect::{CommandConnection, Common};
use super::super::inspect::ask;
use super::super::message::counted;
use super::super::search::where_help;
use super::super::terminal::{Bar, WriteOutcome, note};
use super::super::{Failure, exit};
use super::selection::SelectionFlags;
use super::{Watched, failure_of, job_id, select, watch, works};

pub const EXPORT_HELP: &str = concat!(
    "\
Examples:
  peeklock job export orders --where '' --to orders.ndjson
  peeklock job export orders -d --where 'reason:timeout' --csv --to timeouts.csv
  peeklock job export orders --number 1001 --number 1002 --to two.ndjson
  peeklock job download 0f8fad5b-d9cb-469f-a165-70867728950e --to orders.ndjson
  peeklock send orders < orders.ndjson                send the messages of a file again

An export changes nothing: no message is locked, counted or moved. The file has each message as \
JSON on its own line, with its number, times and delivery count, which `send` ignores. With --csv \
it is a table of the messages without their bodies.

The broker makes the file, of at most 1 GiB, and keeps it with the job, until newer exports need \
the room. If you interrupt the command, the job goes on; `job download` writes the file later.

",
    where_help!(),
    "

",
    exit_codes!()
);

#[derive(Args)]
pub struct ExportFlags {
    /// Queue, such as `orders`, sub-queue, topic or subscription
    entity: String,
    #[command(flatten)]
    selection: SelectionFlags,
    /// Write a table of the messages without their bodies as CSV
    #[arg(long)]
    csv: bool,
    /// Read at most this many messages per second
    #[arg(long, value_name = "N", default_value_t = JOB_RATE_MAX)]
    rate: u32,
    #[command(flatten)]
    target: TargetFlags,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Args)]
pub struct DownloadFlags {
    /// Id of the job
    #[arg(value_parser = job_id)]
    job: JobId,
    #[command(flatten)]
    target: TargetFlags,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Args)]
struct TargetFlags {
    /// File to create; an existing file is kept [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<String>,
}

pub const fn export_form(csv: bool) -> ExportForm {
    if csv { ExportForm::Csv } else { ExportForm::Ndjson }
}

/// Exports messages, and writes the file.
pub async fn export(flags: &ExportFlags, session: &CommandConnection) -> Result<(), Failure> {
    let target = Target::open(&flags.target, session)?;
    let draft = JobDraft {
        selection: flags.selection.selection(session)?,
        deed: Deed::Export(export_form(flags.csv)),
        breaks_locks: false,
        rate: flags.rate,
        trial: None,
    };
    let job = select(session, &flags.selection.path(&flags.entity), draft).await?;
    let Some(preview) = &job.preview else { return Err(failure_of(&job)) };
    let total = Some(preview.count);
    let start = JobControl::Start(preview.digest);
    let job = session.client.admin().control_job(job.id, start).await?;
    let id = job.id;
    let job = match watch(session, job, "exporting", total, works).await? {
        Watched::Reached(job) => job,
        Watched::Interrupted(_) => {
            note(&format!(
                "the job goes on; `peeklock job download {id}` writes its file, and `peeklock job \
                 cancel {id}` ends it"
            ));
            return Err(Failure::Reported(exit::INTERRUPTED));
        }
    };
    if job.state != JobState::Done {
        return Err(failure_of(&job));
    }
    let (done, failed) = (job.progress.done, job.progress.failed);
    if job.export_bytes.is_some() {
        write(session, id, target).await?;
    } else {
        target.end()?;
    }
    note(&format!("exported {}", counted(done, "message")));
    if failed > 0 {
        let count = counted(failed, "message");
        note(&format!("error: {count} not exported; `peeklock job failures {id}` has the reasons"));
        let code = if done == 0 { exit::NOTHING } else { exit::IN_PART };
        return Err(Failure::Reported(code));
    }
    Ok(())
}

/// Writes the file of a job.
pub async fn download(flags: &DownloadFlags, session: &CommandConnection) -> Result<(), Failure> {
    let target = Target::open(&flags.target, session)?;
    let bytes = write(session, flags.job, target).await?;
    note(&format!("wrote {}", BinaryBytes(bytes)));
    Ok(())
}

/// Writes the file of a job part by part. Returns its bytes.
async fn write(
    session: &CommandConnection,
    job: JobId,
    mut target: Target<'_>,
) -> Result<u64, Failure> {
    let mut from = 0;
    let mut bar: Option<Bar> = None;
    loop {
        let length = JOB_EXPORT_PART_BYTES_MAX;
        let question = Question::Jobs(JobQuery::Export { job, from, length });
        let part = |found: &Found| match found {
            Found::JobExport(part) => Some((part.bytes.clone(), part.length)),
            _ => None,
        };
        let ((bytes, length), _) = ask(session, "", question, part).await?;
        from += bytes.len() as u64;
        let bar = bar.get_or_insert_with(|| Bar::new("downloading", Some(length)));
        bar.advance(bytes.len() as u64);
        let is_open = target.write(&bytes)? == WriteOutcome::Done;
        if !is_open || bytes.is_empty() || from >= length {
            target.end()?;
            return Ok(from);
        }
        if session.interrupt.is_set() {
            return Err(Failure::Reported(exit::INTERRUPTED));
        }
    }
}

/// Place of the bytes. A file that is not whole is removed.
enum Target<'a> {
    Standard(&'a CommandConnection),
    File { file: File, name: &'a str, is_whole: bool },
}

impl<'a> Target<'a> {
    fn open(flags: &'a TargetFlags, session: &'a CommandConnection) -> Result<Self, Failure> {
        let Some(name) = &flags.to else {
            if session.out.is_terminal {
                return Err(Failure::usage(
                    "the output is a terminal; give a file with --to, or redirect the output"
                        .to_owned(),
                ));
            }
            return Ok(Self::Standard(session));
        };
        let file = File::create_new(name)
            .map_err(|error| Failure::usage(format!("`{name}` cannot be created: {error}")))?;
        Ok(Self::File { file, name, is_whole: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<WriteOutcome, Failure> {
        match self {
            Self::Standard(session) => session.out.write(bytes),
            Self::File { file, name, .. } => {
                file.write_all(bytes).map_err(|error| cannot_write(name, &error))?;
                Ok(WriteOutcome::Done)
            }
        }
    }

    /// Keeps the file.
    fn end(mut self) -> Result<(), Failure> {
        if let Self::File { file, name, is_whole } = &mut self {
            file.sync_all().map_err(|error| cannot_write(name, &error))?;
            *is_whole = true;
        }
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if let Self::File { name, is_whole: false, .. } = self {
            // Should it fail, the error of the command is more important.
            fs::remove_file(*name).ok();
        }
    }
}

fn cannot_write(name: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("`{name}` cannot be written: {error}"))
}
