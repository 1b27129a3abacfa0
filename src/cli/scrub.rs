//! Common parts of `peeklock verify` and `peeklock repair`: directory, progress bar, errors.

mod bar;
mod meaning;
mod tell;

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use peeklock::store::StoreError;
use peeklock::store::journal::disk::{Disk as _, OsDisk};

use super::{Failure, FileFlag};
use crate::config::{Flag, Layers, Loaded};

pub use bar::Bar;
pub use meaning::Meanings;
pub use tell::{JsonRepair, bytes, findings, json, remedies, totals};

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
    pub fn data_dir(&self) -> Result<PathBuf, Failure> {
        let flag = self.data_dir.clone().map(|value| Flag {
            name: "--data-dir",
            key: "server.data_dir",
            value,
        });
        let flags = flag.into_iter().collect();
        let layers =
            Layers { file: self.file.config.clone(), environment: None, flags, emulator: None };
        Ok(PathBuf::from(Loaded::load(&layers)?.config.server.data_dir))
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
    let disk = OsDisk::look_at(path).map_err(|error| match error.kind() {
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
