//! The connection string of the root policy, in a file that only its owner reads: the first key has to be reachable
//! (SEC-25).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::policies::{KeyText, Policies, ROOT_POLICY};
use tokio::task::AbortHandle;

use super::{Running, ServeError};
use crate::config::Loaded;

/// Its name in the data directory.
pub const FILE: &str = "root.connection-string";

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
) -> Result<Option<Keeper>, ServeError> {
    let websocket = transports.iter().find(|(name, _)| *name == "websocket");
    let Some((_, websocket)) = websocket.filter(|_| !loaded.config.server.ephemeral.0) else {
        return Ok(None);
    };
    let endpoint = endpoint(websocket.local_address());
    let path = Path::new(&loaded.config.server.data_dir.0).join(FILE);
    let mut changes = policies.changes();
    let mut known = policies.root_key();
    if let Some(key) = &known {
        write(&path, &endpoint, key)
            .map_err(|source| ServeError::RootKey { path: path.display().to_string(), source })?;
    }
    let policies = policies.clone();
    let task = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            let newer = policies.root_key();
            if newer == known {
                continue;
            }
            if let Some(key) = &newer
                && let Err(error) = write(&path, &endpoint, key)
            {
                tracing::error!(path = %path.display(), %error, "the file of the root key is not up to date");
            }
            known = newer;
        }
    });
    Ok(Some(Keeper(task.abort_handle())))
}

/// Where clients of this machine reach the listener.
fn endpoint(mut address: SocketAddr) -> Endpoint {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let host = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    Endpoint { host: host.into(), port: Some(address.port()) }
}

/// Writes it whole or not at all.
fn write(path: &Path, endpoint: &Endpoint, key: &KeyText) -> io::Result<()> {
    let string =
        ConnectionString::of_key(endpoint.clone(), ROOT_POLICY, key.reveal()).without_tls();
    let new: PathBuf = path.with_extension("connection-string.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    writeln!(file, "{}", string.reveal())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
