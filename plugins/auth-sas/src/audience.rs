//! What a token is for: the resource at a URL and everything below it (SEC-13).

use std::borrow::Cow;
use std::fmt;

use peeklock_core::contract::browser::{is_host_of_audience, split_host};
use percent_encoding::percent_decode_str;

/// What stands behind the path of an entity in the addresses of nodes that clients sign. No name has a `$` in front, so that it
/// cannot be meant as one; `messages` could be, so that it is no suffix: who asks at such an address says so.
const SUFFIX: &str = "/$management";

/// The host and the path of what a token is for, without their case.
#[derive(Clone, PartialEq, Eq)]
pub struct Audience {
    host: Option<String>,
    path: String,
}

impl Audience {
    /// Reads the resource of a token, decoded: an absolute URL of any scheme, one without its scheme where its host is one
    /// of a broker ([`is_host_of_audience`]), or a path.
    #[must_use]
    pub fn parse(resource: &str, own_hosts: &[String]) -> Self {
        let resource = resource.trim().to_ascii_lowercase().replace('\\', "/");
        let (host, path) = match resource.split_once("://") {
            Some((_, rest)) => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let host = split_host(authority).map_or(authority, |(host, _)| host);
                (Some(host.to_owned()), path)
            }
            None => match resource.split_once('/').unwrap_or((&resource, "")) {
                (authority, path) if is_host_of_audience(authority, own_hosts) => {
                    let host = split_host(authority).map_or(authority, |(host, _)| host);
                    (Some(host.to_owned()), path)
                }
                _ => (None, resource.as_str()),
            },
        };
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
        let path = format!("/{}", if host.is_some() { decoded(path) } else { path.into() });
        let entity = path.strip_suffix(SUFFIX).unwrap_or(&path);
        Self { host, path: entity.trim_matches('/').to_owned() }
    }

    /// Whether it covers a resource: the path of an entity or sub-queue, or empty for the namespace.
    #[must_use]
    pub fn covers(&self, resource: &str) -> bool {
        let resource = resource.trim_matches('/').to_ascii_lowercase();
        self.path.is_empty()
            || resource
                .strip_prefix(&self.path)
                .is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// Whether it covers something that is in a resource, and not all of it.
    #[must_use]
    pub fn is_below(&self, resource: &str) -> bool {
        let resource = resource.trim_matches('/').to_ascii_lowercase();
        let below = self.path.strip_prefix(&resource);
        below.is_some_and(|below| {
            !below.is_empty() && (resource.is_empty() || below.starts_with('/'))
        })
    }

    /// Whether its host is one of these; one without host names none.
    #[must_use]
    pub fn is_of_host(&self, hosts: &[String]) -> bool {
        let Some(host) = &self.host else { return false };
        hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The path of a URL, whose segments may be encoded: a name with a slash in it is one segment to some clients (ADM-04), and
/// as many as it has to others. What is no UTF-8 then stays as it is, and is the path of nothing.
fn decoded(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8();
        decoded.unwrap_or(Cow::Borrowed(segment)).to_ascii_lowercase()
    });
    segments.collect::<Vec<_>>().join("/")
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(audience: &str, resource: &str, expected: bool) {
        assert_eq!(
            Audience::parse(audience, &[]).covers(resource),
            expected,
            "{audience} {resource}"
        );
    }

    /// SEC-13: case, scheme, port, host and a slash at the end do not matter.
    #[test]
    fn spelling_does_not_matter() {
        for audience in [
            "sb://bus/Orders",
            "amqps://bus:5671/orders/",
            "https://127.0.0.1:5300/ORDERS",
            "http://[::1]:5300/orders",
            "orders",
            "/orders/",
            "sb://bus/orders/$management",
            "https://bus/orders?api-version=2021-05",
        ] {
            check(audience, "orders", true);
            check(audience, "Orders/$deadletterqueue", true);
            check(audience, "order", false);
            check(audience, "orders2", false);
            check(audience, "", false);
        }
    }

    /// SEC-13, ADM-04: a name with a slash is the same whether its URL has that encoded or not; what is decoded is one URL,
    /// once, and no path.
    #[test]
    fn segments_of_a_url_may_be_encoded() {
        for audience in [
            "https://h/eu%2forders",
            "https://h/EU%2FOrders/",
            "sb://h/eu/orders",
            "https://h/%65u/o%52ders?x=%2f",
            "sb://h/eu%2forders/$management",
            "sb://h/eu%2Forders/%24management",
        ] {
            check(audience, "eu/orders", true);
            check(audience, "EU/orders/$DeadLetterQueue", true);
            check(audience, "eu", false);
            check(audience, "eu/other", false);
        }
        check("https://h/t%2fsubscriptions%2fs", "t/Subscriptions/s", true);
        for nothing in ["https://h/eu%252forders", "eu%2forders", "https://h/%ff", "https://h/%"] {
            for resource in ["", "eu", "eu/orders"] {
                check(nothing, resource, false);
            }
        }
    }

    /// SEC-13: it covers what is at or under it, by whole segments.
    #[test]
    fn it_covers_what_is_below() {
        for everything in ["sb://bus", "https://bus:443/", "", "/", "amqp://bus/$management"] {
            check(everything, "", true);
            check(everything, "orders", true);
            check(everything, "t/Subscriptions/s", true);
        }
        for (resource, expected) in [("orders", true), ("other", false), ("", false)] {
            check("bus.example:5300/orders", resource, expected);
            check("bus.example:5300", resource, true);
        }
        check("sb://bus/t", "t/Subscriptions/s", true);
        check("sb://bus/t/subscriptions/s", "t/Subscriptions/s", true);
        check("sb://bus/t/subscriptions/s", "t/Subscriptions/s/$deadletterqueue", true);
        check("sb://bus/t/subscriptions/s", "t/Subscriptions/s2", false);
        check("sb://bus/t/subscriptions/s", "t", false);
        check("sb://bus/eu", "eu/orders", true);
    }

    /// SEC-13: without a scheme a host is told from a path by what it is.
    #[test]
    fn a_host_needs_no_scheme() {
        let own = ["bus.example.com".to_owned()];
        for host in [
            "bus.example.com",
            "BUS.example.com:5671",
            "elsewhere.example:443",
            "127.0.0.1",
            "[::1]",
            "localhost",
            "shop.servicebus.windows.net",
        ] {
            let covers = |audience: String, resource: &str| {
                Audience::parse(&audience, &own).covers(resource)
            };
            assert!(covers(host.to_owned(), "") && covers(format!("{host}/"), "orders"), "{host}");
            for queue in ["orders", "Orders/"] {
                let audience = format!("{host}/{queue}");
                assert!(covers(audience.clone(), "orders"), "{audience}");
                assert!(!covers(audience.clone(), "") && !covers(audience, "other"), "{host}");
            }
        }
        // A name with dots in it stays the name of an entity, and is no word for all of them.
        for name in ["queue.1", "orders.eu", "servicebus.windows.net", "bus.example.com.evil"] {
            let audience = Audience::parse(name, &own);
            assert!(audience.covers(name) && !audience.covers("") && !audience.covers("other"));
        }
    }

    /// SEC-13: `messages` is a name like any other: what is for such an entity is not for what it is in.
    #[test]
    fn an_entity_named_messages_is_not_its_parent() {
        for (audience, other) in [
            ("sb://bus/messages", ""),
            ("sb://bus/messages", "orders"),
            ("https://bus/messages/head", ""),
            ("sb://bus/eu/messages", "eu/orders"),
            ("sb://bus/t/subscriptions/messages", "t/Subscriptions/secret"),
        ] {
            check(audience, other, false);
        }
        check("sb://bus/eu/messages", "eu/messages", true);
    }

    /// SEC-13: the host matters if that is asked for.
    #[test]
    fn hosts_are_compared_if_asked_for() {
        let hosts = ["bus.example.com".to_owned()];
        for (audience, expected) in [
            ("sb://BUS.example.com:5671/q", true),
            ("sb://other/q", false),
            ("q", false),
            ("sb://bus.example.com.evil/q", false),
        ] {
            assert_eq!(Audience::parse(audience, &[]).is_of_host(&hosts), expected, "{audience}");
        }
    }
}
