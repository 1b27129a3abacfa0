//! Address of a broker from a URL, and streams to it with TLS or without. The clients and the
//! command line connect with it.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::ClientTls;

/// A stream to a place, for any thread.
pub trait PlaceStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> PlaceStream for S {}

/// URL schemes of a protocol, without TLS and with TLS.
pub type Schemes = [&'static str; 2];

/// HTTP.
pub const HTTP: Schemes = ["http", "https"];
/// AMQP.
pub const AMQP: Schemes = ["amqp", "amqps"];
/// WebSocket.
pub const WEBSOCKET: Schemes = ["ws", "wss"];

/// Address of a broker for clients of one protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Host name or address; IPv6 addresses are in brackets.
    host: String,
    port: u16,
    /// Whether connections use TLS.
    pub is_secure: bool,
    /// Name in its certificate, if that is not its host.
    name: Option<String>,
}

impl Place {
    /// Reads `SCHEME://HOST:PORT`; the port of HTTP is optional. `None` for any other text.
    #[must_use]
    pub fn parse(url: &str, schemes: Schemes) -> Option<Self> {
        let [plain, secure] = schemes;
        let (scheme, rest) = url.split_once("://")?;
        let is_secure = scheme.eq_ignore_ascii_case(secure);
        if !is_secure && !scheme.eq_ignore_ascii_case(plain) {
            return None;
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let port = match port {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok()?,
            None if schemes == HTTP => {
                if is_secure {
                    443
                } else {
                    80
                }
            }
            _ => return None,
        };
        is_host(host).then(|| Self { host: host.to_owned(), port, is_secure, name: None })
    }

    /// Name or address of the host, an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Another port of the same host, with the same use of TLS.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }

    /// The same place, whose certificate names another host.
    #[must_use]
    pub fn known_as(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// URL of the same place for another protocol.
    #[must_use]
    pub fn url(&self, [plain, secure]: Schemes) -> String {
        let scheme = if self.is_secure { secure } else { plain };
        format!("{scheme}://{self}")
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// When the host cannot be reached, or TLS with it fails.
    pub async fn connect(&self, tls: &ClientTls) -> io::Result<Box<dyn PlaceStream>> {
        let bare = self.host.trim_matches(['[', ']']);
        let socket = TcpStream::connect((bare, self.port)).await?;
        socket.set_nodelay(true)?;
        if !self.is_secure {
            return Ok(Box::new(socket));
        }
        let name = self.name.as_deref().unwrap_or(&self.host);
        let stream = tls.connect(name, socket).await.map_err(io::Error::other)?;
        Ok(Box::new(stream))
    }
}

/// Whether a text is the name or address of a host, an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        return address.strip_suffix(']').is_some_and(|it| it.parse::<Ipv6Addr>().is_ok());
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(is_of_name)
}

/// Form for the `Host` header and URLs.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_its_url_alone() {
        for (url, schemes, place, is_secure) in [
            ("http://127.0.0.1:5300/", HTTP, "127.0.0.1:5300", false),
            ("https://bus.test", HTTP, "bus.test:443", true),
            ("http://[::1]", HTTP, "[::1]:80", false),
            ("amqps://bus.test:5671", AMQP, "bus.test:5671", true),
            ("ws://bus.test:5301", WEBSOCKET, "bus.test:5301", false),
        ] {
            let read = Place::parse(url, schemes).unwrap();
            assert_eq!((read.to_string().as_str(), read.is_secure), (place, is_secure), "{url}");
        }
        for (url, schemes) in [
            ("ws://127.0.0.1:1", HTTP),
            ("http://", HTTP),
            ("http://a/b", HTTP),
            ("http://a:1?b", HTTP),
            ("http://a:99999", HTTP),
            ("http://user@a", HTTP),
            ("amqp://a", AMQP),
            ("http://a:", HTTP),
            ("http://a:+1", HTTP),
            ("http://[::1", HTTP),
            ("http://::1", HTTP),
            ("http://a b", HTTP),
            ("a:1", HTTP),
        ] {
            assert_eq!(Place::parse(url, schemes), None, "{url}");
        }
    }
}
