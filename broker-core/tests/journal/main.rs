//! The journal against a disk that forgets, fails, fills up and rots (DESIGN D12).
//!
//! Written from the contract of [`peeklock_core::store`] alone: [`oracle`] says naively what must be
//! stored, [`judge`] what a crash may have taken, and neither knows how the journal works.
//!
//! - [`crash`]: any work, cut off anywhere, from a seed.
//! - [`faults`]: every call to the disk fails once.
//! - [`room`]: the disk is full.
//! - [`rot`]: every byte on the disk is wrong once.
//!
//! `PEEKLOCK_JOURNAL_SEEDS=100000` runs more seeds, `PEEKLOCK_JOURNAL_SEED=17` replays one with its
//! trace, `PEEKLOCK_JOURNAL_STEPS` sets their length, `PEEKLOCK_JOURNAL_ROT=all` turns every byte
//! around, also within large contents.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says which seed"
)]

mod book;
mod crash;
mod faults;
mod generator;
mod golden;
mod judge;
mod mended;
mod oracle;
mod room;
mod rot;
mod threads;
mod world;

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
