//! A parsed destination: another broker and a queue there. `route.rs` parses it when an entity is
//! created and when a route opens.

use peeklock_core::contract;
use peeklock_core::error::Rejection;
use peeklock_core::limits::Limits;
use peeklock_core::path::validate_entity_path;
use peeklock_reach::{Destination, Place, Reach, Schemes};

/// Scheme with TLS.
pub const SECURE: &str = "peeklock+wss";
/// Scheme without TLS.
pub const PLAIN: &str = "peeklock+ws";
/// Default port with TLS: the port of a reverse proxy.
const SECURE_PORT: u16 = 443;

/// A valid destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub place: Place,
    /// Host and port in URL form.
    pub authority: String,
    /// The queue at the other broker.
    pub path: String,
}

impl Target {
    /// Parses and validates a destination, without connecting.
    pub fn parse(destination: &str, reach: &Reach) -> Result<Self, Rejection> {
        let refuse = |flaw: &str| Rejection::argument(format!("destination {flaw}"));
        let schemes = Schemes { secure: SECURE, plain: PLAIN };
        let read = schemes.read(destination).map_err(|error| refuse(&error.to_string()))?;
        let Destination { text, url, is_secure } = read;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse(
                "has a user name or password; put a token into peers.tokens instead",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("has a query or fragment, which have no effect here; remove them"));
        }
        let host = url.host_str().ok_or_else(|| refuse("has no host"))?;
        // The URL parser drops the default ports of WebSocket, as browsers do.
        let port = url.port().or_else(|| written_port(text));
        let port = port.unwrap_or(if is_secure { SECURE_PORT } else { contract::port::WEBSOCKET });
        let place =
            Place::new(host, port, is_secure).map_err(|error| refuse(&error.to_string()))?;
        let path = url.path().trim_start_matches('/');
        let path = validate_entity_path(path, &Limits::default())?.to_string();
        reach.check(&place).map_err(|forbidden| {
            Rejection::argument(format!(
                "destination \"{host}:{port}\" is not allowed: {forbidden} in peers.allowed_hosts"
            ))
        })?;
        Ok(Self { authority: format!("{host}:{port}"), place, path })
    }

    /// Returns the URL to connect to.
    pub fn url(&self) -> String {
        let scheme = if self.place.is_secure() { "wss" } else { "ws" };
        format!("{scheme}://{}", self.authority)
    }
}

/// Returns the port written in a URL, if any.
fn written_port(url: &str) -> Option<u16> {
    let authority = url.split_once("://")?.1.split(['/', '\\', '?', '#']).next()?;
    let (_, port) = authority.rsplit_once(':')?;
    port.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(destination: &str, allowed: &[&str]) -> Result<Target, Rejection> {
        let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
        Target::parse(destination, &Reach::new(allowed, Vec::new()))
    }

    #[test]
    fn a_destination_is_a_broker_and_a_queue() {
        for (destination, url, path) in [
            ("peeklock+wss://b.example.com/orders", "wss://b.example.com:443", "orders"),
            ("Peeklock+WSS://b.example.com:5301/a/b.c", "wss://b.example.com:5301", "a/b.c"),
            ("peeklock+ws://b.example.com/orders", "ws://b.example.com:5301", "orders"),
            ("peeklock+ws://b.example.com:80/orders", "ws://b.example.com:80", "orders"),
            ("peeklock+wss://[::1]:443/orders", "wss://[::1]:443", "orders"),
        ] {
            let target = parse(destination, &["*"]).unwrap();
            assert_eq!((target.url().as_str(), target.path.as_str()), (url, path));
        }
    }

    /// FWD-02: any other text is refused.
    #[test]
    fn invalid_destinations_are_refused() {
        for (destination, word) in [
            ("ws://b.example.com/orders", "must begin with"),
            ("peeklock+http://b.example.com/orders", "must begin with"),
            ("peeklock+wss://", "is not a URL"),
            ("peeklock+wss://b.example.com", "path"),
            ("peeklock+wss://b.example.com/", "path"),
            ("peeklock+wss://b.example.com/a//b", "path"),
            ("peeklock+wss://b.example.com/a%20b", "character"),
            ("peeklock+wss://b.example.com/a/Subscriptions/b", "reserved"),
            ("peeklock+wss://b.example.com/a?b", "query"),
            ("peeklock+wss://b.example.com/a#b", "fragment"),
            ("peeklock+wss://me:hush@b.example.com/a", "peers.tokens"),
        ] {
            let rejection = parse(destination, &["*"]).unwrap_err();
            assert!(rejection.detail().contains(word), "{destination}: {rejection}");
            assert!(!rejection.detail().contains("hush"), "{rejection}");
        }
        assert!(parse("peeklock+wss://b.example.com/orders", &[]).is_ok());
        for destination in
            ["peeklock+ws://b.example.com/orders", "peeklock+wss://127.0.0.1:5301/orders"]
        {
            let rejection = parse(destination, &[]).unwrap_err();
            assert!(rejection.detail().contains("peers.allowed_hosts"), "{rejection}");
        }
    }
}
