//! Host patterns, and the distinction between public and internal addresses. The connector checks
//! each destination and each resolved address with it. Internal addresses need an explicit pattern.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::Host;

/// Pattern for hosts: `hooks.example.com`, `*.example.com`, `10.0.0.7`, `[fd00::7]` or `*`, each
/// with `:port` to match only that port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    name: Name,
    port: Option<u16>,
}

/// Error for a text that is not a host pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a host: write a name such as hooks.example.com, *.example.com, an IP address, \
     each with :port to allow only that port, or * for all"
)]
pub struct HostError(pub String);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    Any,
    /// Exactly this host.
    Exactly(Host),
    /// All names that end with this suffix, which includes the leading dot.
    Below(String),
}

impl HostPattern {
    /// Returns whether the pattern matches this host and port.
    #[must_use]
    pub fn fits(&self, host: &Host, port: u16) -> bool {
        let named = match (&self.name, host) {
            (Name::Any, _) => true,
            (Name::Exactly(name), host) => name == host,
            (Name::Below(end), Host::Domain(name)) => {
                name.len() > end.len() && name.ends_with(end.as_str())
            }
            (Name::Below(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        };
        named && self.port.is_none_or(|only| only == port)
    }
}

impl FromStr for HostPattern {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = || HostError(text.to_owned());
        // Colons of an IPv6 address are inside brackets.
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                (name, Some(port.parse().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let host = |name: &str| Host::parse(name).map_err(|_| wrong());
        let name = match name.strip_prefix('*') {
            None => Name::Exactly(host(name)?),
            Some("") => Name::Any,
            Some(end) => match host(end.strip_prefix('.').ok_or_else(wrong)?)? {
                Host::Domain(domain) => Name::Below(format!(".{domain}")),
                Host::Ipv4(_) | Host::Ipv6(_) => return Err(wrong()),
            },
        };
        Ok(Self { name, port })
    }
}

/// Shows the pattern as written.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Any => f.write_str("*")?,
            Name::Exactly(host) => write!(f, "{host}")?,
            Name::Below(end) => write!(f, "*{end}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Returns whether an address belongs to the public internet: it is in no registry of special
/// addresses (RFC 6890 and later additions), and embeds no other address.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => is_public_v4(address),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    /// Network and prefix length.
    const SPECIAL: [([u8; 4], u32); 15] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
    ];
    let bits = u32::from(address);
    SPECIAL
        .iter()
        .all(|(network, length)| (bits ^ u32::from_be_bytes(*network)) >> (32 - length) != 0)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // 2000::/3 is the only range assigned to the internet. Excluded are protocol assignments
    // (including Teredo), documentation and 6to4.
    let is_global = first & 0xe000 == 0x2000;
    let is_special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8))
        || first == 0x2002
        || (first == 0x3fff && second < 0x1000);
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, expected: bool) {
        assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "::ffff:8.8.8.8",
        ] {
            check(address, true);
        }
    }

    #[test]
    fn special_addresses_are_not() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff:fff::1",
            "4000::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
        ] {
            check(address, false);
        }
    }

    fn fits(pattern: &str, host: &str, port: u16) -> bool {
        let pattern: HostPattern = pattern.parse().unwrap();
        pattern.fits(&Host::parse(host).unwrap(), port)
    }

    #[test]
    fn a_pattern_names_hosts() {
        assert!(fits("hooks.example.com", "HOOKS.example.com", 443));
        assert!(fits("hooks.example.com:8443", "hooks.example.com", 8443));
        assert!(!fits("hooks.example.com:8443", "hooks.example.com", 443));
        assert!(!fits("hooks.example.com", "hooks.example.com.evil.net", 443));
        assert!(!fits("hooks.example.com", "x.hooks.example.com", 443));
        assert!(fits("*.example.com", "a.b.example.com", 80));
        assert!(!fits("*.example.com", "example.com", 80));
        assert!(!fits("*.example.com", "badexample.com", 80));
        assert!(fits("127.0.0.1", "127.1", 80), "an address is one however it is written");
        assert!(fits("[::1]:80", "[0:0::1]", 80));
        assert!(!fits("[::1]:80", "[::1]", 81));
        assert!(fits("*:443", "anything.net", 443));
        assert!(!fits("*:443", "anything.net", 80));
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        for text in ["a.net", "a.net:1", "*.a.net", "*", "*:80", "10.0.0.1:1", "[::1]", "[::1]:2"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
        for text in
            ["", "a b", "a.net:", "a.net:x", "a.net:65536", "*a.net", "*.1.2.3.4", "http://a"]
        {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
