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

use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::contract::port;
use peeklock::policies::{KeyText, Policies, ROOT_POLICY};
use peeklock::tls::Certificate;
use tokio::task::AbortHandle;

use super::whereabouts::reachable;
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
    let mut changes = policies.changes();
    let mut known = policies.root_key();
    if let Some(key) = &known {
        write(&path, &places, key)
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
                && let Err(error) = write(&path, &places, key)
            {
                tracing::error!(path = %path.display(), %error, "the file of the root key is not up to date");
            }
            known = newer;
        }
    });
    Ok(Some(Keeper(task.abort_handle())))
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
}
