//! The machines of a connection, its sessions and links, from scripts of frames: what happens, and which
//! frames are answered. Time is a number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a failure says how it is repeated")]

// The targets of fuzzing say whose macro it is.
extern crate self as libfuzzer_sys;

mod client;
mod corpus;
mod credit;
mod greeting;
mod handles;
mod limits;
mod links;
mod mutations;
mod receiving;
mod sending;
mod sessions;
mod targets;
mod writing;

use targets::fuzz_target;
