//! Content of a certificate: subject, issuer, names and validity. The acceptor identifies clients
//! with it, and the server logs and prints it.

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

/// Attribute types with a name in RFC 4514; others are written as numbers.
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

/// Content of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Certificate {
    /// The subject in the format of RFC 4514; may be empty.
    pub subject: String,
    /// The issuer in the format of RFC 4514.
    pub issuer: String,
    /// Host names that it is valid for, such as `bus.example.com` and `*.example.com`.
    pub dns_names: Vec<String>,
    /// Addresses that it is valid for.
    pub addresses: Vec<IpAddr>,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// SHA-256 of the certificate, in hexadecimal pairs.
    pub fingerprint: String,
}

/// Error of a certificate that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("certificate cannot be read: {0}")]
pub struct CertificateError(String);

impl Certificate {
    /// Parses a certificate in DER form.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a certificate.
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

    /// Returns whether it is valid for an address.
    #[must_use]
    pub fn is_for_address(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// Returns whether it is valid for a host: a name, or an address as text, IPv6 with or without
    /// brackets.
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

/// Returns the identity in a verified client certificate.
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

/// Formats a name as in RFC 4514: the last part first.
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
        // An attribute without a name or text form is written as its DER bytes.
        (name, _) => {
            let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
            format!("{}=#{}", name.unwrap_or(&oid), hex(&bytes, ""))
        }
    }
}

/// Escapes special characters, and control characters, because the text appears in logs.
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
                    // Writing to a string cannot fail.
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

    /// TLS-04: special characters in a subject cannot imitate another subject.
    #[test]
    fn special_characters_are_escaped() {
        check("shop", "shop");
        check("a,CN=root", "a\\,CN=root");
        check("a+b;c<d>e\"f\\g", "a\\+b\\;c\\<d\\>e\\\"f\\\\g");
        check("#x#", "\\#x#");
        check(" a b ", "\\ a b\\ ");
        check("a\nb\u{0}", "a\\0Ab\\00");
        check("\u{85}é", "\\C2\\85é");
    }
}
