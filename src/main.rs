//! The program `peeklock`: a broker as a process, and its tools.

use std::process::ExitCode;

use peeklock_server::Host;

/// Gives back what attackers made it take, and takes less of the CPU than the system's under most loads (decision 35).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    Host::new().run()
}
