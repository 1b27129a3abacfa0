//! The journal on a disk that forgets, fails, fills up and rots (DESIGN D12).
//!
//! Written only from the contract of [`peeklock_core::store`]: [`oracle`] is a naive model of the
//! stored records, [`judge`] decides which data a crash may lose, and neither knows how the journal
//! works.
//!
//! - [`crash`]: any work, interrupted anywhere, from a seed.
//! - [`faults`]: every disk call fails once.
//! - [`here`]: a submitter commits its own batch.
//! - [`room`]: the disk is full.
//! - [`rot`]: every byte on the disk is wrong once.
//!
//! `PEEKLOCK_JOURNAL_SEEDS=100000` runs more seeds, `PEEKLOCK_JOURNAL_SEED=17` repeats one with its
//! trace, `PEEKLOCK_JOURNAL_STEPS` sets their length, `PEEKLOCK_JOURNAL_ROT=all` flips every byte,
//! also within large contents.
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
mod here;
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
