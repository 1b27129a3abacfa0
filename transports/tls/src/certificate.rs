//! What a certificate says: whose it is, for which names, and how long.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use peeklock_core::contract::TlsIdentity;
use peeklock_core::time::Timestamp;
use ring::digest::{SHA256, digest};
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::ToDer as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Names of attributes that RFC 4514 has; others are written as numbers.
const ATTRIBUTES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// What a certificate says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Certificate {
    /// Whose it is, as RFC 4514 writes it; may be empty.
    pub subject: String,
    /// Who has signed it, likewise.
    pub issuer: String,
    /// Names of hosts that it is for, such as `bus.example.com` and `*.example.com`.
    pub dns_names: Vec<String>,
    /// Addresses that it is for.
    pub addresses: Vec<IpAddr>,
    /// From when it is good.
    pub not_before: Timestamp,
    /// Up to when.
    pub not_after: Timestamp,
    /// SHA-256 of all of it, in hexadecimal pairs.
    pub fingerprint: String,
}

/// A certificate that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("certificate cannot be read: {0}")]
pub struct CertificateError(String);

impl Certificate {
    /// Reads a certificate in DER form.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_der(der: &[u8]) -> Result<Self, CertificateError> {
        let parsed = parse(der)?;
        let (mut dns_names, mut addresses) = (Vec::new(), Vec::new());
        let names = parsed.subject_alternative_name();
        let names = names.map_err(|error| CertificateError(error.to_string()))?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        let instant =
            |seconds: i64| Timestamp::from_unix_ms(seconds.clamp(0, i64::MAX / 1_000) * 1_000);
        let validity = parsed.validity();
        Ok(Self {
            subject: rfc4514(parsed.subject()),
            issuer: rfc4514(parsed.issuer()),
            dns_names,
            addresses,
            not_before: instant(validity.not_before.timestamp()),
            not_after: instant(validity.not_after.timestamp()),
            fingerprint: fingerprint(der),
        })
    }

    /// Whether it is for an address.
    #[must_use]
    pub fn is_for_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether it is for a host: a name, or the text of an address, of IPv6 with or without brackets.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse() {
            return self.is_for_address(address);
        }
        self.dns_names.iter().any(|name| match name.strip_prefix("*.") {
            None => name.eq_ignore_ascii_case(host),
            Some(above) => {
                host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(above))
            }
        })
    }
}

/// Who somebody is by a certificate that was verified.
pub(crate) fn identity(der: &CertificateDer<'_>) -> Result<TlsIdentity, CertificateError> {
    let parsed = parse(der)?;
    Ok(TlsIdentity::new(rfc4514(parsed.subject()), Bytes::copy_from_slice(der)))
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err(CertificateError("it is followed by more data".to_owned())),
        Err(error) => Err(CertificateError(error.to_string())),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(v4));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn fingerprint(der: &[u8]) -> String {
    hex(digest(&SHA256, der).as_ref(), ":")
}

fn hex(bytes: &[u8], between: &str) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(between)
}

/// A name as RFC 4514 writes it: the last part first.
fn rfc4514(name: &X509Name<'_>) -> String {
    let parts: Vec<String> = name
        .iter_rdn()
        .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"))
        .collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(number, _)| *number == oid).map(|(_, name)| *name);
    match (known, attribute.as_str()) {
        (Some(name), Ok(value)) => format!("{name}={}", escaped(value)),
        // What has no name, or is no text, is written as the bytes of its DER form.
        (name, _) => {
            let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
            format!("{}=#{}", name.unwrap_or(&oid), hex(&bytes, ""))
        }
    }
}

/// A value with what has a meaning escaped; control characters too, since it stands in logs.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (place, char) in value.chars().enumerate() {
        match char {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', char]),
            '#' if place == 0 => text.push_str("\\#"),
            ' ' if place == 0 || place == last => text.push_str("\\ "),
            char if char.is_control() => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    // Writing into memory cannot fail.
                    write!(text, "\\{byte:02X}").unwrap_or_default();
                }
            }
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, expected: &str) {
        assert_eq!(escaped(value), expected);
    }

    /// TLS-04: a subject cannot pretend to be another one by its characters.
    #[test]
    fn what_has_a_meaning_is_escaped() {
        check("shop", "shop");
        check("a,CN=root", "a\\,CN=root");
        check("a+b;c<d>e\"f\\g", "a\\+b\\;c\\<d\\>e\\\"f\\\\g");
        check("#x#", "\\#x#");
        check(" a b ", "\\ a b\\ ");
        check("a\nb\u{0}", "a\\0Ab\\00");
        check("\u{85}é", "\\C2\\85é");
    }
}
