//! Every store of this crate passes the conformance suite of stores (DESIGN D11).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::channel;

use bytes::Bytes;
use peeklock_core::store::{
    Batch, Journal, JournalConfig, Key, MemoryStore, Shard, Store, Submission,
};
use peeklock_store_testing::{FaultStore, Lost, SimulatedDisk, block_on, store_conformance};

/// The memory store keeps the contract.
#[test]
fn memory_store_keeps_the_contract() {
    let failures = store_conformance::failures(
        &|capacity_bytes| Arc::new(MemoryStore::new(4, capacity_bytes)),
        None,
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// So does a store with one shard.
#[test]
fn memory_store_of_one_shard_keeps_the_contract() {
    let failures = store_conformance::failures(
        &|capacity_bytes| Arc::new(MemoryStore::new(1, capacity_bytes)),
        None,
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The fault store keeps it if no fault is commanded, with and without shared contents.
#[test]
fn fault_store_keeps_the_contract() {
    for separates_contents in [false, true] {
        let make = |capacity_bytes| -> Arc<dyn Store> {
            let store = FaultStore::at_once(2, capacity_bytes);
            if separates_contents {
                store.separate_contents();
            }
            store
        };
        let failures = store_conformance::failures(&make, None);
        assert!(failures.is_empty(), "{separates_contents}: {failures:#?}");
    }
}

/// CLU-07, CLU-16: it keeps the contract of a store that several brokers use.
#[test]
fn fault_store_keeps_the_contract_for_several_brokers() {
    let join = || {
        let place = FaultStore::at_once(2, u64::MAX);
        let (first, one) = place.join("first");
        let (second, other) = place.join("second");
        let members = [one, other];
        let stores: Vec<Arc<dyn Store>> = vec![first, second];
        store_conformance::Brokers {
            stores,
            end_lease: Box::new(move |at| members[at].end_lease()),
        }
    };
    let failures = store_conformance::failures_of_brokers(&join);
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Stores in memory can be forked, so that the scenarios of forks prove something. Stores on disk
/// cannot.
#[test]
fn stores_in_memory_have_forks() {
    let fault: Arc<dyn Store> = FaultStore::at_once(2, 1_000);
    assert!(MemoryStore::new(2, 1_000).fork().is_some() && fault.fork().is_some());
    let disk = Arc::new(SimulatedDisk::new(1));
    assert!(Journal::open_on(disk, small(u64::MAX)).unwrap().fork().is_none());
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

/// A journal with small limits, so that segments roll, records move and contents are read from
/// disk.
fn small(capacity_bytes: u64) -> JournalConfig {
    JournalConfig {
        segment_bytes: 64 << 10,
        cache_bytes: 10_000,
        capacity_bytes,
        free_bytes_min: 0,
        shard_count: 4,
    }
}

/// A journal on a simulated disk keeps the contract, also when another process opens its files.
#[test]
fn journal_on_a_simulated_disk_keeps_the_contract() {
    let disk = RefCell::new(SimulatedDisk::new(1));
    let open = |capacity_bytes| -> Arc<dyn Store> {
        Journal::open_on(Arc::new(disk.borrow().clone()), small(capacity_bytes)).unwrap()
    };
    let failures = store_conformance::failures(
        &|capacity_bytes| {
            disk.replace(SimulatedDisk::new(1));
            open(capacity_bytes)
        },
        Some(&|store| {
            store.close().unwrap();
            drop(store);
            let left = disk.borrow().kill(Lost::ReadAnew);
            disk.replace(left);
            open(u64::MAX)
        }),
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// So does a journal that is killed instead of closed: acknowledged batches are stored.
#[test]
fn killed_journal_keeps_the_contract() {
    let disk = RefCell::new(SimulatedDisk::new(1));
    let open = |capacity_bytes| -> Arc<dyn Store> {
        Journal::open_on(Arc::new(disk.borrow().clone()), small(capacity_bytes)).unwrap()
    };
    let failures = store_conformance::failures(
        &|capacity_bytes| {
            disk.replace(SimulatedDisk::new(1));
            open(capacity_bytes)
        },
        Some(&|store| {
            let left = disk.borrow().kill(Lost::ReadAnew);
            drop(store);
            disk.replace(left);
            open(u64::MAX)
        }),
    );
    assert!(failures.is_empty(), "{failures:#?}");
}

/// DESIGN D6: separately pinned content holds no memory of the journal, even if it is cached.
#[test]
fn separately_pinned_content_holds_no_memory_of_the_journal() {
    let config = JournalConfig { cache_bytes: 64 << 20, ..small(u64::MAX) };
    let journal = Journal::open_on(Arc::new(SimulatedDisk::new(1)), config).unwrap();
    let (fence, id) = block_on(journal.acquire(Shard(0))).unwrap();
    let key = Key::of_space(7).then(b"a");
    let mut batch = Batch::default();
    batch.put_with_content(&key, Bytes::from_static(b"body"), |_| {});
    let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
    let (told, outcome) = channel();
    journal.submit(submission, Box::new(move |stored| told.send(stored).unwrap()));
    outcome.recv().unwrap().unwrap();
    let mut contents = Vec::new();
    journal.pin(&[key], &mut contents);
    journal.pin_unloaded(&[key], &mut contents);
    let loaded = contents.iter().map(|content| content.as_ref().map(|one| one.loaded().is_some()));
    assert_eq!(loaded.collect::<Vec<_>>(), [Some(true), Some(false)]);
}
