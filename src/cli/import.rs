//! `peeklock config import`: the configuration file of Microsoft's emulator, as ours.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::{Failure, say, terminal};
use crate::config::import as read;

pub const HELP: &str = "\
Examples:
  peeklock config import Config.json > peeklock.toml
  peeklock config import Config.json && peeklock config check --config peeklock.toml

Queues, topics, subscriptions and rules are written as peeklock.toml declares them. What the file leaves out has the \
defaults of the emulator: 3 deliveries, and 20 seconds in which message ids are remembered. What is not known is told on \
standard error and left out. `peeklock serve --emulator` takes the file as it is.

Exit codes:
  0  written
  1  the file cannot be read
  2  the file means nothing that could be served; the place in it is told";

#[derive(Args)]
pub struct ImportFlags {
    /// The emulator's configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn import(flags: &ImportFlags) -> Result<(), Failure> {
    let (config, notes) = read(&flags.file)?;
    let text =
        toml::to_string_pretty(&config).map_err(|error| Failure::Failed(error.to_string()))?;
    for note in notes {
        // Without standard error nobody is there to be told.
        let _unheard = writeln!(io::stderr(), "note: {}", terminal::line(&note));
    }
    say(&terminal::toml(&text))
}
