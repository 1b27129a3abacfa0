//! `peeklock serve`: runs a broker until a signal or a failure ends it. `cli.rs` dispatches to it;
//! `server.rs` does the work.

use std::os::unix::process::CommandExt as _;

use futures_util::FutureExt as _;

use super::{Failure, ServeFlags};
use crate::config::Loaded;
use crate::server::End;
use crate::{Host, memory, restart, server, telemetry};

pub fn serve(flags: &ServeFlags, host: Host) -> Result<(), Failure> {
    memory::set_allocator_options();
    let loaded = Loaded::load(&flags.layers()?)?;
    telemetry::start(&loaded.config.log);
    // One thread is enough: the broker and the transports have their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(server::serve(&loaded, host).boxed_local());
    // A store that is still being opened must not delay the end.
    runtime.shutdown_background();
    match end? {
        End::Stopped => Ok(()),
        End::Lost => Err(start_again()),
    }
}

/// Starts the program again in this process, so that a service manager keeps its service, and every
/// thread and lock of the past owner is gone. Returns only if that fails.
fn start_again() -> Failure {
    let problem = match restart::this_program() {
        Some(mut program) => program.exec().to_string(),
        None => "its name is not known".to_owned(),
    };
    Failure::Failed(format!(
        "another broker serves the clients now, and this program cannot start again as a standby: \
         {problem}; start it"
    ))
}
