//! Files in the data directory that describe the addresses of this broker to other programs on this
//! machine. One has the public URL, which connection strings use (SEC-21). The other has the HTTP
//! address, which `peeklock health` uses independent of its own configuration and environment. Both
//! are written at each start and contain no secrets.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use peeklock::tls::Certificate;

use super::{Running, ServeError};
use crate::config::Loaded;

/// Name of the file with `http.public_url`, followed by [`ONE_PORT`] if that URL leads to the
/// gateway.
pub const PUBLIC_URL: &str = "public-url";
/// Name of the file with the HTTP address: a URL, followed by a name in the certificate if the
/// certificate does not have the address.
pub const HTTP_URL: &str = "http-url";

/// Mark for a public URL that serves all protocols, since there is a gateway.
pub const ONE_PORT: &str = "one-port";

/// Writes both files, and removes one without content.
pub fn write_address_files(
    loaded: &Loaded,
    transports: &[Running],
    certificate: Option<&Certificate>,
) -> Result<(), ServeError> {
    if loaded.config.server.ephemeral {
        return Ok(());
    }
    let http = transports.iter().find(|(name, _)| *name == "http");
    let http = http.map(|(_, running)| running.local_address());
    write_http_url(loaded, http, certificate)?;
    let has_gateway = transports.iter().any(|(name, _)| *name == "gateway");
    let public_url = loaded.config.http.public_url.as_deref();
    let public_url = public_url.map(|url| match has_gateway {
        true => format!("{url} {ONE_PORT}"),
        false => url.to_owned(),
    });
    write_file(loaded, PUBLIC_URL, public_url.as_deref())
}

/// Writes the file with the HTTP address, or removes it without an address.
pub fn write_http_url(
    loaded: &Loaded,
    address: Option<SocketAddr>,
    certificate: Option<&Certificate>,
) -> Result<(), ServeError> {
    let url = address.map(|address| http_url(address, certificate));
    write_file(loaded, HTTP_URL, url.as_deref())
}

fn write_file(loaded: &Loaded, name: &str, text: Option<&str>) -> Result<(), ServeError> {
    let path = Path::new(&loaded.config.server.data_dir).join(name);
    write(&path, text)
        .map_err(|source| ServeError::RootKey { path: path.display().to_string(), source })
}

/// HTTP address for clients on this machine.
fn http_url(address: SocketAddr, certificate: Option<&Certificate>) -> String {
    let address = reachable(address);
    let Some(certificate) = certificate else { return format!("http://{address}") };
    let of_certificate =
        |it: &Certificate| it.dns_names.iter().find(|name| !name.starts_with('*')).cloned();
    let name = Some(certificate).filter(|it| !it.is_for_address(address.ip()));
    match name.and_then(of_certificate) {
        Some(name) => format!("https://{address} {name}"),
        None => format!("https://{address}"),
    }
}

/// Address of a listener for clients on this machine.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn write(path: &Path, text: Option<&str>) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let Some(text) = text else { return Ok(()) };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")
}
