//! `peeklock bench`: the loads of the crate `peeklock-bench`. `cli.rs` dispatches to it.

use clap::Args;
use clap::error::ErrorKind;
pub use peeklock_bench::HELP;
use peeklock_bench::{BenchError, Contradiction, Flags};

use super::identity::TlsFiles;
use super::{Failure, print};
use crate::files;

/// Exit code after SIGINT or SIGTERM, as shells have it.
const INTERRUPTED: u8 = 130;

#[derive(Args)]
pub struct BenchFlags {
    #[command(flatten)]
    load: Flags,
    #[command(flatten)]
    files: TlsFiles,
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Interrupted => Self::Reported(INTERRUPTED),
            error => Self::Failed(error.to_string()),
        }
    }
}

pub fn run(flags: &BenchFlags) -> Result<(), Failure> {
    let mut plan = flags.load.plan().map_err(|contradiction| misused(&contradiction))?;
    plan.tls = flags.files.client(&[])?;
    plan.open_files_max = files::raise_limit();
    print(&flags.load.run(&plan)?)
}

/// Prints a contradiction as clap does.
fn misused(contradiction: &Contradiction) -> Failure {
    let error = clap::Error::raw(ErrorKind::ArgumentConflict, format!("{contradiction}\n"));
    // Without standard error there is no reader.
    error.print().unwrap_or_default();
    Failure::Reported(2)
}
