//! Does the command line client do what its help says? The built program against a running broker, in
//! pipes and on a terminal, as people and scripts use it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod broker;
mod program;
// Pseudo-terminals are made in the way of Linux.
#[cfg(target_os = "linux")]
mod terminal;

mod contexts;
mod dead_letters;
mod declaring;
mod help;
#[cfg(target_os = "linux")]
mod on_a_terminal;
mod policies;
mod queues;
mod receiving;
mod secure;
mod sending;
mod sessions;
mod topics;
mod watching;
