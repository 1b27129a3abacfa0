//! Attempts of unknown outcome: each batch is stored once, and only after a confirmed commit.

use peeklock_store::{Store, StoreError};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};

use crate::owner::{Owner, count, key, outcome, put};
use crate::support::{Server, schema_of};

/// The epoch of the first shard.
fn epoch(server: &Server, config: &PostgresConfig) -> u64 {
    let question = format!("SELECT epoch FROM {}.shards WHERE shard = 0", schema_of(config));
    server.ask(&question).parse().unwrap()
}

/// CLU-07, CLU-08: after a lost session, the owner fences its own attempt before it repeats it. The
/// fence of the broker stays valid.
#[test]
fn own_epoch_is_raised_before_an_append_is_repeated() {
    let server = Server::start("raise");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"stored");
    let before = epoch(&server, &config);
    assert_eq!(before, owner.fence.epoch);
    let mut session = server.session();
    session.run(&format!("BEGIN; LOCK TABLE {}.log_0 IN SHARE MODE", schema_of(&config)));
    let waiting = owner.send(put(&key(7, 2), b"waits"));
    let blocked = "FROM pg_locks WHERE NOT granted AND relation IS NOT NULL";
    server.wait_for(&format!("SELECT count(*) {blocked}"), "1");
    assert!(server.sql(&format!("SELECT pg_terminate_backend(pid) {blocked}")));
    let question =
        format!("SELECT epoch > {before} FROM {}.shards WHERE shard = 0", schema_of(&config));
    server.wait_for(&question, "t");
    assert!(waiting.try_recv().is_err(), "nothing is stored yet");
    session.run("COMMIT");
    outcome(&waiting).unwrap();
    owner.put(&key(7, 3), b"under the same fence");
    assert_eq!(count(&*store, 7).unwrap(), 3);
    store.close().unwrap();
    drop((owner, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    assert_eq!(count(&*store, 7).unwrap(), 3);
}

/// CLU-08: an append whose wait for a standby was cancelled, or whose session was ended then, is
/// committed without a standby. It counts only after a later commit that a standby has confirmed.
#[test]
fn append_without_a_standby_counts_after_a_later_commit() {
    let server = Server::start("standby");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"stored");
    const WAITING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
        AND application_name LIKE 'peeklock %'";
    assert!(server.sql("CREATE TABLE probe (id int)"));
    for (number, act) in [(2, "pg_cancel_backend"), (3, "pg_terminate_backend")] {
        let before = epoch(&server, &config);
        server.set("synchronous_standby_names = 'nobody'");
        // The setting is in force when a commit waits.
        let mut probe = server.session();
        probe.send("INSERT INTO probe VALUES (1) \\watch 0.05\n");
        let probing = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.wait_for(probing, "t");
        let waiting = owner.send(put(&key(7, number), b"waits"));
        server.wait_for(&format!("SELECT count(*) {WAITING} AND query LIKE '%held AS%'"), "1");
        assert!(server.sql(&format!("SELECT {act}(pid) {WAITING}")));
        // The raise of the epoch waits for a standby too.
        server.wait_for(&format!("SELECT count(*) {WAITING} AND query LIKE 'UPDATE shards%'"), "1");
        assert!(waiting.try_recv().is_err(), "{act}: the commit is not confirmed");
        server.set("synchronous_standby_names = ''");
        outcome(&waiting).unwrap();
        assert!(epoch(&server, &config) > before);
    }
    owner.put(&key(7, 4), b"goes on");
    assert_eq!(count(&*store, 7).unwrap(), 4);
    store.close().unwrap();
    drop((owner, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    assert_eq!(count(&*store, 7).unwrap(), 4);
}

/// CLU-07: another owner comes while an outcome is unknown. The batch may be stored, so its error is
/// no fence, and the shard is closed.
#[test]
fn new_owner_during_an_unknown_outcome_ends_the_shard() {
    let server = Server::start("usurp");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"stored");
    let schema = schema_of(&config);
    let mut session = server.session();
    session.run(&format!("BEGIN; LOCK TABLE {schema}.log_0 IN SHARE MODE"));
    let waiting = owner.send(put(&key(7, 2), b"waits"));
    let blocked = "FROM pg_locks WHERE NOT granted AND relation IS NOT NULL";
    server.wait_for(&format!("SELECT count(*) {blocked}"), "1");
    let take = format!("UPDATE {schema}.shards SET epoch = epoch + 1, owner = 0");
    assert!(server.sql(&take));
    assert!(server.sql(&format!("SELECT pg_terminate_backend(pid) {blocked}")));
    let error = outcome(&waiting).unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    let later = outcome(&owner.send(put(&key(7, 3), b"late"))).unwrap_err();
    assert!(matches!(later, StoreError::Fenced { .. }), "{later}");
    session.run("COMMIT");
    assert_eq!(server.ask(&format!("SELECT count(*) FROM {schema}.log_0")), "1");
    assert!(store.close().is_err());
}
