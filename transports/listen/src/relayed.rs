//! What tells that a request comes by way of a proxy, which is not where its client is (SEC-17).

/// Headers that proxies add besides all that begin with [`FORWARDED_PREFIX`].
const NAMES: [&str; 4] = ["forwarded", "via", "x-real-ip", "x-forwarded"];
/// `X-Forwarded-For`, `-Host`, `-Proto`, `-Port`, `-Server` and their like.
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Whether a header is one by which a proxy says that it hands on what somebody else has asked. `name` is in lower case.
#[must_use]
pub fn names_proxy(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(FORWARDED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-17: each header that a proxy adds tells it.
    #[test]
    fn proxies_are_told_by_their_headers() {
        for name in [
            "forwarded",
            "via",
            "x-real-ip",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
        ] {
            assert!(names_proxy(name), "{name}");
        }
        for name in ["host", "origin", "authorization", "x-forward", "viaduct", "x-request-id"] {
            assert!(!names_proxy(name), "{name}");
        }
    }
}
