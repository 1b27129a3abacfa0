//! Leases and takeovers, as the keepers of brokers ask for them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use peeklock_store::registry::{Owner as Owned, Registry, SeenOwner};
use peeklock_store::{Store, StoreError};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use peeklock_store_testing::{block_on, store_conformance};

use crate::owner::{Owner, count, key, outcome};
use crate::support::{Server, schema_of};

/// A broker that has joined.
struct Joined {
    store: Arc<PostgresStore>,
    registry: Arc<dyn Registry>,
}

impl Joined {
    fn new(config: &PostgresConfig, name: &str) -> Self {
        // No lease ends by itself here.
        Self::with_lease(config, name, Duration::from_secs(3_600))
    }

    fn with_lease(config: &PostgresConfig, name: &str, lease: Duration) -> Self {
        let config = PostgresConfig { broker_name: name.to_owned(), lease, ..config.clone() };
        let store = PostgresStore::open(&config).unwrap();
        let registry = store.registry().unwrap();
        Self { store, registry }
    }

    fn owner(&self) -> Result<Owned, StoreError> {
        block_on(self.registry.renew(None)).map(|view| view.owner)
    }

    /// Takes the shards from the owner that it sees. Returns whether it owns them then.
    fn take(&self) -> bool {
        let from = match self.owner().unwrap() {
            Owned::Nobody => None,
            Owned::Other { seen, .. } => Some(seen),
            Owned::This => return true,
        };
        block_on(self.registry.take(from)).unwrap();
        self.owner().unwrap() == Owned::This
    }

    /// The other broker that owns the shards.
    fn seen(&self) -> SeenOwner {
        match self.owner().unwrap() {
            Owned::Other { seen, .. } => seen,
            owner => unreachable!("{owner:?}"),
        }
    }
}

/// Number of sessions that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

/// Two brokers. The first one owns the shards, and its lease is over.
struct Contested {
    first: Joined,
    second: Joined,
    /// The numbers of the second and of the first broker.
    numbers: [String; 2],
    /// The first broker, as the second one has seen it.
    seen: SeenOwner,
    server: Server,
}

impl Contested {
    /// Sessions of the server find the tables without the name of the schema.
    fn new(name: &str) -> Self {
        let server = Server::start(name);
        let config = server.empty_store();
        let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
        assert!(first.take());
        let seen = second.seen();
        end_lease(&server, &config, "first");
        let schema = schema_of(&config);
        assert!(server.sql(&format!("ALTER ROLE peeklock SET search_path = {schema}")));
        let number = |name: &str| {
            server.ask(&format!("SELECT incarnation FROM {schema}.brokers WHERE name = '{name}'"))
        };
        let numbers = [number("second"), number("first")];
        Self { first, second, numbers, seen, server }
    }
}

/// Ends the lease of a broker, as time does.
fn end_lease(server: &Server, config: &PostgresConfig, name: &str) {
    let schema = schema_of(config);
    let past = format!("UPDATE {schema}.brokers SET ends = '-infinity' WHERE name = '{name}'");
    assert!(server.sql(&past));
}

/// CLU-07, CLU-15, CLU-16, CLU-18, CLU-19: the contract of a store that several brokers use.
#[test]
fn postgres_conforms_for_several_brokers() {
    let server = Server::start("brokers");
    let join = || {
        let config = server.empty_store();
        let names = ["first", "second"];
        let stores = names.map(|name| Joined::new(&config, name).store as Arc<dyn Store>);
        let server = &server;
        store_conformance::Brokers {
            stores: stores.into(),
            end_lease: Box::new(move |at| end_lease(server, &config, names[at])),
        }
    };
    let failures = store_conformance::failures_of_brokers(&join);
    assert!(failures.is_empty(), "{failures:#?}");
}

/// CLU-16: a lease has the length that its own broker gives it: one with shorter leases does not
/// take the shards earlier.
#[test]
fn each_lease_has_the_length_of_its_broker() {
    let server = Server::start("length");
    let config = server.empty_store();
    let first = Joined::new(&config, "first");
    let second = Joined::with_lease(&config, "second", Duration::from_secs(30));
    assert_eq!((first.owner().unwrap(), second.owner().unwrap()), (Owned::Nobody, Owned::Nobody));
    let longer = format!(
        "SELECT name FROM {}.brokers WHERE ends > now() + interval '31 s'",
        schema_of(&config)
    );
    assert_eq!(server.ask(&longer), "first");
}

/// CLU-16, CLU-17: a renewal waits for a takeover that the server has begun, and reports the new
/// owner.
#[test]
fn renewal_sees_a_takeover_that_has_begun() {
    let place = Contested::new("begun");
    let mut taker = place.server.session();
    let ([second, first], SeenOwner { renewal, .. }) = (&place.numbers, place.seen);
    let take = format!("PERFORM take_shards({second}, {first}, {renewal})");
    taker.run(&format!("BEGIN; DO $$ BEGIN {take}; END $$"));
    let registry = Arc::clone(&place.first.registry);
    let renewed = thread::spawn(move || block_on(registry.renew(None)));
    place.server.wait_for(WAITING, "1");
    taker.run("COMMIT");
    let owner = renewed.join().unwrap().unwrap().owner;
    assert!(matches!(owner, Owned::Other { has_ended: false, .. }), "{owner:?}");
}

/// CLU-16, CLU-17: a takeover waits for a renewal that the server has begun, and does nothing then.
#[test]
fn takeover_sees_a_renewal_that_has_begun() {
    let place = Contested::new("renewal");
    let past = &place.numbers[1];
    let mut renewing = place.server.session();
    renewing.run(&format!(
        "BEGIN; DO $$ BEGIN PERFORM renew('first', {past}, false, 3600000, NULL, 50); END $$"
    ));
    let second = Arc::clone(&place.second.registry);
    let from = Some(place.seen);
    let taken = thread::spawn(move || block_on(second.take(from)));
    place.server.wait_for(WAITING, "1");
    renewing.run("COMMIT");
    taken.join().unwrap().unwrap();
    assert!(matches!(place.second.owner(), Ok(Owned::Other { has_ended: false, .. })));
}

/// CLU-16: renewals go on while a takeover waits.
#[test]
fn waiting_takeover_does_not_delay_renewals() {
    let place = Contested::new("renewals");
    let from = Some(place.seen);
    let mut other = place.server.session();
    other.run("BEGIN; UPDATE shards SET owner = owner");
    let second = Arc::clone(&place.second.registry);
    let taken = thread::spawn(move || block_on(second.take(from)));
    place.server.wait_for(WAITING, "1");
    for _ in 0..3 {
        assert_ne!(place.second.owner().unwrap(), Owned::This);
    }
    other.run("ROLLBACK");
    taken.join().unwrap().unwrap();
    assert_eq!(place.second.owner().unwrap(), Owned::This);
}

/// CLU-18: an append of the past owner that hangs in its session does not delay a takeover.
#[test]
fn hanging_append_does_not_delay_a_takeover() {
    let server = Server::start("hang");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
    assert!(first.take());
    let mut owner = Owner::of(&first.store, 0);
    owner.put(&key(7, 1), b"stored");
    let schema = schema_of(&config);
    // An append waits for this lock after it has locked the row of its shard.
    let mut other = server.session();
    other.run(&format!("BEGIN; LOCK TABLE {schema}.removed IN ACCESS EXCLUSIVE MODE"));
    let mut removal = peeklock_record::Batch::default();
    removal.delete_in(1, &key(8, 1));
    let waiting = owner.send(removal);
    server.wait_for(WAITING, "1");
    end_lease(&server, &config, "first");
    assert!(second.take());
    other.run("ROLLBACK");
    let hung = outcome(&waiting);
    assert!(matches!(hung, Err(StoreError::Unavailable(_))), "its session was ended: {hung:?}");
    assert_eq!(count(&*second.store, 7).map_err(drop), Err(()), "nothing is loaded yet");
    Owner::of(&second.store, 0);
    assert_eq!(count(&*second.store, 7).unwrap(), 1);
}

/// CLU-17, CLU-40: a name belongs to one live process. Another one gets it when its lease is over,
/// and the first one never renews again.
#[test]
fn name_belongs_to_one_process() {
    let server = Server::start("name");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "one"), Joined::new(&config, "one"));
    assert!(first.take());
    let refused = second.owner().unwrap_err();
    assert!(!refused.is_unavailable() && refused.to_string().contains("`one`"), "{refused}");
    end_lease(&server, &config, "one");
    assert!(matches!(second.owner(), Ok(Owned::Other { is_barred: true, .. })));
    let lost = first.owner();
    assert!(matches!(lost, Err(StoreError::Fenced { .. })), "{lost:?}");
    end_lease(&server, &config, "one");
    let lost = first.owner();
    assert!(matches!(lost, Err(StoreError::Fenced { .. })), "{lost:?}");
    assert!(second.take());
}

/// CLU-16, CLU-19: after the clock of the server was set, a lease ends at the right time. A broker
/// that has renewed since keeps its shards, although its lease seems to be over; and a lease that
/// seems to last for an hour is over after its length.
#[test]
fn leases_survive_a_set_clock() {
    let server = Server::start("clock");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
    assert!(first.take());
    let (seen, schema) = (second.seen(), schema_of(&config));
    assert_eq!(first.owner().unwrap(), Owned::This);
    assert_ne!(second.seen(), seen, "each renewal is seen");
    // The lease is over because the clock was set forward.
    end_lease(&server, &config, "first");
    block_on(second.registry.take(Some(seen))).unwrap();
    assert_eq!(first.owner().unwrap(), Owned::This);
    // The lease lasts longer because the clock was set back.
    let back = format!("UPDATE {schema}.brokers SET ends = now() + interval '2 h'");
    assert!(server.sql(&back));
    let seen = second.seen();
    let longest = format!("SELECT count(*) FROM {schema}.brokers WHERE ends > now() + lease");
    assert_eq!(server.ask(&longest), "0");
    assert_eq!(second.seen(), seen, "a shorter lease is no renewal");
}

/// CLU-15: a renewal that the server carries out after a later one changes nothing.
#[test]
fn late_renewal_changes_nothing() {
    let place = Contested::new("late");
    let at = |seconds: u64| Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds));
    for seconds in [7, 9] {
        block_on(place.first.registry.renew(at(seconds))).unwrap();
    }
    let late =
        format!("SELECT has_lease FROM renew('first', {}, false, 1, 5, 2)", place.numbers[1]);
    assert_eq!(place.server.ask(&late), "f");
    let view = block_on(place.second.registry.renew(None)).unwrap();
    assert_eq!(view.horizon, at(9));
    assert!(matches!(view.owner, Owned::Other { has_ended: false, .. }), "{view:?}");
}

/// CLU-16, CLU-19: a renewal that the server carries out after the broker has left brings its lease
/// not back, so that its name is free at once.
#[test]
fn late_renewal_of_a_closed_broker_changes_nothing() {
    let place = Contested::new("closed");
    place.first.store.close().unwrap();
    let late =
        format!("SELECT has_lease FROM renew('first', {}, false, 1, 5, 99)", place.numbers[1]);
    assert_eq!(place.server.ask(&late), "f");
    assert_eq!(place.second.owner().unwrap(), Owned::Nobody);
}

/// CLU-17: a broker whose row is gone gets no lease again.
#[test]
fn broker_without_a_row_gets_no_lease() {
    let server = Server::start("row");
    let config = server.empty_store();
    let (first, second) = (Joined::new(&config, "first"), Joined::new(&config, "second"));
    assert!(first.take());
    assert!(
        server.sql(&format!("DELETE FROM {}.brokers WHERE name = 'first'", schema_of(&config)))
    );
    assert!(matches!(first.owner(), Err(StoreError::Fenced { .. })));
    assert!(matches!(second.owner(), Ok(Owned::Other { is_barred: true, .. })));
    assert!(second.take());
}
