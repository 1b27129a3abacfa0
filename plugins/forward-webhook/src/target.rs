//! A parsed destination: the URL to post to, and the parameters of the request. `route.rs` parses
//! it when an entity is created and when a route opens.

use std::time::Duration;

use peeklock_core::error::Rejection;
use peeklock_reach::{Destination, Place, Schemes};
use url::{Position, Url};

use crate::config::WebhookConfig;
use crate::event;

/// Scheme with TLS.
pub const SECURE: &str = "webhook+https";
/// Scheme without TLS.
pub const PLAIN: &str = "webhook+http";
/// Time limits that a destination may set, in milliseconds. The maximum is below the broker's limit
/// for a call (`forwarder_time_max`).
const TIME_MS: std::ops::RangeInclusive<u64> = 10..=20_000;

/// Representation of the event in the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Attributes are headers, and the body equals the message's body byte for byte.
    Binary,
    /// The event is one JSON object.
    Structured,
}

/// A valid destination.
#[derive(Clone, Debug)]
pub struct Target {
    pub place: Place,
    /// Value of the header `Host`.
    pub authority: String,
    /// Path and query of the URL, without the forwarder's own parameters.
    pub path: String,
    pub mode: Mode,
    /// The CloudEvents attribute `type`, if the destination sets it.
    pub event_type: Option<String>,
    pub connect_timeout: Duration,
    pub timeout: Duration,
}

impl Target {
    /// Parses and validates a destination, without connecting.
    pub fn parse(destination: &str, config: &WebhookConfig) -> Result<Self, Rejection> {
        let refuse = |flaw: &str| Rejection::argument(format!("webhook destination {flaw}"));
        let schemes = Schemes { secure: SECURE, plain: PLAIN };
        let read = schemes.read(destination).map_err(|error| refuse(&error.to_string()))?;
        let Destination { url, is_secure, text: _ } = read;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse(
                "has a user name or password, which every reader of the entity could see; use \
                 webhook.secrets to sign requests instead",
            ));
        }
        if url.fragment().is_some() {
            return Err(refuse("has a fragment (#), which is never sent; remove it"));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(refuse("has no host"));
        };
        let place =
            Place::new(host, port, is_secure).map_err(|error| refuse(&error.to_string()))?;
        let mut target = Self {
            place,
            authority: url[Position::BeforeHost..Position::AfterPort].to_owned(),
            path: String::new(),
            mode: Mode::Binary,
            event_type: None,
            connect_timeout: config.connect_timeout,
            timeout: config.timeout,
        };
        target.path = target.take_parameters(&url)?;
        config.reach.check(&target.place).map_err(|forbidden| {
            let authority = &target.authority;
            Rejection::argument(format!(
                "webhook destination {authority:?} is not allowed: {forbidden} in webhook.allowed_hosts"
            ))
        })?;
        Ok(target)
    }

    /// Reads the forwarder's own parameters, and returns the path and query without them. All other
    /// parameters are sent to the receiver unchanged.
    fn take_parameters(&mut self, url: &Url) -> Result<String, Rejection> {
        let mut path = url.path().to_owned();
        let Some(query) = url.query() else { return Ok(path) };
        let mut between = '?';
        for parameter in query.split('&') {
            // Compared without decoding: a receiver's own `mode` can be written as `%6dode`.
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "mode" => self.mode = mode(value)?,
                "type" => self.event_type = Some(event_type(value)?),
                "timeout" => self.timeout = time(name, value)?,
                "connect_timeout" => self.connect_timeout = time(name, value)?,
                _ => {
                    path.push(between);
                    path.push_str(parameter);
                    between = '&';
                }
            }
        }
        Ok(path)
    }
}

fn mode(value: &str) -> Result<Mode, Rejection> {
    match value {
        "binary" => Ok(Mode::Binary),
        "structured" => Ok(Mode::Structured),
        _ => Err(Rejection::argument(
            "webhook destination has an unknown mode: write mode=binary or mode=structured",
        )),
    }
}

/// Parses a type of characters that need no encoding in a URL, as in reverse-DNS names.
fn event_type(value: &str) -> Result<String, Rejection> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_~/:".contains(&byte);
    if value.is_empty() || value.len() > event::TEXT_CHARS_MAX || !value.bytes().all(is_plain) {
        return Err(Rejection::argument(
            "webhook destination has no usable type: write one such as type=com.example.order, of \
             letters, digits and . - _ ~ / :",
        ));
    }
    Ok(value.to_owned())
}

/// Parses a time such as `500ms` or `10s`.
fn time(name: &str, value: &str) -> Result<Duration, Rejection> {
    let ms = match value.strip_suffix("ms") {
        Some(ms) => ms.parse::<u64>().ok(),
        None => value
            .strip_suffix('s')
            .and_then(|seconds| seconds.parse::<u64>().ok())
            .and_then(|seconds| seconds.checked_mul(1_000)),
    };
    ms.filter(|ms| TIME_MS.contains(ms)).map(Duration::from_millis).ok_or_else(|| {
        Rejection::argument(format!(
            "webhook destination has no usable {name}: write {name}=500ms or {name}=10s, from {}ms to {}s",
            TIME_MS.start(),
            TIME_MS.end() / 1_000
        ))
    })
}

#[cfg(test)]
mod tests {
    use peeklock_reach::Reach;

    use super::*;

    fn config(hosts: &[&str]) -> WebhookConfig {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        WebhookConfig { reach: Reach::new(hosts, Vec::new()), ..WebhookConfig::default() }
    }

    fn refusal(destination: &str, hosts: &[&str]) -> String {
        Target::parse(destination, &config(hosts)).unwrap_err().detail().to_owned()
    }

    #[test]
    fn parameters_of_ours_are_taken_out_and_others_are_sent_as_written() {
        let destination = "Webhook+HTTPS://Hooks.Example.com/a%20b?x=%41&mode=structured&&%6dode=z\
                           &type=com.example.order&timeout=250ms&connect_timeout=3s&flag";
        let target = Target::parse(destination, &config(&[])).unwrap();
        assert_eq!(target.path, "/a%20b?x=%41&&%6dode=z&flag");
        assert_eq!(target.authority, "hooks.example.com");
        assert_eq!((target.place.port(), target.place.is_secure()), (443, true));
        assert_eq!(target.mode, Mode::Structured);
        assert_eq!(target.event_type.as_deref(), Some("com.example.order"));
        assert_eq!(target.timeout, Duration::from_millis(250));
        assert_eq!(target.connect_timeout, Duration::from_secs(3));
        let target = Target::parse("webhook+https://a.net:8443?mode=binary", &config(&[])).unwrap();
        assert_eq!((target.path.as_str(), target.authority.as_str()), ("/", "a.net:8443"));
        assert_eq!(target.mode, Mode::Binary);
        assert_eq!(target.timeout, Duration::from_secs(15));
    }

    /// FWD-02: any other text is refused.
    #[test]
    fn invalid_destinations_are_refused() {
        for (destination, word) in [
            ("https://a.net/", "must begin with"),
            ("webhook+ftp://a.net/", "must begin with"),
            ("webhook+https:a.net", "must begin with"),
            ("webhook+https://", "is not a URL"),
            ("webhook+https://a.net:99999/", "is not a URL"),
            ("webhook+https://me:secret@a.net/", "user name"),
            ("webhook+https://me@a.net/", "user name"),
            ("webhook+https://a.net/#x", "fragment"),
            ("webhook+https://a.net/?mode=", "unknown mode"),
            ("webhook+https://a.net/?type=a%20b", "type"),
            ("webhook+https://a.net/?type", "type"),
            ("webhook+https://a.net/?timeout=1", "timeout"),
            ("webhook+https://a.net/?timeout=0s", "timeout"),
            ("webhook+https://a.net/?timeout=21s", "timeout"),
            ("webhook+https://a.net/?connect_timeout=18446744073709551615s", "connect_timeout"),
            (&format!("webhook+https://a.net/{}", "a".repeat(2_048)), "characters"),
        ] {
            let detail = refusal(destination, &[]);
            assert!(detail.contains(word), "{destination}: {detail}");
            assert!(!detail.contains("secret@"), "{detail}");
        }
    }

    #[test]
    fn forbidden_hosts_are_refused() {
        for (destination, hosts, word) in [
            ("webhook+http://a.net/", &[][..], "without TLS"),
            ("webhook+https://127.0.0.1/", &[][..], "not public"),
            ("webhook+https://a.net/", &["*.example.com"][..], "the host is not in"),
        ] {
            let detail = refusal(destination, hosts);
            assert!(detail.contains(word) && detail.contains("webhook.allowed_hosts"), "{detail}");
        }
        let target = Target::parse("webhook+http://10.0.0.1:80/", &config(&["10.0.0.1"])).unwrap();
        assert!(!target.place.is_secure());
    }
}
