//! `peeklock config import`: converts the configuration file of Microsoft's emulator. `cli.rs`
//! dispatches to it, and `--emulator` reads the file in the same way.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use super::{Failure, print, terminal};
use crate::config::import as read;

pub const HELP: &str = "\
Examples:
  peeklock config import Config.json > peeklock.toml
  peeklock config import Config.json && peeklock config check --config peeklock.toml

Writes queues, topics, subscriptions and rules in the form of peeklock.toml. Properties that the \
file leaves out get the defaults of the emulator: 3 deliveries, and a duplicate detection window \
of 20 seconds. Unknown settings are left out and reported on standard error. `peeklock serve \
--emulator` reads the emulator's file directly.

Exit codes:
  0  written
  1  the file cannot be read
  2  the file is not valid; the error names the place";

#[derive(Args)]
pub struct ImportFlags {
    /// Configuration file of the emulator, such as Config.json
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn import(flags: &ImportFlags) -> Result<(), Failure> {
    let (config, notes) = read(&flags.file)?;
    let text =
        toml::to_string_pretty(&config).map_err(|error| Failure::Failed(error.to_string()))?;
    for note in notes {
        // If writing to standard error fails, the error cannot be reported.
        let _unheard = writeln!(io::stderr(), "note: {}", terminal::line(&note));
    }
    print(&terminal::toml(&text))
}
