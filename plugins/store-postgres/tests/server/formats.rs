//! Databases of other versions.

use peeklock_store::Store as _;
use peeklock_store_postgres::PostgresStore;

use crate::owner::{Owner, count, key};
use crate::support::{Server, schema_of};

/// The function of amendments of the format without leases.
const AMEND: &str = "amend(bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], bytea[])";

/// CLU-07, CLU-44: a broker of the format without leases is not robbed of its shards. When it has
/// ended, the format is changed, and everything of that format is fenced. Its brokers refuse the
/// database, after they have made their function of amendments; the next start removes it.
#[test]
fn format_without_leases_is_changed_when_no_broker_uses_it() {
    let server = Server::start("format");
    let config = server.empty_store();
    let schema = schema_of(&config);
    let store = PostgresStore::open_alone(&config).unwrap();
    Owner::of(&store, 0).put(&key(7, 1), b"stored");
    store.close().unwrap();
    drop(store);
    let past = format!(
        "SET search_path = {schema}; UPDATE cluster SET format = 1; DROP TABLE brokers; \
         UPDATE shards SET owner = -7; \
         CREATE FUNCTION {AMEND} RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    );
    assert!(server.sql(&past));
    let format = format!("SELECT format FROM {schema}.cluster");
    let epochs = format!("SELECT sum(epoch) FROM {schema}.shards");
    let before: u64 = server.ask(&epochs).parse().unwrap();
    // The session of a broker of that format.
    let mut running = server.session();
    running.run(&format!(
        "SET search_path = {schema}; DO $$ BEGIN \
         PERFORM pg_advisory_lock(1885693291, hashtext(current_schema())); END $$"
    ));
    let refused = PostgresStore::open(&config).err().unwrap().to_string();
    assert!(refused.contains("older version") && refused.contains("stop that broker"), "{refused}");
    assert_eq!((server.ask(&format), server.ask(&epochs)), ("1".to_owned(), before.to_string()));
    drop(running);
    let store = PostgresStore::open(&config).unwrap();
    assert_eq!(server.ask(&format), "2");
    assert_eq!(server.ask(&epochs), (before + 4).to_string(), "each shard has a new epoch");
    let free = format!("SELECT count(*) FROM {schema}.shards WHERE owner = 0");
    assert_eq!(server.ask(&free), "4");
    let functions = format!(
        "SELECT count(*) FROM pg_proc WHERE proname = 'amend' \
         AND pronamespace = '{schema}'::regnamespace"
    );
    assert_eq!(server.ask(&functions), "1");
    drop(store);
    // Such a broker is started by mistake.
    assert!(server.sql(&format!(
        "SET search_path = {schema}; \
         CREATE FUNCTION {AMEND} RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )));
    let store = PostgresStore::open_alone(&config).unwrap();
    Owner::of(&store, 0);
    assert_eq!(count(&*store, 7).unwrap(), 1);
    assert_eq!(server.ask(&functions), "1");
    store.close().unwrap();
}

/// CLU-44: a later format is refused, both formats are named, and nothing is changed.
#[test]
fn later_format_is_refused_unchanged() {
    let server = Server::start("later");
    let config = server.empty_store();
    let schema = schema_of(&config);
    PostgresStore::open(&config).unwrap().close().unwrap();
    let later = format!(
        "SET search_path = {schema}; UPDATE cluster SET format = 3; DROP FUNCTION take_shards"
    );
    assert!(server.sql(&later));
    let refused = PostgresStore::open(&config).err().unwrap().to_string();
    assert!(refused.contains("has format 3") && refused.contains("knows 2"), "{refused}");
    let functions = format!(
        "SELECT count(*) FROM pg_proc WHERE proname = 'take_shards' \
         AND pronamespace = '{schema}'::regnamespace"
    );
    assert_eq!(server.ask(&functions), "0");
}
