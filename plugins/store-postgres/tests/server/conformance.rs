//! The suite that every store must pass, on a real server (CLU-06, CLU-07).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use peeklock_store::Store;
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use peeklock_store_testing::store_conformance;

use crate::support::Server;

#[test]
fn postgres_conforms() {
    let server = Server::start("conform");
    let configs: Mutex<HashMap<usize, PostgresConfig>> = Mutex::default();
    let place_of = |store: &Arc<dyn Store>| Arc::as_ptr(store).cast::<u8>() as usize;
    let open = |config: PostgresConfig| {
        let store: Arc<dyn Store> = PostgresStore::open_alone(&config).unwrap();
        configs.lock().unwrap().insert(place_of(&store), config);
        store
    };
    let make = |capacity_bytes| {
        // Small leaves and a small cache, so that leaves are emptied and contents are read.
        open(PostgresConfig {
            capacity_bytes,
            cache_bytes: 256 << 10,
            leaf_bytes: 512 << 10,
            ..server.empty_store()
        })
    };
    let reopen = |store: Arc<dyn Store>| {
        let config = configs.lock().unwrap().get(&place_of(&store)).cloned().unwrap();
        store.close().unwrap();
        drop(store);
        open(config)
    };
    let failures = store_conformance::failures(&make, Some(&reopen));
    assert!(failures.is_empty(), "{failures:#?}");
}
