//! Start of the server: the data directory, and errors that undo the parts that have started.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use peeklock::description::QueueUpdate;

use super::opening::make_data_dir;
use super::*;
use crate::config::{Flag, Layers};

/// Transport under the name of another one; it accepts no connections and records its stop.
struct Idle(&'static str, Arc<AtomicBool>);

#[async_trait]
impl Transport for Idle {
    fn name(&self) -> &'static str {
        self.0
    }

    async fn start(
        self: Box<Self>,
        _: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        Ok(self)
    }
}

#[async_trait]
impl RunningTransport for Idle {
    fn local_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }

    async fn stop(self: Box<Self>, _: Duration) {
        self.1.store(true, Ordering::Relaxed);
    }
}

/// SEC-25: if the files for clients cannot be written, the transports that serve already and the
/// broker are stopped.
#[tokio::test]
async fn a_late_start_failure_stops_started_transports() {
    // A directory in the place of a file makes the write fail.
    for obstacle in [HTTP_URL_FILE, "root.connection-string.new"] {
        let folder = std::env::temp_dir().join(format!("peeklock-late-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(obstacle)).unwrap();
        let value = folder.display().to_string();
        let flags = vec![Flag { name: "--data-dir", key: "server.data_dir", value }];
        let environment = Some(config::Map::default());
        let loaded = Loaded::load(&Layers { environment, flags, ..Layers::default() }).unwrap();
        let policies = Policies::new();
        let broker = Broker::builder().arbiters(1).policies(&policies).start().await.unwrap();
        let stopped =
            ["http", "websocket", "amqp"].map(|name| (name, Arc::<AtomicBool>::default()));
        let ways_in = stopped
            .clone()
            .map(|(name, stopped)| -> Box<dyn Transport> { Box::new(Idle(name, stopped)) });
        let opened = open(&loaded, &policies, broker.clone(), None, ways_in.into_iter()).await;
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(&*folder.display().to_string()), "{error}");
        for (name, stopped) in &stopped {
            assert!(stopped.load(Ordering::Relaxed), "{obstacle}: {name} serves");
        }
        let late = broker.create_queue("late", QueueUpdate::default()).await;
        assert!(late.is_err(), "{obstacle}: the broker goes on");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// SEC-25: a data directory is created for its owner only; an existing one keeps its mode.
#[test]
fn a_new_data_directory_is_private() {
    let path = std::env::temp_dir().join(format!("peeklock-owner-{}", std::process::id()));
    let text = path.join("data").display().to_string();
    let mode = || std::fs::metadata(&text).unwrap().permissions().mode() & 0o777;
    make_data_dir(&text).unwrap();
    assert_eq!(mode(), 0o700);
    std::fs::set_permissions(&text, Permissions::from_mode(0o750)).unwrap();
    make_data_dir(&text).unwrap();
    assert_eq!(mode(), 0o750);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_listen_error_names_flag_and_cause() {
    for (transport, address, kind, why) in [
        ("http", "127.0.0.1:5300", io::ErrorKind::AddrInUse, "another process"),
        ("amqp", "10.9.8.7:5672", io::ErrorKind::AddrNotAvailable, "does not have"),
        ("gateway", "0.0.0.0:443", io::ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
        ("gateway", "0.0.0.0:8443", io::ErrorKind::PermissionDenied, "the system does not let"),
    ] {
        let source = TransportError { transport, address: address.to_owned(), source: kind.into() };
        let text = ServeError::Transport { source }.to_string();
        for said in [address, why, &format!("--{transport}")] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
