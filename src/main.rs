//! The program `peeklock`: a broker as a process, and its tools. All parts are in the library, so
//! that other programs can use them.

use std::process::ExitCode;

use peeklock_server::Host;

/// Returns memory to the system after attacks, and usually takes less CPU time than the system's
/// allocator (decision 35).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    Host::new().run()
}
