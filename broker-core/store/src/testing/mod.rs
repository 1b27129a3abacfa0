//! The test kit: a store that fails on command, and the suite that every store must pass.
//!
//! Behind the feature `testing`, for the tests of this workspace and of extensions. Absent on
//! purpose: anything that a running broker needs.

pub mod fault_store;
mod held_reads;
pub mod random;
pub mod simulated_disk;
pub mod store_conformance;

pub use fault_store::{Crash, Fate, FaultStore, Odds, Room};
pub use random::Random;
pub use simulated_disk::{Call, Fault, Lost, Names, SimulatedDisk};
