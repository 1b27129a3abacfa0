//! Connections with and without TLS.

use std::time::{Duration, Instant};

use peeklock_store::{Store, StoreError};
use peeklock_store_postgres::{PostgresConfig, PostgresStore};
use rcgen::{CertificateParams, KeyPair};

use crate::owner::{Owner, key};
use crate::support::Server;

/// CLU-48: on loopback, a certificate that nobody signed does no harm. Where TLS is wanted, it is
/// refused at once, with the remedy, and accepted if it is trusted.
#[test]
fn certificate_counts_where_tls_is_wanted() {
    let pair = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&pair).unwrap();
    let server = Server::start_with_tls("tls", &certificate.pem(), &pair.serialize_pem());
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name LIKE 'peeklock %'";
    let plain = server.empty_store_on_loopback();
    let store = PostgresStore::open_alone(&plain).unwrap();
    Owner::of(&store, 0).put(&key(7, 1), b"stored");
    assert_eq!(server.ask(encrypted), "f");
    store.close().unwrap();
    drop(store);

    let url = format!("{} sslmode=require", server.empty_store_on_loopback().url);
    let wanted = PostgresConfig { url, ..plain.clone() };
    let begin = Instant::now();
    let error = PostgresStore::open_alone(&wanted).err().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(8), "it does not wait: {:?}", begin.elapsed());
    assert!(
        matches!(&error, StoreError::Failed(text) if text.contains("store.postgres.ca_file")),
        "{error}"
    );

    let trusting = PostgresConfig { authorities: vec![certificate.der().clone()], ..wanted };
    let store = PostgresStore::open_alone(&trusting).unwrap();
    Owner::of(&store, 0).put(&key(7, 1), b"stored");
    server.wait_for(encrypted, "t");
    store.close().unwrap();
}

/// CLU-05: without a usable schema, opening fails with the reason.
#[test]
fn missing_schema_is_refused() {
    let server = Server::start("schema");
    let config = server.empty_store();
    let url = config.url.replace("search_path=", "search_path=absent_");
    let error =
        PostgresStore::open_alone(&PostgresConfig { url, ..config }).err().unwrap().to_string();
    assert!(error.contains("no schema of the `search_path` exists"), "{error}");
}
