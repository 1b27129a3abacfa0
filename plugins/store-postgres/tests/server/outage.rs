//! The store and the end of its server, its sessions, or of itself.

use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use peeklock_store::{Shard, Shortage, Store, StoreError};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use peeklock_store_testing::block_on;

use crate::owner::{Outcome, Owner, PATIENCE, count, exists, key, outcome, put};
use crate::support::{Server, schema_of};

/// CLU-06, CLU-08: batches wait for a killed server, are repeated, and each is stored once.
#[test]
fn batches_are_stored_once_over_kills_of_the_server() {
    const ROUNDS: u64 = 5;
    const BATCHES: u64 = 200;
    let mut server = Server::start("kill");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    for _ in 0..ROUNDS {
        let first = owner.next;
        let batches = (first..first + BATCHES).map(|id| put(&key(7, id), &[7; 400]));
        let receivers: Vec<_> = batches.map(|batch| owner.send(batch)).collect();
        outcome(&receivers[0]).unwrap();
        server.kill();
        server.restart();
        for receiver in &receivers[1..] {
            outcome(receiver).unwrap();
        }
    }
    assert_eq!(count(&*store, 7).unwrap(), ROUNDS * BATCHES);
    store.close().unwrap();
    let next = owner.next;
    drop((owner, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    assert_eq!(count(&*store, 7).unwrap(), ROUNDS * BATCHES);
    assert_eq!(Owner::of(&store, 0).next, next, "the order goes on");
}

/// CLU-07: a second broker is refused while the first one runs; after it, the first stores nothing,
/// and answers nothing from its memory.
#[test]
fn second_broker_is_refused_and_a_past_one_fenced() {
    let server = Server::start("two");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let (mut owner, mut other) = (Owner::of(&store, 0), Owner::of(&store, 1));
    owner.put(&key(7, 1), b"stored");
    other.put(&key(8, 1), b"stored");
    let second = PostgresConfig { broker_name: "second".to_owned(), ..config.clone() };
    let refused = PostgresStore::open_alone(&second).err().unwrap().to_string();
    let name = &config.broker_name;
    assert!(refused.contains(&format!("the broker `{name}` uses the database")), "{refused}");
    // Another owner comes although this one runs, as after a lost session.
    let schema = schema_of(&config);
    let take = format!("UPDATE {schema}.shards SET epoch = epoch + 1, owner = 0 WHERE shard = 0");
    assert!(server.sql(&take));
    let (sender, watched) = channel();
    store.watch(Box::new(move |error| sender.send(error.clone()).unwrap()));
    let fenced = outcome(&owner.send(put(&key(7, 2), b"late")));
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert!(matches!(watched.recv_timeout(PATIENCE), Ok(StoreError::Fenced { .. })));
    assert!(matches!(block_on(store.acquire(Shard(0))), Err(StoreError::Fenced { .. })));
    assert!(matches!(count(&*store, 7), Err(StoreError::Fenced { .. })));
    assert!(block_on(store.exists(&[key(7, 1)])).is_err());
    other.put(&key(8, 2), b"stored");
    assert_eq!(count(&*store, 8).unwrap(), 2, "the other shard goes on");
}

/// CLU-06: a server that refuses the broker for a while is an outage: nothing fails, and everything
/// goes on when the server accepts the broker again.
#[test]
fn refusal_after_the_opening_is_an_outage() {
    let server = Server::start("refused");
    let config = server.empty_store();
    let schema = schema_of(&config);
    assert!(server.sql("CREATE ROLE broker LOGIN"));
    assert!(server.sql(&format!("GRANT ALL ON SCHEMA {schema} TO broker")));
    let url = config.url.replace("user=peeklock", "user=broker");
    let store = PostgresStore::open_alone(&PostgresConfig { url, ..config.clone() }).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 1), b"stored");
    assert!(server.sql("ALTER ROLE broker NOLOGIN"));
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'broker'";
    assert!(server.sql(end));
    let waiting = owner.send(put(&key(7, 2), b"waits"));
    let error = count(&*store, 7).unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    let shortage = store.shortage(1);
    assert!(
        matches!(&shortage, Some(Shortage::DatabaseAway { problem })
            if problem.contains("not permitted to log in")),
        "{shortage:?}"
    );
    assert!(waiting.try_recv().is_err());
    assert!(server.sql("ALTER ROLE broker LOGIN"));
    outcome(&waiting).unwrap();
    assert_eq!(count(&*store, 7).unwrap(), 2);
    store.close().unwrap();
}

/// CLU-06: every batch is completed once when the store is closed without its database, soon.
#[test]
fn close_without_a_database_completes_every_batch_once() {
    let mut server = Server::start("close");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owners = [Owner::of(&store, 0), Owner::of(&store, 1), Owner::of(&store, 2)];
    let space = |owner: &Owner| 7 + u64::from(owner.fence.shard.0);
    owners.iter_mut().for_each(|owner| owner.put(&key(space(owner), 1), b"stored"));
    server.kill();
    let mut receivers = Vec::new();
    for number in 10..110 {
        for owner in &mut owners {
            receivers.push(owner.send(put(&key(space(owner), number), b"waits")));
        }
    }
    let begin = Instant::now();
    let closed = store.close();
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(matches!(closed, Err(StoreError::Unavailable(_))), "{closed:?}");
    for receiver in receivers {
        // The last process of the server may have stored the first ones.
        let outcomes: Vec<Outcome> = receiver.iter().collect();
        let is_one = matches!(outcomes[..], [Ok(()) | Err(StoreError::Unavailable(_))]);
        assert!(is_one, "{outcomes:?}");
    }
    let late = owners[0].send(put(&key(7, 999), b"late"));
    assert!(outcome(&late).is_err());
    server.restart();
    drop((owners, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    for owner in 0..3 {
        Owner::of(&store, owner);
    }
    store.close().unwrap();
}

/// CLU-06: a batch that the database holds up is completed when the store is closed, and one that
/// it takes is stored.
#[test]
fn close_stores_waiting_batches() {
    let server = Server::start("drain");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    let receivers: Vec<_> =
        (0..500).map(|number| owner.send(put(&key(7, number), &[1; 3_000]))).collect();
    store.close().unwrap();
    for receiver in receivers {
        let outcomes: Vec<Outcome> = receiver.iter().collect();
        assert!(matches!(outcomes[..], [Ok(())]), "{outcomes:?}");
    }
    drop((owner, store));
    let store = PostgresStore::open_alone(&config).unwrap();
    assert_eq!(count(&*store, 7).unwrap(), 500);
    assert!(exists(&*store, &key(7, 499)));
    let mut owner = Owner::of(&store, 0);
    // The last batch waits for a lock that never ends.
    let mut session = server.session();
    session.run(&format!("BEGIN; LOCK TABLE {}.shards IN EXCLUSIVE MODE", schema_of(&config)));
    let held = owner.send(put(&key(7, 1_000), b"held up"));
    assert!(store.close().is_err());
    let outcomes: Vec<Outcome> = held.iter().collect();
    assert!(matches!(outcomes[..], [Err(StoreError::Unavailable(_))]), "{outcomes:?}");
}

/// A bounded number of batches waits for the database. A batch over it is refused at once, and the
/// shard goes on after it was acquired again.
#[test]
fn batches_over_the_bound_are_refused() {
    // More than the bound and a whole append together.
    const BATCHES: u64 = 90_000;
    let server = Server::start("bound");
    let config = server.empty_store();
    let store = PostgresStore::open_alone(&config).unwrap();
    let mut owner = Owner::of(&store, 0);
    owner.put(&key(7, 0), b"stored");
    let mut session = server.session();
    session.run(&format!("BEGIN; LOCK TABLE {}.log_0 IN SHARE MODE", schema_of(&config)));
    let mut receivers: Vec<_> =
        (1..=BATCHES).map(|number| owner.send(put(&key(7, number), &[1; 100]))).collect();
    let last = outcome(&receivers.pop().unwrap()).unwrap_err();
    assert!(last.to_string().contains("too many batches wait"), "{last}");
    session.run("COMMIT");
    let outcomes: Vec<Outcome> = receivers.iter().map(outcome).collect();
    let stored = outcomes.partition_point(|outcome| outcome.is_ok());
    assert!(stored > 60_000 && outcomes[stored..].iter().all(|outcome| outcome.is_err()));
    Owner::of(&store, 0).put(&key(7, BATCHES), b"goes on");
    let count = count(&*store, 7).unwrap();
    assert_eq!(usize::try_from(count).unwrap(), stored + 2);
    store.close().unwrap();
}

/// CLU-19, CLU-47: a server that accepts connections and answers nothing, as one whose disk hangs,
/// is left for the next one of the address.
#[test]
fn hanging_server_is_left_for_the_next_one() {
    let server = Server::start("next");
    let config = server.empty_store();
    let silent = std::env::temp_dir().join(format!("pl-silent-{}", std::process::id()));
    std::fs::create_dir_all(&silent).unwrap();
    let socket = silent.join(".s.PGSQL.5432");
    let listener = UnixListener::bind(&socket).unwrap();
    let url = config.url.replacen("host=", &format!("host={},", silent.display()), 1);
    // No standby confirms its commits.
    let config = PostgresConfig { url, i_know: true, ..config };
    let store = PostgresStore::open_alone(&config).unwrap();
    Owner::of(&store, 0).put(&key(7, 1), b"stored");
    store.close().unwrap();
    drop(listener);
    std::fs::remove_dir_all(silent).unwrap();
}
