//! Every store of this crate passes the one suite of all stores (DESIGN D11).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use peeklock_core::store::{MemoryStore, Store};
use peeklock_core::testing::{FaultStore, store_conformance};

/// The store in memory keeps the contract.
#[test]
fn memory_store_keeps_the_contract() {
    let failures = store_conformance::failures(
        &|capacity_bytes| Arc::new(MemoryStore::new(4, capacity_bytes)),
        None,
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A store with one shard keeps it too.
#[test]
fn memory_store_of_one_shard_keeps_the_contract() {
    let failures = store_conformance::failures(
        &|capacity_bytes| Arc::new(MemoryStore::new(1, capacity_bytes)),
        None,
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The store that fails on command keeps it as long as nothing is commanded.
#[test]
fn fault_store_keeps_the_contract() {
    let failures = store_conformance::failures(
        &|capacity_bytes| -> Arc<dyn Store> { FaultStore::at_once(2, capacity_bytes) },
        None,
    );
    assert!(failures.is_empty(), "{failures:#?}");
}
