//! Tests of the machines of a connection, its sessions and links: scripts of frames go in, and the
//! tests check events and answers. Time is a number.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a failure says how it is repeated")]

// The fuzz targets name the crate of their macro.
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
