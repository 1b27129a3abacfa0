//! The broker through its public interface, a module for each topic.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../common/receive.rs"]
mod receive;

mod checks;
mod configured;
mod copies;
mod declarations;
mod disk;
mod filters;
mod forwarders;
mod inspection;
mod journeys;
mod loads;
mod looking;
mod migration;
mod namespace;
mod opening;
mod overlays;
mod own_commits;
mod parked;
mod peer;
mod policies;
mod searching;
mod series;
mod slices;
mod standby;
mod store_conformance;
mod tracer;
mod transactions;
mod turns;
mod unnamed;
