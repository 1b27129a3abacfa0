//! Common parts of `peeklock verify` and `peeklock repair`: directory, progress bar, errors. Both
//! commands share them, so their reports agree.

mod meaning;
mod output;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peeklock::store::StoreError;
use peeklock::store::journal::disk::{Disk as _, OsDisk};
use peeklock::store::journal::verify::{Progress, Stage};

use super::{Failure, FileFlag};
use crate::config::{Flag, Layers, Loaded, StoreKind};

pub use meaning::AffectedRecords;
pub use output::{JsonRepair, bytes, findings, json, remedies, totals};

/// Template of the progress bar, which fits into 80 columns.
const TEMPLATE: &str =
    "{msg:16} [{bar:14}] {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";

/// Flags that select the journal and the output format.
#[derive(Args)]
pub struct ScrubFlags {
    /// Directory of the messages [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    #[command(flatten)]
    file: FileFlag,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub output: Output,
}

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people
    Text,
    /// One JSON object for programs
    Json,
}

impl ScrubFlags {
    /// The directory that `serve` would use with the same flags.
    ///
    /// # Errors
    /// Also if the broker would store its messages in a database, and no directory is named.
    pub fn data_dir(&self) -> Result<PathBuf, Failure> {
        let flag = self.data_dir.clone().map(|value| Flag {
            name: "--data-dir",
            key: "server.data_dir",
            value,
        });
        let flags = flag.into_iter().collect();
        let layers =
            Layers { file: self.file.config.clone(), environment: None, flags, emulator: None };
        let config = Loaded::load(&layers)?.config;
        if config.store.kind == StoreKind::Postgres && self.data_dir.is_none() {
            return Err(Failure::Failed(
                "the messages are in PostgreSQL (store.kind), and this command works on the \
                 journal of a data directory only; the broker checks its tables when it starts and \
                 each content when it reads it; check the database with `pg_amcheck`, restore it \
                 from a backup, or name the directory of a journal with --data-dir"
                    .to_owned(),
            ));
        }
        Ok(PathBuf::from(config.server.data_dir))
    }
}

/// Opens a directory with a journal for reading.
pub fn look_at(path: &Path) -> Result<OsDisk, Failure> {
    let shown = path.display();
    let none = || {
        Failure::Failed(format!(
            "there is no journal in `{shown}`; give the data directory of a broker with --data-dir"
        ))
    };
    let disk = OsDisk::open_read_only(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => none(),
        io::ErrorKind::ResourceBusy => in_use(&error),
        _ => Failure::Failed(format!("`{shown}` cannot be read: {error}")),
    })?;
    let is_of_journal = |name: &String| name == "manifest" || name.starts_with("segment-");
    if !disk.list()?.iter().any(is_of_journal) {
        return Err(none());
    }
    Ok(disk)
}

/// Opens a directory with a journal for writing.
pub fn open(path: &Path) -> Result<OsDisk, Failure> {
    OsDisk::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(&error),
        _ => Failure::Failed(format!("`{}` cannot be written: {error}", path.display())),
    })
}

fn in_use(error: &io::Error) -> Failure {
    Failure::Failed(format!("{error}; stop it first"))
}

/// Failure for an error of the store.
pub fn failed(error: &StoreError) -> Failure {
    Failure::Failed(match error {
        StoreError::Failed(text) => text.to_string(),
        other => other.to_string(),
    })
}

/// The progress bar: bytes, rate, time left. On a terminal only, on standard error.
pub struct Bar {
    bar: ProgressBar,
    stage: Option<Stage>,
}

impl Bar {
    pub fn new() -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template(TEMPLATE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Self { bar, stage: None }
    }

    pub fn show(&mut self, progress: Progress) {
        if self.stage != Some(progress.stage) {
            self.stage = Some(progress.stage);
            self.bar.reset();
            self.bar.set_message(match progress.stage {
                Stage::Log => "reading the log",
                Stage::Records => "reading messages",
                Stage::Copy => "copying",
            });
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done.min(progress.total));
    }

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
