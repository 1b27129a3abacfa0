//! The audience of a token: the resource at its URL and everything below it (SEC-13). The
//! authorizer compares it with each requested resource.

use std::borrow::Cow;
use std::fmt;

use peeklock_core::contract::browser::{is_host_of_audience, split_host};
use percent_encoding::percent_decode_str;

/// Suffix of an entity's path in the node addresses that clients sign. Entity names cannot begin
/// with `$`, so the suffix is unambiguous. `messages` is a valid entity name and therefore not a
/// suffix; for such an address the principal's request address is compared instead.
const SUFFIX: &str = "/$management";

/// Host and path of an audience, in lower case.
#[derive(Clone, PartialEq, Eq)]
pub struct Audience {
    host: Option<String>,
    path: String,
}

impl Audience {
    /// Parses the decoded resource of a token: an absolute URL of any scheme, a URL without a
    /// scheme if its host belongs to a broker ([`is_host_of_audience`]), or a path.
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

    /// Returns whether the audience covers a resource: the path of an entity or sub-queue, or empty
    /// for the namespace.
    #[must_use]
    pub fn covers(&self, resource: &str) -> bool {
        let resource = resource.trim_matches('/').to_ascii_lowercase();
        self.path.is_empty()
            || resource
                .strip_prefix(&self.path)
                .is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// Returns whether the audience covers a part of a resource but not the whole.
    #[must_use]
    pub fn is_below(&self, resource: &str) -> bool {
        let resource = resource.trim_matches('/').to_ascii_lowercase();
        let below = self.path.strip_prefix(&resource);
        below.is_some_and(|below| {
            !below.is_empty() && (resource.is_empty() || below.starts_with('/'))
        })
    }

    /// Returns whether the host is in `hosts`; false for an audience without a host.
    #[must_use]
    pub fn is_of_host(&self, hosts: &[String]) -> bool {
        let Some(host) = &self.host else { return false };
        hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Returns the path, in lower case.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Decodes the path of a URL segment by segment: some clients encode a name with a slash as one
/// segment (ADM-04), others as several. A segment that is not valid UTF-8 after decoding stays
/// encoded and matches no entity.
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

    /// SEC-13: case, scheme, port, host and a trailing slash do not matter.
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

    /// SEC-13, ADM-04: a name with a slash is the same whether the slash is encoded or not. Only
    /// URLs are decoded, and only once; a bare path is not.
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

    /// SEC-13: an audience covers its resource and everything below it, by whole segments.
    #[test]
    fn an_audience_covers_everything_below_it() {
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

    /// SEC-13: without a scheme, a known form of host distinguishes a host from a path.
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
        // A name with dots is an entity name, not a host that covers everything.
        for name in ["queue.1", "orders.eu", "servicebus.windows.net", "bus.example.com.evil"] {
            let audience = Audience::parse(name, &own);
            assert!(audience.covers(name) && !audience.covers("") && !audience.covers("other"));
        }
    }

    /// SEC-13: `messages` is an ordinary entity name, and an audience for it does not cover its
    /// parent.
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

    /// SEC-13: the host matters only in strict mode.
    #[test]
    fn hosts_are_compared_in_strict_mode() {
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
