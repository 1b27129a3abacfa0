//! Additions of a host: rights of its connections, their address, and the precedence of its parts.

use std::ffi::OsStr;
use std::time::Duration;

use async_trait::async_trait;
use peeklock::Broker;
use peeklock::contract::{Grant, Principal, RunningTransport, TransportError};
use peeklock::description::QueueUpdate;
use peeklock::error::Rejection;
use peeklock::message::Message;
use peeklock::policies::Policies;
use peeklock::store::MemoryStore;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::*;
use crate::config::{Layers, Loaded};
use crate::server;

/// Authorizer that grants everything, or nothing.
struct Lets(bool);

#[async_trait]
impl Authorizer for Lets {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        assert!(principal.is_local(), "it is told where somebody comes from");
        if self.0 { Ok(Grant::everything()) } else { Err(Rejection::unauthorized("as asked")) }
    }

    fn allows_anonymous(&self) -> bool {
        self.0
    }
}

/// Starts a transport that sends a message for each connection and writes the outcome as one word.
async fn telling(
    broker: &Broker,
    address: &str,
) -> Result<Box<dyn RunningTransport>, TransportError> {
    let attend = |Connection { mut stream, client, .. }| async move {
        let sender = client.sender("orders");
        let sent = match sender {
            Ok(sender) => sender.send(Message::new("two coffees")).await.map(drop),
            Err(error) => Err(error),
        };
        let told = sent.map_or_else(|error| error.condition().to_string(), |()| "sent".to_owned());
        tokio::io::AsyncWriteExt::write_all(&mut stream, told.as_bytes()).await?;
        Ok(())
    };
    let mut host = Host::new().listen_by("line", address.parse().unwrap(), attend);
    host.transports.pop().unwrap().start(broker.clone()).await
}

/// SEC-17: the authorizer decides the rights of a connection, whose principal is anonymous.
#[tokio::test]
async fn the_authorizer_decides_rights_of_connections() {
    for (lets, expected) in [(true, "sent"), (false, "Unauthorized")] {
        let broker = Broker::builder().authorizer(Arc::new(Lets(lets))).start().await.unwrap();
        broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
        let running = telling(&broker, "127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(running.local_address()).await.unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).await.unwrap();
        assert_eq!(told, expected);
        running.stop(Duration::from_secs(5)).await;
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// SEC-17: with anonymous access, a transport of the host must listen on loopback.
#[tokio::test]
async fn an_anonymous_host_listens_on_loopback() {
    let broker = Broker::builder().start().await.unwrap();
    let refused = telling(&broker, "0.0.0.0:0").await.err().unwrap();
    assert_eq!(refused.source.kind(), std::io::ErrorKind::PermissionDenied);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Store, authorizer and forwarder of the host take precedence over the configuration.
#[tokio::test]
async fn the_parts_of_the_host_are_in_use() {
    let folder = std::env::temp_dir().join(format!("peeklock-host-{}", std::process::id()));
    let data_dir = ("PEEKLOCK__SERVER__DATA_DIR".to_owned(), folder.display().to_string());
    let environment = Some([data_dir].into_iter().collect());
    let loaded = Loaded::load(&Layers { environment, ..Layers::default() }).unwrap();
    let mut host = Host::new()
        .store(Arc::new(MemoryStore::new(1, u64::MAX)))
        .authorizer(Lets(true))
        .forward_by("log", |_, _| Verdict::Delivered);
    let mut signals = server::Signals::new().unwrap();
    let store = server::open_any_store(&loaded, &mut host, &mut signals).await.unwrap();
    let store = store.continue_value().unwrap();
    let builder = server::broker_builder(&loaded, &Policies::new(), &mut host, store).unwrap();
    let broker = builder.start().await.unwrap();
    assert_eq!((broker.store().0, broker.allows_anonymous()), ("memory", true));
    // The log forwarder of the program refuses a destination that is not a log level.
    let forward_to = Some("log://no-level".into());
    let queue = QueueUpdate { forward_to, ..QueueUpdate::default() };
    broker.create_queue("orders", queue).await.unwrap();
    // The directory has no journal.
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(["audit", "jobs", "series"].map(OsStr::new).contains(&&*name), "{name:?}");
    }
    broker.stop(Duration::ZERO).await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
