//! Address of a broker, parsed from a URL, and a stream to it with or without TLS. Commands and
//! benchmarks use it.

use std::fmt;
use std::io;

use peeklock::tls::ClientTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bidirectional byte stream that any thread may use.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// URL schemes of a protocol, without TLS and with TLS.
pub type Schemes = [&'static str; 2];

/// HTTP.
pub const HTTP: Schemes = ["http", "https"];
/// AMQP.
pub const AMQP: Schemes = ["amqp", "amqps"];
/// WebSocket.
pub const WEBSOCKET: Schemes = ["ws", "wss"];

/// Address of a broker for clients of some protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Host name or address; IPv6 addresses are in brackets.
    host: String,
    port: u16,
    /// Whether TLS is used.
    pub is_secure: bool,
    /// Name that the certificate must have, if it differs from the host.
    name: Option<String>,
}

impl Place {
    /// Parses `SCHEME://HOST:PORT`; HTTP may omit the port. None if the URL has another form.
    pub fn parse(url: &str, schemes: Schemes) -> Option<Self> {
        let [plain, secure] = schemes;
        let uri: hyper::Uri = url.parse().ok()?;
        let is_secure = match uri.scheme_str() {
            Some(scheme) if scheme == secure => true,
            Some(scheme) if scheme == plain => false,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return None;
        }
        let port = match uri.port_u16() {
            Some(port) => port,
            None if uri.authority().is_none_or(|it| it.as_str() != host) => return None,
            None if schemes != HTTP => return None,
            None if is_secure => 443,
            None => 80,
        };
        Some(Self { host, port, is_secure, name: None })
    }

    /// Host name or address; IPv6 addresses are in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Another port of the same host, with the same use of TLS.
    pub fn at_port(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }

    /// The same place, whose certificate must have `name`.
    pub fn known_as(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }

    /// URL of the same place for another protocol.
    pub fn url(&self, [plain, secure]: Schemes) -> String {
        let scheme = if self.is_secure { secure } else { plain };
        format!("{scheme}://{self}")
    }

    /// Opens a connection.
    pub async fn connect(&self, tls: &ClientTls) -> io::Result<Box<dyn Stream>> {
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
        ] {
            assert_eq!(Place::parse(url, schemes), None, "{url}");
        }
    }
}
