//! Cleaning next to removals by another shard, and the recycling of tables.

use std::sync::Arc;

use peeklock_record::{Batch, Key};
use peeklock_store::{Shard, Store};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use peeklock_store_testing::block_on;

use crate::owner::{Owner, content, count, exists, key, outcome, put};
use crate::support::{Server, schema_of};

/// More than the largest content, and not the number at which a table is just full.
const GARBAGE: u64 = 78;

/// A store whose first shard has one record in use and much garbage, but no cleaning yet: another
/// shard has removed the rest.
fn store_with_garbage(config: &PostgresConfig, wanted: &Key, size: usize) -> [Owner; 2] {
    let store = PostgresStore::open_alone(config).unwrap();
    let (mut owner, mut other) = (Owner::of(&store, 0), Owner::of(&store, 1));
    owner.put(wanted, &vec![7; size]);
    for number in 0..GARBAGE {
        owner.put(&key(7, 1_000 + number), &[1; 60_000]);
    }
    let mut batch = Batch::default();
    for number in 0..GARBAGE {
        batch.delete_in(0, &key(7, 1_000 + number));
    }
    other.store(batch);
    [owner, other]
}

/// CLU-02: a transferred message does not come back when its record is written again at the same
/// time: neither in the memory of the broker, nor in the database.
#[test]
fn transferred_message_stays_away_under_cleaning() {
    let server = Server::start("transfer");
    for size in [100, 50_000, 2_500_000] {
        let config = PostgresConfig { leaf_bytes: 512 << 10, ..server.empty_store() };
        let schema = schema_of(&config);
        let wanted = key(7, 1);
        let [first, mut other] = store_with_garbage(&config, &wanted, size);
        let store = Arc::clone(&first.store);
        drop(first);
        // The appends of the first shard wait: its tables take no rows. An acquisition starts the
        // cleaner, and the raise of its epoch waits for no table.
        let tables = "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') \
            FROM pg_tables WHERE schemaname = '";
        let tables = server.ask(&format!("{tables}{schema}' AND tablename ~ '^log_[0-9]{{1,3}}$'"));
        let mut session = server.session();
        session.run(&format!("BEGIN; LOCK TABLE {tables} IN SHARE MODE"));
        block_on(store.acquire(Shard(0))).unwrap();
        server.wait_for(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IS NOT NULL",
            "1",
        );
        // The other shard takes the message over.
        let mut batch = put(&key(8, 1), &vec![7; size]);
        batch.delete_in(0, &wanted);
        other.store(batch);
        assert!(!exists(&*store, &wanted), "{size}");
        session.run("COMMIT");
        // The acquisition follows the records that are written again.
        let mut owner = Owner::of(&store, 0);
        assert!(!exists(&*store, &wanted), "{size}: it comes back in memory");
        owner.put(&key(7, 2), b"goes on");
        assert_eq!(count(&*store, 7).unwrap(), 1, "{size}");
        store.close().unwrap();
        drop((owner, other, store));
        let store = PostgresStore::open_alone(&config).unwrap();
        assert!(!exists(&*store, &wanted), "{size}: it comes back in the database");
        assert_eq!((count(&*store, 7).unwrap(), count(&*store, 8).unwrap()), (1, 1), "{size}");
        assert_eq!(content(&*store, &key(8, 1)), Some(vec![7; size]), "{size}");
        store.close().unwrap();
    }
}

/// CLU-12, CLU-13: with removals by another shard all the time, each message is in one shard, tables
/// are used again, and nothing is lost.
#[test]
fn messages_that_move_under_cleaning_exist_once() {
    const MESSAGES: u64 = 120;
    let server = Server::start("churn");
    let config = PostgresConfig { leaf_bytes: 256 << 10, ..server.empty_store() };
    let store = PostgresStore::open_alone(&config).unwrap();
    let (mut owner, mut other) = (Owner::of(&store, 0), Owner::of(&store, 1));
    let content_of = |number: u64| {
        let size = if number.is_multiple_of(10) { 1_300_000 } else { 3_000 };
        vec![u8::try_from(number).unwrap(); size]
    };
    for number in 0..MESSAGES {
        owner.put(&key(7, number), &content_of(number));
    }
    let garbage = std::thread::spawn(move || {
        for number in 0..150 {
            owner.put(&key(7, 10_000), &vec![1; 60_000 + number]);
        }
        owner
    });
    for number in 0..MESSAGES {
        let mut batch = put(&key(8, number), &content_of(number));
        batch.delete_in(0, &key(7, number));
        other.store(batch);
        assert!(!exists(&*store, &key(7, number)), "{number}");
    }
    let owner = garbage.join().unwrap();
    let check = |store: &PostgresStore| {
        assert_eq!(count(store, 7).unwrap(), 1);
        assert_eq!(count(store, 8).unwrap(), MESSAGES);
        for number in 0..MESSAGES {
            assert!(content(store, &key(8, number)) == Some(content_of(number)), "{number}");
        }
    };
    check(&store);
    store.close().unwrap();
    drop((owner, other, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    check(&store);
    store.close().unwrap();
}

/// CLU-07: the function that empties a table waits for an insert that has begun, and then leaves the
/// table alone. It does nothing under a past epoch, and nothing after a gap in the log.
#[test]
fn table_with_a_late_row_is_not_emptied() {
    let server = Server::start("recycle");
    let config = server.empty_store();
    let schema = schema_of(&config);
    let store = PostgresStore::open_alone(&config).unwrap();
    for shard in 0..2 {
        Owner::of(&store, shard).put(&key(7 + u64::from(shard), 1), b"stored");
    }
    store.close().unwrap();
    drop(store);
    let path = format!("SET search_path = {schema}");
    // The real function waits for 100 ms.
    let change = "ALTER FUNCTION recycle SET lock_timeout = '60s'";
    assert!(server.sql(&format!("{path}; {change}")));
    let epoch = server.ask(&format!("SELECT epoch FROM {schema}.shards WHERE shard = 0"));
    let tail = "SELECT id, encode(substring(head FROM 1 FOR 32), 'hex') FROM";
    let tail = server.ask(&format!("{tail} {schema}.log_4096 ORDER BY id DESC LIMIT 1"));
    let (id, meta) = tail.split_once('|').unwrap();
    let below = 2_u64 << 32;
    let recycle = |epoch: &str, id: &str| {
        format!(
            "SELECT recycle(0, {epoch}, 'log_0', {below}, 'log_4096', {id}, decode('{meta}', 'hex'))"
        )
    };
    let (mut inserter, mut recycler) = (server.session(), server.session());
    inserter.run(&format!("{path}; BEGIN; INSERT INTO log_0 VALUES ({below}, '', '')"));
    recycler.run(&path);
    recycler.send(&recycle(&epoch, id));
    server.wait_for(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'",
        "1",
    );
    inserter.run("COMMIT");
    assert_eq!(recycler.line(), "used");
    let rows = format!("SELECT count(*) FROM {schema}.log_0");
    assert_eq!(server.ask(&rows), "2");
    assert!(server.sql(&format!("DELETE FROM {schema}.log_0 WHERE id = {below}")));
    recycler.send(&recycle("0", id));
    assert_eq!(recycler.line(), "fenced");
    recycler.send(&recycle(&epoch, "77"));
    assert_eq!(recycler.line(), "hole");
    assert_eq!(server.ask(&rows), "1");
    recycler.send(&recycle(&epoch, id));
    assert_eq!(recycler.line(), "free");
    assert_eq!(server.ask(&rows), "0");
}

/// CLU-06: after its records are gone, a log still knows the highest id of a batch.
#[test]
fn order_goes_on_after_all_records_were_removed() {
    let server = Server::start("order");
    let config = PostgresConfig { leaf_bytes: 64 << 10, ..server.empty_store() };
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    let receivers: Vec<_> =
        (0..30).map(|number| owner.send(put(&key(7, number), &[1; 60_000]))).collect();
    receivers.iter().for_each(|receiver| outcome(receiver).unwrap());
    let mut batch = Batch::default();
    batch.delete_prefix(&Key::of_space(7));
    owner.store(batch);
    for _ in 0..20 {
        owner.store(Batch::default());
    }
    let next = owner.next;
    store.close().unwrap();
    drop((owner, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    assert_eq!(Owner::of(&store, 0).next, next);
}
