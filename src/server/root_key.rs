//! File with the connection string of the root policy, readable only by its owner, so that an
//! operator can find the first key (SEC-25).
//!
//! The string works for all clients, of messages and of administration. It names the gateway if
//! there is one, otherwise the AMQP port, which serves all protocols too (LIS-05).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::policies::{KeyText, Policies, ROOT_POLICY};
use peeklock::tls::Certificate;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::address_files::reachable;
use super::{Running, ServeError};
use crate::config::Loaded;

/// File name in the data directory.
pub const FILE: &str = "root.connection-string";
/// Host name of the local machine.
const LOCALHOST: &str = "localhost";
/// Pause before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Keeps the file up to date until it is dropped.
pub struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the file, and rewrites it when the key changes. A broker that stores nothing on disk has
/// no file.
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
    let Some(address) = at("gateway").or_else(|| at("amqp")) else { return Ok(None) };
    if loaded.config.server.ephemeral {
        return Ok(None);
    }
    let place =
        ClientPlace { endpoint: endpoint(address, certificate), is_secure: certificate.is_some() };
    let path = Path::new(&loaded.config.server.data_dir).join(FILE);
    let changes = policies.changes();
    let known = policies.root_key();
    if let Some(key) = &known {
        write(&path, &place, key)
            .map_err(|source| ServeError::RootKey { path: path.display().to_string(), source })?;
    }
    let policies = policies.clone();
    let current = move || policies.root_key();
    let write = move |path: &Path, key: &KeyText| write(path, &place, key);
    let task = tokio::spawn(follow(path, known, changes, RETRY_PAUSE, current, write));
    Ok(Some(Keeper(task.abort_handle())))
}

/// Writes each key that replaces the known one. A failed write, as on a full disk, is retried until
/// it succeeds, because readers of the file have no other source.
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
            // The file has the current key, or there is no key to write.
            Some(_) | None => Ok(()),
        };
        match written {
            Ok(()) => {
                if is_behind {
                    tracing::info!(path = %path.display(), "the file of the root key needs no \
                        further write");
                }
                (known, is_behind) = (newer, false);
            }
            Err(error) => {
                // Logged once, however often the write is retried.
                if !is_behind {
                    tracing::error!(
                        path = %path.display(), %error, again_in = ?again,
                        "the file of the root key is out of date; retrying until the write succeeds"
                    );
                }
                is_behind = true;
            }
        }
    }
}

/// Address of the broker for clients, and whether it uses TLS.
struct ClientPlace {
    endpoint: Endpoint,
    is_secure: bool,
}

/// Endpoint of the listener for clients on this machine.
fn endpoint(address: SocketAddr, certificate: Option<&Certificate>) -> Endpoint {
    let address = reachable(address);
    Endpoint { host: host(address, certificate).into(), port: Some(address.port()) }
}

/// Host for clients on this machine: `localhost` if the listener has the IPv4 loopback address,
/// since SDKs verify names better than addresses and people read them more easily. With TLS it is a
/// name or address that the certificate has.
fn host(address: SocketAddr, certificate: Option<&Certificate>) -> String {
    let is_localhost = address.ip() == IpAddr::from(Ipv4Addr::LOCALHOST);
    let Some(certificate) = certificate else {
        return if is_localhost { LOCALHOST.to_owned() } else { text_of(address) };
    };
    if is_localhost && certificate.is_for(LOCALHOST) {
        return LOCALHOST.to_owned();
    }
    if certificate.is_for_address(address.ip()) {
        return text_of(address);
    }
    // The name `localhost` would lead to another address.
    let leads_here =
        |name: &&String| !name.starts_with('*') && !name.eq_ignore_ascii_case(LOCALHOST);
    certificate.dns_names.iter().find(leads_here).cloned().unwrap_or_else(|| text_of(address))
}

/// The address without its port.
fn text_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Writes the file atomically.
fn write(path: &Path, place: &ClientPlace, key: &KeyText) -> io::Result<()> {
    let new: PathBuf = path.with_extension("connection-string.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let string = ConnectionString::of_key(place.endpoint.clone(), ROOT_POLICY, key.reveal());
    let string = if place.is_secure { string } else { string.without_tls() };
    writeln!(file, "{}", string.reveal())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rcgen::{CertificateParams, KeyPair};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// Certificate for these names and addresses.
    fn certificate(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Certificate::of_der(signed.der()).unwrap()
    }

    /// SEC-21, LIS-05: the string names the port, and a host that leads to the listener and that
    /// the certificate covers.
    #[test]
    fn a_string_names_a_host_that_clients_can_verify() {
        let development = certificate(&["localhost", "bus.test", "127.0.0.1", "::1"]);
        let public = certificate(&["*.example.com", "bus.example.com"]);
        let local = certificate(&["localhost", "127.0.0.1"]);
        for (address, certificate, expected) in [
            ("127.0.0.1:5672", None, "localhost:5672"),
            ("0.0.0.0:5672", None, "localhost:5672"),
            ("[::1]:5672", None, "[::1]:5672"),
            ("10.0.0.1:1", None, "10.0.0.1:1"),
            ("127.0.0.1:5671", Some(&development), "localhost:5671"),
            ("0.0.0.0:443", Some(&development), "localhost:443"),
            ("[::1]:5671", Some(&development), "[::1]:5671"),
            ("10.0.0.1:5671", Some(&development), "bus.test:5671"),
            ("127.0.0.1:5671", Some(&public), "bus.example.com:5671"),
            ("127.77.0.1:443", Some(&local), "127.77.0.1:443"),
        ] {
            let found = endpoint(address.parse().unwrap(), certificate);
            assert_eq!(found.to_string(), expected, "{address}");
        }
    }

    /// SEC-25: a failed write of a key is retried without another change, with the newer key if it
    /// changes meanwhile. A written key is not written again.
    #[tokio::test]
    async fn a_failed_key_write_is_retried() {
        // Key found by each look, and whether its write succeeds.
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
        assert_eq!(events.recv().await, None, "nothing else was written");
    }
}
