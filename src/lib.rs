//! The program `peeklock` as a library. A [`Host`] runs a broker as a process with configuration
//! file, metrics, logging, signals and command line, and accepts your own transports, forwarders,
//! authorizer and store. The program itself is a host without additions.
//!
//! Modules in reading order: `host` is the public type; `cli` reads the command line; `config`
//! loads the configuration; `server` runs `serve`; `registry` names all stores, authorizers,
//! transports and forwarders; `emulator` reads the files of Microsoft's emulator. `telemetry`,
//! `memory`, `restart`, `files` and `visible` are small helpers.
//!
//! A program that only needs a broker inside its own process uses the package `peeklock` instead.

mod cli;
mod config;
mod emulator;
mod files;
mod host;
mod memory;
mod registry;
mod restart;
mod server;
mod telemetry;
mod visible;

pub use host::{Connection, Host};
