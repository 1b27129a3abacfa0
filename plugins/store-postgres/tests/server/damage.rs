//! Lost rows and damaged tables: nothing is acknowledged after them, and only their shard is closed.

use std::sync::mpsc::channel;

use peeklock_store::{Shard, Store, StoreError};
use peeklock_store_postgres::PostgresStore;
use peeklock_store_testing::block_on;

use crate::owner::{Owner, PATIENCE, count, exists, key, outcome, put};
use crate::support::{Server, schema_of};

/// CLU-10: after the loss of acknowledged rows, the shard stops and reports it. Others go on.
#[test]
fn shard_stops_when_acknowledged_rows_are_missing() {
    let server = Server::start("hole");
    // The last row is missing, or the epoch comes from the past.
    for loss in [
        "DELETE FROM log_0 WHERE id = (SELECT max(id) FROM log_0)",
        "UPDATE shards SET epoch = epoch - 1 WHERE shard = 0",
    ] {
        let config = server.empty_store();
        let store = PostgresStore::open_alone(&config).unwrap();
        let (mut owner, mut other) = (Owner::of(&store, 0), Owner::of(&store, 1));
        owner.put(&key(7, 1), b"stored");
        owner.put(&key(7, 2), b"lost later");
        other.put(&key(8, 1), b"stored");
        let (sender, watched) = channel();
        store.watch(Box::new(move |error| sender.send(error.to_string()).unwrap()));
        assert!(server.sql(&format!("SET search_path = {}; {loss}", schema_of(&config))));
        let error = outcome(&owner.send(put(&key(7, 3), b"behind a gap"))).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged(text) if text.contains("CLU-10")), "{error}");
        assert!(watched.recv_timeout(PATIENCE).unwrap().contains("CLU-10"));
        assert!(matches!(block_on(store.acquire(Shard(0))), Err(StoreError::Damaged(_))));
        assert!(matches!(count(&*store, 7), Err(StoreError::Damaged(_))));
        other.put(&key(8, 2), b"goes on");
        assert_eq!(count(&*store, 8).unwrap(), 2);
        assert!(store.close().is_err());
    }
}

/// CLU-10: a lost session leads to a look at the last row, even if nothing is sent.
#[test]
fn lost_rows_are_noticed_after_a_reconnection() {
    let server = Server::start("look");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"lost later");
    let (sender, watched) = channel();
    store.watch(Box::new(move |error| sender.send(error.to_string()).unwrap()));
    assert!(server.sql(&format!("DELETE FROM {}.log_0", schema_of(&config))));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE application_name LIKE 'peeklock %'";
    assert!(server.sql(end));
    assert!(watched.recv_timeout(PATIENCE).unwrap().contains("CLU-10"));
}

/// A damaged shard, two tables with one leaf, and a table of no shard: the store opens, and only
/// damaged shards are closed.
#[test]
fn damaged_shard_closes_only_itself() {
    let server = Server::start("damage");
    let config = server.empty_store();
    let schema = schema_of(&config);
    let store = PostgresStore::open_alone(&config).unwrap();
    for shard in 0..4 {
        Owner::of(&store, shard).put(&key(7 + u64::from(shard), 1), b"stored");
    }
    store.close().unwrap();
    drop(store);
    let flip = "UPDATE log_0 SET head = set_byte(head, 40, get_byte(head, 40) # 1)";
    let copy = "CREATE TABLE log_4097 (LIKE log_4096 INCLUDING ALL); \
        INSERT INTO log_4097 SELECT * FROM log_4096";
    let foreign = "CREATE TABLE log_99999999 (id bigint)";
    assert!(server.sql(&format!("SET search_path = {schema}; {flip}; {copy}; {foreign}")));
    let store = PostgresStore::open_alone(&config).unwrap();
    let (sender, watched) = channel();
    store.watch(Box::new(move |error| sender.send(error.clone()).unwrap()));
    assert!(matches!(watched.recv_timeout(PATIENCE), Ok(StoreError::Damaged(_))));
    for (shard, table) in [(0, "`log_0`"), (1, "`log_4097`")] {
        let error = block_on(store.acquire(Shard(shard))).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged(text) if text.contains(table)), "{error}");
        // The spaces of the shard are not known, so no space without records is called empty.
        assert!(matches!(count(&*store, 7), Err(StoreError::Damaged(_))));
        assert!(block_on(store.exists(&[key(7, 1)])).is_err());
    }
    for shard in 2..4 {
        let mut owner = Owner::of(&store, shard);
        owner.put(&key(7 + u64::from(shard), 2), b"goes on");
        assert_eq!(count(&*store, 7 + u64::from(shard)).unwrap(), 2);
        assert!(exists(&*store, &key(7 + u64::from(shard), 1)));
    }
}

/// A table that was dropped under the store ends its shard, with a text and without endless attempts.
#[test]
fn dropped_table_closes_its_shard() {
    let server = Server::start("drop");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"stored");
    assert!(server.sql(&format!("DROP TABLE {}.log_0", schema_of(&config))));
    let error = outcome(&owner.send(put(&key(7, 2), b"refused"))).unwrap_err();
    assert!(matches!(&error, StoreError::Damaged(text) if text.contains("log_0")), "{error}");
}
