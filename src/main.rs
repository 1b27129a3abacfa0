//! The program `peeklock`: a broker as a process, and its tools.

mod bench;
mod cli;
mod config;
mod emulator;
mod files;
mod http;
mod memory;
mod place;
mod registry;
mod server;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
