//! The connection string of the root policy, in a file that only its owner reads: the first key has to be reachable
//! (SEC-25).
//!
//! One string is for every client, of messages and of administration: it names the gateway where there is one, and else the
//! port of AMQP, which serves everything too (LIS-05).

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

use super::whereabouts::reachable;
use super::{Running, ServeError};
use crate::config::Loaded;

/// Its name in the data directory.
pub const FILE: &str = "root.connection-string";
/// The name of this machine for itself.
const LOCALHOST: &str = "localhost";
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
                    tracing::info!(path = %path.display(), "the file of the root key needs no \
                        further write");
                }
                (known, is_behind) = (newer, false);
            }
            Err(error) => {
                // Said once, however often it is tried.
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

/// Where clients find the broker, and whether TLS is spoken there.
struct ClientPlace {
    endpoint: Endpoint,
    is_secure: bool,
}

/// Where clients of this machine reach the listener.
fn endpoint(address: SocketAddr, certificate: Option<&Certificate>) -> Endpoint {
    let address = reachable(address);
    Endpoint { host: host(address, certificate).into(), port: Some(address.port()) }
}

/// The name of this machine for itself if it listens there: SDKs verify names better than addresses, and people read them
/// better. With TLS it is a name that the certificate has, unless it has the address.
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
    // That name means another address.
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

/// Writes it whole or not at all.
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

    /// A certificate for these names and addresses.
    fn certificate(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Certificate::of_der(signed.der()).unwrap()
    }

    /// SEC-21, LIS-05: a string names the port, and a host that leads there and that the certificate is for.
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
            let told = endpoint(address.parse().unwrap(), certificate);
            assert_eq!(told.to_string(), expected, "{address}");
        }
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
        assert_eq!(events.recv().await, None, "nothing else was written");
    }
}
