//! Leases and takeovers, as the keepers of brokers ask for them.

use std::sync::Arc;
use std::time::Duration;

use peeklock_store::registry::{Owner as Owned, Registry};
use peeklock_store::{Shard, Store, StoreError};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use peeklock_store_testing::block_on;

use crate::owner::{Owner, count, key, outcome, put};
use crate::support::{Server, schema_of};

/// A broker that has joined.
struct Joined {
    store: Arc<PostgresStore>,
    registry: Arc<dyn Registry>,
}

impl Joined {
    fn new(config: &PostgresConfig, name: &str) -> Self {
        // The server is asked whether leases are over; none ends by itself here.
        let lease = Duration::from_secs(3_600);
        let config = PostgresConfig { broker_name: name.to_owned(), lease, ..config.clone() };
        let store = PostgresStore::open(&config).unwrap();
        let registry = store.registry().unwrap();
        Self { store, registry }
    }

    fn owner(&self) -> Result<Owned, StoreError> {
        block_on(self.registry.renew()).map(|view| view.owner)
    }

    /// Takes the shards from the owner that it sees.
    fn take(&self) {
        let from = match self.owner().unwrap() {
            Owned::Nobody => None,
            Owned::Other { incarnation, .. } => Some(incarnation),
            Owned::This => panic!("it owns the shards"),
        };
        block_on(self.registry.take(from)).unwrap();
    }
}

/// Ends the lease of a broker, as time does.
fn end_lease(server: &Server, config: &PostgresConfig, name: &str) {
    let schema = schema_of(config);
    let past = format!("UPDATE {schema}.brokers SET renewed = '-infinity' WHERE name = '{name}'");
    assert!(server.sql(&past));
}

/// CLU-07, CLU-16: a standby takes the shards when the lease of the owner is over, and not before.
/// It has everything that was acknowledged, and the past owner stores nothing more and cannot take
/// the shards back.
#[test]
fn standby_takes_shards_after_the_lease() {
    let server = Server::start("standby");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
    assert_eq!(first.owner().unwrap(), Owned::Nobody);
    first.take();
    assert_eq!(first.owner().unwrap(), Owned::This);
    let mut owner = Owner::of(&first.store, 0);
    owner.put(&key(7, 1), b"stored");
    second.take();
    let Owned::Other { name, has_ended, .. } = second.owner().unwrap() else {
        panic!("the lease of the owner is in force")
    };
    assert_eq!((&*name, has_ended), ("first", false));
    let refused = block_on(second.store.acquire(Shard(0)));
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");

    let third = Joined::new(&config, "third");
    end_lease(&server, &config, "first");
    third.take();
    assert_eq!(third.owner().unwrap(), Owned::This);
    let late = outcome(&owner.send(put(&key(7, 2), b"late")));
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert!(block_on(first.store.acquire(Shard(0))).is_err(), "it takes nothing back");
    let mut next = Owner::of(&third.store, 0);
    assert_eq!(count(&*third.store, 7).unwrap(), 1);
    next.put(&key(7, 3), b"stored");
    // A closed store leaves its shards at once.
    third.store.close().unwrap();
    let fourth = Joined::new(&config, "fourth");
    fourth.take();
    assert_eq!(fourth.owner().unwrap(), Owned::This);
    Owner::of(&fourth.store, 0);
    assert_eq!(count(&*fourth.store, 7).unwrap(), 2);
}

/// CLU-16: of two brokers that take at once, one owns the shards.
#[test]
fn one_of_two_takeovers_succeeds() {
    let server = Server::start("race");
    let config = server.empty_store();
    let brokers = [Joined::new(&config, "first"), Joined::new(&config, "second")];
    for broker in &brokers {
        assert_eq!(broker.owner().unwrap(), Owned::Nobody);
    }
    for broker in &brokers {
        block_on(broker.registry.take(None)).unwrap();
    }
    let owners = brokers.iter().filter(|broker| broker.owner().unwrap() == Owned::This);
    assert_eq!(owners.count(), 1);
}

/// CLU-18: an append of the past owner that hangs in its session does not delay a takeover.
#[test]
fn hanging_append_does_not_delay_a_takeover() {
    let server = Server::start("hang");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
    first.take();
    let mut owner = Owner::of(&first.store, 0);
    owner.put(&key(7, 1), b"stored");
    let schema = schema_of(&config);
    // An append waits for this lock after it has locked the row of its shard.
    let mut other = server.session();
    other.run(&format!("BEGIN; LOCK TABLE {schema}.removed IN ACCESS EXCLUSIVE MODE"));
    let mut removal = peeklock_record::Batch::default();
    removal.delete_in(1, &key(8, 1));
    let waiting = owner.send(removal);
    server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", "1");
    end_lease(&server, &config, "first");
    second.take();
    assert_eq!(second.owner().unwrap(), Owned::This);
    other.run("ROLLBACK");
    assert!(outcome(&waiting).is_err());
    assert_eq!(count(&*second.store, 7).map_err(drop), Err(()), "nothing is loaded yet");
    Owner::of(&second.store, 0);
    assert_eq!(count(&*second.store, 7).unwrap(), 1);
}

/// CLU-40: a name belongs to one live process.
#[test]
fn second_process_of_a_name_is_refused() {
    let server = Server::start("name");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "one"), Joined::new(&config, "one"));
    first.owner().unwrap();
    let refused = second.owner().unwrap_err();
    assert!(!refused.is_unavailable() && refused.to_string().contains("`one`"), "{refused}");
    end_lease(&server, &config, "one");
    second.owner().unwrap();
    assert!(first.owner().is_err());
}
