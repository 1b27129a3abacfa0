//! The program `peeklock` as a library: [`Host`] is a broker as a process, with configuration file, metrics, logging,
//! signals and command line, and takes in transports, forwarders, an authorizer and a store of yours. The program
//! itself is one without additions.
//!
//! Who has a broker inside a program of his own needs the package `peeklock` alone.

mod bench;
mod cli;
mod config;
mod emulator;
mod files;
mod host;
mod http;
mod memory;
mod place;
mod registry;
mod server;
mod telemetry;
mod visible;

pub use host::{Connection, Host};
