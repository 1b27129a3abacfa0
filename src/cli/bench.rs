//! `peeklock bench`: the loads of the crate `peeklock-bench`.

use clap::Args;
use clap::error::ErrorKind;
pub use peeklock_bench::HELP;
use peeklock_bench::{BenchError, Contradiction, Flags};

use super::identity::TlsFiles;
use super::{Failure, say};
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
            BenchError::Interrupted => Self::Told(INTERRUPTED),
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Printed as clap prints flags that contradict each other.
impl From<Contradiction> for Failure {
    fn from(contradiction: Contradiction) -> Self {
        let error = clap::Error::raw(ErrorKind::ArgumentConflict, format!("{contradiction}\n"));
        // Without standard error there is no reader.
        error.print().unwrap_or_default();
        Self::Told(2)
    }
}

pub fn run(flags: &BenchFlags) -> Result<(), Failure> {
    let mut plan = flags.load.plan()?;
    plan.tls = flags.files.client(&[])?;
    plan.open_files_max = files::raise_limit();
    say(&flags.load.run(&plan)?)
}
