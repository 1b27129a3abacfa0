//! Every store of this crate passes the one suite of all stores (DESIGN D11).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use peeklock_core::store::{Journal, JournalConfig, MemoryStore, Store};
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

/// The journal in a directory keeps the contract, also over a reopening.
#[test]
fn journal_keeps_the_contract() {
    for segment_bytes in [16 << 10, 64 << 20] {
        let root = std::env::temp_dir().join(format!("peeklock-{}", std::process::id()));
        let count = std::cell::Cell::new(0);
        let config = |capacity_bytes| JournalConfig {
            segment_bytes,
            capacity_bytes,
            free_bytes_min: 0,
            shard_count: 4,
            ..JournalConfig::default()
        };
        let path = || root.join(count.get().to_string());
        let make = |capacity_bytes| -> Arc<dyn Store> {
            count.set(count.get() + 1);
            Journal::open(&path(), config(capacity_bytes)).unwrap()
        };
        let reopen = |store: Arc<dyn Store>| -> Arc<dyn Store> {
            store.close().unwrap();
            Journal::open(&path(), config(u64::MAX)).unwrap()
        };
        let failures = store_conformance::failures(&make, Some(&reopen));
        std::fs::remove_dir_all(&root).unwrap();
        assert!(failures.is_empty(), "segments of {segment_bytes} bytes: {failures:#?}");
    }
}
