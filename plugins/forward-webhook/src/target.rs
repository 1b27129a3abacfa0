//! What a destination says: the URL to post to, and how.

use std::net::IpAddr;
use std::time::Duration;

use peeklock_core::error::Rejection;
use url::{Host, Position, Url};

use crate::config::WebhookConfig;
use crate::event;
use crate::host::is_public;

/// With TLS.
pub const SECURE: &str = "webhook+https";
/// Without.
pub const PLAIN: &str = "webhook+http";
/// Longer ones are refused.
const CHARS_MAX: usize = 2_048;
/// Times that a destination may name, in milliseconds. The longest leaves the broker's own limit for a
/// call (`forwarder_time_max`) some room.
const TIME_MS: std::ops::RangeInclusive<u64> = 10..=20_000;

/// How the event is put into the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Attributes are headers, and the body is that of the message, byte for byte.
    Binary,
    /// All is one JSON object.
    Structured,
}

/// A destination that was found valid.
#[derive(Clone, Debug)]
pub struct Target {
    pub is_secure: bool,
    pub host: Host,
    pub port: u16,
    /// The header `Host`.
    pub authority: String,
    /// The URL behind the authority, without the parameters that are ours.
    pub path: String,
    pub mode: Mode,
    /// The CloudEvents attribute, if the destination gives one.
    pub event_type: Option<String>,
    pub connect_timeout: Duration,
    pub timeout: Duration,
    /// Whether the operator named the host: then its addresses are not judged.
    pub is_named: bool,
}

impl Target {
    /// Reads and judges a destination, without connecting.
    pub fn parse(destination: &str, config: &WebhookConfig) -> Result<Self, Rejection> {
        let refuse = |what: &str| Rejection::argument(format!("webhook destination {what}"));
        if destination.len() > CHARS_MAX {
            return Err(refuse(&format!("has more than {CHARS_MAX} characters")));
        }
        let scheme = destination.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let is_secure = match scheme.as_deref() {
            Some(SECURE) => true,
            Some(PLAIN) => false,
            _ => return Err(refuse("begins neither with webhook+https:// nor webhook+http://")),
        };
        let plain = destination.split_once('+').map_or("", |(_, url)| url);
        let url = Url::parse(plain).map_err(|error| refuse(&format!("is not a URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse(
                "has a user name or password, which everybody who sees the entity would see; use \
                 webhook.secrets, by which receivers know who posts",
            ));
        }
        if url.fragment().is_some() {
            return Err(refuse("has a fragment (#), which is never sent"));
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(refuse("has no host"));
        };
        let host = host.to_owned();
        let mut target = Self {
            is_secure,
            port,
            authority: url[Position::BeforeHost..Position::AfterPort].to_owned(),
            path: String::new(),
            mode: Mode::Binary,
            event_type: None,
            connect_timeout: config.connect_timeout,
            timeout: config.timeout,
            is_named: config.allowed_hosts.iter().any(|pattern| pattern.fits(&host, port)),
            host,
        };
        target.path = target.take_parameters(&url)?;
        target.judge(config)?;
        Ok(target)
    }

    /// Reads the parameters that are ours, and gives path and query without them. All others go to the
    /// receiver as they are written.
    fn take_parameters(&mut self, url: &Url) -> Result<String, Rejection> {
        let mut path = url.path().to_owned();
        let Some(query) = url.query() else { return Ok(path) };
        let mut between = '?';
        for parameter in query.split('&') {
            // Compared as written: a receiver's own `mode` is reached as `%6dode`.
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

    /// Whether it may be named at all.
    fn judge(&self, config: &WebhookConfig) -> Result<(), Rejection> {
        if self.is_named {
            return Ok(());
        }
        let authority = &self.authority;
        let refuse = |why: &str| {
            Rejection::argument(format!("webhook destination {authority:?} is not allowed: {why}"))
        };
        if !config.allowed_hosts.is_empty() {
            return Err(refuse("webhook.allowed_hosts of the broker does not name it"));
        }
        if !self.is_secure {
            return Err(refuse(
                "without TLS only hosts may be named that stand in webhook.allowed_hosts of the broker",
            ));
        }
        let is_local = matches!(&self.host, Host::Domain(name) if name == "localhost");
        if is_local || self.address().is_some_and(|address| !is_public(address)) {
            return Err(refuse(
                "its address is not public, and it does not stand in webhook.allowed_hosts of the broker",
            ));
        }
        Ok(())
    }

    /// The address, if the host is one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        }
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

/// Letters that need no encoding in a URL; reverse-DNS names have no others.
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

/// Reads `500ms`, `10s`.
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
    use super::*;

    fn config(hosts: &[&str]) -> WebhookConfig {
        let allowed_hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        WebhookConfig { allowed_hosts, ..WebhookConfig::default() }
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
        assert_eq!((target.port, target.is_secure), (443, true));
        assert_eq!(target.mode, Mode::Structured);
        assert_eq!(target.event_type.as_deref(), Some("com.example.order"));
        assert_eq!(target.timeout, Duration::from_millis(250));
        assert_eq!(target.connect_timeout, Duration::from_secs(3));
        let target = Target::parse("webhook+https://a.net:8443?mode=binary", &config(&[])).unwrap();
        assert_eq!((target.path.as_str(), target.authority.as_str()), ("/", "a.net:8443"));
        assert_eq!(target.mode, Mode::Binary);
        assert_eq!(target.timeout, Duration::from_secs(15));
    }

    /// FWD-02.
    #[test]
    fn what_is_not_a_destination_is_refused() {
        for (destination, word) in [
            ("https://a.net/", "begins neither"),
            ("webhook+ftp://a.net/", "begins neither"),
            ("webhook+https:a.net", "begins neither"),
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
    fn without_a_list_only_public_hosts_over_tls_may_be_named() {
        Target::parse("webhook+https://1.1.1.1/", &config(&[])).unwrap();
        for destination in [
            "webhook+http://a.net/",
            "webhook+http://1.1.1.1/",
            "webhook+https://LocalHost/",
            "webhook+https://127.0.0.1/",
            "webhook+https://0x7f.1/",
            "webhook+https://2130706433/",
            "webhook+https://[::1]/",
            "webhook+https://[::ffff:10.0.0.1]/",
            "webhook+https://169.254.169.254/latest",
        ] {
            let detail = refusal(destination, &[]);
            assert!(detail.contains("webhook.allowed_hosts"), "{destination}: {detail}");
        }
    }

    #[test]
    fn with_a_list_its_hosts_alone_may_be_named() {
        let hosts = ["*.example.com", "127.0.0.1:8080"];
        for destination in [
            "webhook+http://a.example.com/",
            "webhook+https://a.example.com:99/",
            "webhook+http://127.0.0.1:8080/",
        ] {
            assert!(Target::parse(destination, &config(&hosts)).unwrap().is_named);
        }
        for destination in
            ["webhook+https://a.net/", "webhook+http://127.0.0.1/", "webhook+https://1.1.1.1/"]
        {
            let detail = refusal(destination, &hosts);
            assert!(detail.contains("does not name it"), "{destination}: {detail}");
        }
    }
}
