//! Headers that show that a request passed a proxy, so that its peer address is not the client's
//! (SEC-17). The transports of HTTP and of WebSocket upgrades check them.

/// Headers that proxies add, in addition to all that begin with [`FORWARDED_PREFIX`].
const NAMES: [&str; 4] = ["forwarded", "via", "x-real-ip", "x-forwarded"];
/// Prefix of `X-Forwarded-For`, `-Host`, `-Proto`, `-Port`, `-Server` and similar headers.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Whether a header shows that a proxy forwarded the request. `name` is in lower case.
#[must_use]
pub fn is_proxy_header(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(FORWARDED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-17: each header that a proxy adds is recognised.
    #[test]
    fn proxy_headers_are_recognised() {
        for name in [
            "forwarded",
            "via",
            "x-real-ip",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
        ] {
            assert!(is_proxy_header(name), "{name}");
        }
        for name in ["host", "origin", "authorization", "x-forward", "viaduct", "x-request-id"] {
            assert!(!is_proxy_header(name), "{name}");
        }
    }
}
