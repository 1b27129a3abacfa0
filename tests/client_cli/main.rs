//! The command line client behaves as its help documents: the built program against a running
//! broker, in pipes and on a terminal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod broker;
mod program;
// The pseudo-terminals use Linux calls.
#[cfg(target_os = "linux")]
mod terminal;

mod contexts;
mod dead_letters;
mod declaring;
mod help;
mod looking;
#[cfg(target_os = "linux")]
mod on_a_terminal;
mod policies;
mod queues;
mod receiving;
mod searching;
mod secure;
mod sending;
mod sessions;
mod topics;
mod watching;
