//! The connection string of the root policy, in a file that only its owner reads: the first key has to be reachable
//! (SEC-25).
//!
//! Clients of AMQP, which are those of the Azure SDKs, and this program's commands connect to listeners of their own. While
//! both listen where their clients look by themselves, one string without a port is for both; otherwise the file has a
//! line for each, that for AMQP first. With a gateway, which serves all of them, it names that (LIS-05).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::contract::port;
use peeklock::policies::{KeyText, Policies, ROOT_POLICY};
use peeklock::tls::Certificate;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::whereabouts::reachable;
use super::{Running, ServeError};
use crate::config::Loaded;

/// Its name in the data directory.
pub const FILE: &str = "root.connection-string";
/// After so long what could not be written is written again.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the file up to date as long as this lives.
pub struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the file, and writes it anew when the key changes. What is kept in memory alone has none.
pub fn keep(
    loaded: &Loaded,
    policies: &Policies,
    transports: &[Running],
    certificate: Option<&Certificate>,
) -> Result<Option<Keeper>, ServeError> {
    let at = |name| {
        let found = transports.iter().find(|(transport, _)| *transport == name);
        found.map(|(_, running)| running.local_address())
    };
    let (Some(amqp), Some(websocket)) = (at("amqp"), at("websocket")) else { return Ok(None) };
    let endpoints = match at("gateway") {
        Some(gateway) => vec![endpoint(gateway, certificate)],
        None => endpoints(amqp, websocket, certificate),
    };
    if loaded.config.server.ephemeral.0 {
        return Ok(None);
    }
    let places = Places { endpoints, is_secure: certificate.is_some() };
    let path = Path::new(&loaded.config.server.data_dir.0).join(FILE);
    let changes = policies.changes();
    let known = policies.root_key();
    if let Some(key) = &known {
        write(&path, &places, key)
            .map_err(|source| ServeError::RootKey { path: path.display().to_string(), source })?;
    }
    let policies = policies.clone();
    let current = move || policies.root_key();
    let write = move |path: &Path, key: &KeyText| write(path, &places, key);
    let task = tokio::spawn(follow(path, known, changes, AGAIN, current, write));
    Ok(Some(Keeper(task.abort_handle())))
}

/// Writes each key that takes the place of the one known. One that cannot be written, as on a full disk, is tried until
/// it can: who reads the file has no other.
async fn follow(
    path: PathBuf,
    mut known: Option<KeyText>,
    mut changes: watch::Receiver<u64>,
    again: Duration,
    current: impl Fn() -> Option<KeyText>,
    write: impl Fn(&Path, &KeyText) -> io::Result<()>,
) {
    let mut is_behind = false;
    loop {
        let changed = changes.changed();
        let changed = match is_behind {
            true => tokio::time::timeout(again, changed).await.unwrap_or(Ok(())),
            false => changed.await,
        };
        if changed.is_err() {
            return;
        }
        let newer = current();
        let written = match &newer {
            Some(key) if newer != known => write(&path, key),
            // It has the key that is in it, or there is none to be written.
            Some(_) | None => Ok(()),
        };
        match written {
            Ok(()) => {
                if is_behind {
                    tracing::info!(path = %path.display(), "nothing is to be written to the file of the root key any more");
                }
                (known, is_behind) = (newer, false);
            }
            Err(error) => {
                // Said once, however often it is tried.
                if !is_behind {
                    tracing::error!(
                        path = %path.display(), %error, again_in = ?again,
                        "the file of the root key is not up to date; it is written again and again until that succeeds"
                    );
                }
                is_behind = true;
            }
        }
    }
}

/// Where the listeners are, and whether TLS is spoken there.
struct Places {
    endpoints: Vec<Endpoint>,
    is_secure: bool,
}

/// What clients of either kind are told.
fn endpoints(
    amqp: SocketAddr,
    websocket: SocketAddr,
    certificate: Option<&Certificate>,
) -> Vec<Endpoint> {
    let [mut amqp, websocket] = [amqp, websocket].map(|address| endpoint(address, certificate));
    let usual = if certificate.is_some() { port::AMQPS } else { port::AMQP };
    if amqp.host == websocket.host
        && (amqp.port, websocket.port) == (Some(usual), Some(port::WEBSOCKET))
    {
        amqp.port = None;
        return vec![amqp];
    }
    vec![amqp, websocket]
}

/// Where clients of this machine reach the listener: by its address, or by a name that its certificate is for.
fn endpoint(address: SocketAddr, certificate: Option<&Certificate>) -> Endpoint {
    let address = reachable(address);
    let by_name = certificate
        .filter(|it| !it.is_for_address(address.ip()))
        .and_then(|it| it.dns_names.iter().find(|name| !name.starts_with('*')).cloned());
    let host = by_name.unwrap_or_else(|| match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    });
    Endpoint { host: host.into(), port: Some(address.port()) }
}

/// Writes it whole or not at all.
fn write(path: &Path, places: &Places, key: &KeyText) -> io::Result<()> {
    let new: PathBuf = path.with_extension("connection-string.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    for endpoint in &places.endpoints {
        let string = ConnectionString::of_key(endpoint.clone(), ROOT_POLICY, key.reveal());
        let string = if places.is_secure { string } else { string.without_tls() };
        writeln!(file, "{}", string.reveal())?;
    }
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn told(amqp: &str, websocket: &str) -> Vec<String> {
        let endpoints = endpoints(amqp.parse().unwrap(), websocket.parse().unwrap(), None);
        endpoints.iter().map(ToString::to_string).collect()
    }

    /// SEC-21, AMQP-01: without a port every client looks where it is listened by default.
    #[test]
    fn a_port_is_named_where_clients_would_not_look_by_themselves() {
        assert_eq!(told("127.0.0.1:5672", "127.0.0.1:5301"), ["127.0.0.1"]);
        assert_eq!(told("0.0.0.0:5672", "0.0.0.0:5301"), ["127.0.0.1"]);
        assert_eq!(told("[::1]:5672", "[::1]:5301"), ["[::1]"]);
        assert_eq!(told("127.0.0.1:1", "127.0.0.1:5301"), ["127.0.0.1:1", "127.0.0.1:5301"]);
        assert_eq!(told("127.0.0.1:5672", "10.0.0.1:5301"), ["127.0.0.1:5672", "10.0.0.1:5301"]);
    }

    /// SEC-25: a key that could not be written is tried again without another change, also when it is another one by
    /// then; one that is written is not written again.
    #[tokio::test]
    async fn a_key_that_could_not_be_written_is_tried_again() {
        // What is found at each look, and whether it can be written.
        let found = [("E", false), ("E", false), ("I", true), ("I", true), ("A", true)];
        let key = |letter: &str| KeyText::parse(&format!("{}=", letter.repeat(43))).unwrap();
        let looks = Arc::new(AtomicUsize::new(0));
        let (change, changes) = watch::channel(0);
        let (sender, mut events) = unbounded_channel();
        let (looked, looks_before) = (sender.clone(), Arc::clone(&looks));
        let current = move || {
            looked.send("look".to_owned()).ok();
            Some(key(found[looks_before.fetch_add(1, Ordering::Relaxed)].0))
        };
        let write = move |_: &Path, key: &KeyText| {
            sender.send(key.reveal()[..1].to_owned()).ok();
            match found[looks.load(Ordering::Relaxed) - 1].1 {
                true => Ok(()),
                false => Err(io::ErrorKind::StorageFull.into()),
            }
        };
        let again = Duration::from_millis(10);
        let following =
            tokio::spawn(follow(FILE.into(), Some(key("A")), changes, again, current, write));
        let rounds = [&["look", "E", "look", "E", "look", "I"][..], &["look"], &["look", "A"]];
        for (number, expected) in (1..).zip(rounds) {
            change.send(number).unwrap();
            for expected in expected {
                assert_eq!(events.recv().await.as_deref(), Some(*expected));
            }
        }
        drop(change);
        following.await.unwrap();
        assert_eq!(events.recv().await, None, "nothing was written besides");
    }
}
