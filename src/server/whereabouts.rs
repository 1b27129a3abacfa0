//! What others on this machine are told of where the broker is, in files of the data directory beside that of the first key: by which URL
//! clients elsewhere reach it, which connection strings follow (SEC-21), and where it serves HTTP, for `peeklock health`, whatever the
//! configuration or the environment of its process says. Both are written at each start, and nothing in them is a secret.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use peeklock::tls::Certificate;

use super::{Running, ServeError};
use crate::config::Loaded;

/// The name of the file with `http.public_url`, and behind it [`ONE_PORT`] where that leads to the gateway.
pub const PUBLIC_URL: &str = "public-url";
/// The name of the file that says where HTTP is served: a URL, and behind it the name by which its certificate is known, if that is not
/// its address.
pub const HTTP_URL: &str = "http-url";

/// Says that everything is served at the public URL, since there is a gateway.
pub const ONE_PORT: &str = "one-port";

/// Writes both files; what there is nothing to say of has none.
pub fn tell(
    loaded: &Loaded,
    transports: &[Running],
    certificate: Option<&Certificate>,
) -> Result<(), ServeError> {
    if loaded.config.server.ephemeral {
        return Ok(());
    }
    let http = transports.iter().find(|(name, _)| *name == "http");
    let http = http.map(|(_, running)| http_url(running.local_address(), certificate));
    let has_gateway = transports.iter().any(|(name, _)| *name == "gateway");
    let public_url = loaded.config.http.public_url.as_deref();
    let public_url = public_url.map(|url| match has_gateway {
        true => format!("{url} {ONE_PORT}"),
        false => url.to_owned(),
    });
    let data_dir = Path::new(&loaded.config.server.data_dir);
    for (name, text) in [(PUBLIC_URL, public_url.as_deref()), (HTTP_URL, http.as_deref())] {
        let path = data_dir.join(name);
        write(&path, text)
            .map_err(|source| ServeError::RootKey { path: path.display().to_string(), source })?;
    }
    Ok(())
}

/// Where a client on this machine reaches the listener.
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

/// The address by which this machine reaches a listener.
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
