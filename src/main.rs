//! The program `peeklock`: a broker as a process, and its tools.

use std::process::ExitCode;

use peeklock_server::Host;

fn main() -> ExitCode {
    Host::new().run()
}
