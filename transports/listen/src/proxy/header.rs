//! Bytes of a PROXY protocol header, version 2 (section 2.2 of its specification).
//!
//! ```text
//!  signature, 12 bytes │ version, command │ family, protocol │ length, 2 bytes ┃ addresses │ TLVs
//!  ◄────────────────────────── fixed, 16 bytes ──────────────────────────────► ◄──── length ────►
//! ```
//!
//! TLVs are checked for their length and skipped: a client's certificate comes from the broker's
//! own TLS, and no other TLV has a meaning for a broker. Version 1 is not supported, because its
//! length is not known in advance.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the fixed part.
pub(super) const FIXED_BYTES: usize = 16;
/// Maximum bytes after the fixed part. Proxies send addresses and a few TLVs, some hundred bytes in
/// total.
pub(super) const REST_BYTES_MAX: usize = 4 << 10;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of type and length at the beginning of each TLV.
const TLV_HEAD_BYTES: usize = 3;

/// Fixed part of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fixed {
    says: AddressKind,
    rest_bytes: u16,
}

/// Kind of the addresses in the rest of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddressKind {
    /// No addresses: the proxy speaks for itself, or does not name its client.
    Unspecified,
    Inet,
    Inet6,
}

/// Error for bytes that are not a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum HeaderFault {
    #[error("it does not begin with the signature of version 2")]
    Signature,
    #[error("its version must be 2, and its command LOCAL or PROXY")]
    Command,
    #[error("the client must use TCP over IP")]
    Family,
    #[error("it is longer than {REST_BYTES_MAX} bytes, or too short for its addresses")]
    Length,
    #[error("its TLVs exceed its length")]
    Tlv,
}

impl Fixed {
    pub(super) fn read(bytes: [u8; FIXED_BYTES]) -> Result<Self, HeaderFault> {
        let [signature @ .., command, family, high, low] = bytes;
        if signature != SIGNATURE {
            return Err(HeaderFault::Signature);
        }
        let says = match (command, family) {
            // Sent by health checks of the proxy itself; the family has no meaning then.
            (0x20, _) => AddressKind::Unspecified,
            (0x21, 0x00) => AddressKind::Unspecified,
            (0x21, 0x11) => AddressKind::Inet,
            (0x21, 0x21) => AddressKind::Inet6,
            (0x21, _) => return Err(HeaderFault::Family),
            _ => return Err(HeaderFault::Command),
        };
        let rest_bytes = u16::from_be_bytes([high, low]);
        if usize::from(rest_bytes) > REST_BYTES_MAX || usize::from(rest_bytes) < says.bytes() {
            return Err(HeaderFault::Length);
        }
        Ok(Self { says, rest_bytes })
    }

    pub(super) fn rest_bytes(self) -> usize {
        usize::from(self.rest_bytes)
    }

    /// Address of the client, if the proxy sends one.
    pub(super) fn client(self, rest: &[u8]) -> Result<Option<SocketAddr>, HeaderFault> {
        let (addresses, tlvs) =
            rest.split_at_checked(self.says.bytes()).ok_or(HeaderFault::Length)?;
        let client = match self.says {
            // The bytes that follow have no meaning.
            AddressKind::Unspecified => return Ok(None),
            AddressKind::Inet => read_client(addresses, |ip: [u8; 4]| Ipv4Addr::from(ip).into()),
            AddressKind::Inet6 => read_client(addresses, |ip: [u8; 16]| Ipv6Addr::from(ip).into()),
        };
        check_tlvs(tlvs)?;
        client.map(Some).ok_or(HeaderFault::Length)
    }
}

impl AddressKind {
    /// Bytes of two addresses and two ports.
    const fn bytes(self) -> usize {
        match self {
            Self::Unspecified => 0,
            Self::Inet => 2 * (4 + 2),
            Self::Inet6 => 2 * (16 + 2),
        }
    }
}

/// Address and port of the source. The destination address follows the source address, its port the
/// source port.
fn read_client<const N: usize>(addresses: &[u8], ip: fn([u8; N]) -> IpAddr) -> Option<SocketAddr> {
    let source = addresses.first_chunk::<N>()?;
    let port = addresses.get(2 * N..)?.first_chunk::<2>()?;
    Some(SocketAddr::new(ip(*source), u16::from_be_bytes(*port)))
}

/// Checks that each TLV ends within the header.
fn check_tlvs(mut tlvs: &[u8]) -> Result<(), HeaderFault> {
    while !tlvs.is_empty() {
        let [_, high, low] = *tlvs.first_chunk::<TLV_HEAD_BYTES>().ok_or(HeaderFault::Tlv)?;
        let bytes = TLV_HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
        tlvs = tlvs.get(bytes..).ok_or(HeaderFault::Tlv)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INET: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80];

    fn read(command: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, HeaderFault> {
        let mut fixed = [0; FIXED_BYTES];
        fixed[..12].copy_from_slice(&SIGNATURE);
        let bytes = u16::try_from(rest.len()).unwrap().to_be_bytes();
        fixed[12..].copy_from_slice(&[command, family, bytes[0], bytes[1]]);
        let fixed = Fixed::read(fixed)?;
        assert_eq!(fixed.rest_bytes(), rest.len());
        fixed.client(rest)
    }

    fn with(tlvs: &[u8]) -> Vec<u8> {
        [&INET[..], tlvs].concat()
    }

    /// LIS-04: the client address is the source address of the header.
    #[test]
    fn the_client_address_is_the_source_of_the_header() {
        let client = "192.0.2.7:4660".parse().unwrap();
        assert_eq!(read(0x21, 0x11, &INET), Ok(Some(client)));
        assert_eq!(read(0x21, 0x11, &with(&[4, 0, 2, 9, 9, 2, 0, 0])), Ok(Some(client)));
        let mut inet6 = [0; 36];
        inet6[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        inet6[32..34].copy_from_slice(&[0x12, 0x34]);
        assert_eq!(read(0x21, 0x21, &inet6), Ok("[2001:db8::7]:4660".parse().ok()));
        for (command, family) in [(0x20, 0), (0x20, 0x11), (0x20, 0xff), (0x21, 0)] {
            assert_eq!(read(command, family, &INET), Ok(None), "{command:x} {family:x}");
            assert_eq!(read(command, family, &[]), Ok(None), "{command:x} {family:x}");
        }
    }

    /// LIS-04: other bytes are refused.
    #[test]
    fn invalid_headers_are_refused() {
        assert_eq!(Fixed::read(*b"GET / HTTP/1.1\r\n"), Err(HeaderFault::Signature));
        assert_eq!(Fixed::read(*b"PROXY TCP4 1.2.3"), Err(HeaderFault::Signature));
        for command in [0x11, 0x22, 0x2f, 0x31, 0] {
            assert_eq!(read(command, 0x11, &INET), Err(HeaderFault::Command), "{command:x}");
        }
        for family in [0x12, 0x22, 0x31, 0x32, 0x10, 0x01, 0xff] {
            assert_eq!(read(0x21, family, &[0; 216]), Err(HeaderFault::Family), "{family:x}");
        }
        assert_eq!(read(0x21, 0x11, &INET[..11]), Err(HeaderFault::Length));
        assert_eq!(read(0x21, 0x21, &[0; 35]), Err(HeaderFault::Length));
        assert_eq!(read(0x21, 0x11, &[0; REST_BYTES_MAX + 1]), Err(HeaderFault::Length));
        assert_eq!(read(0x20, 0, &[0; REST_BYTES_MAX + 1]), Err(HeaderFault::Length));
        for tlvs in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0xff, 0xff, 0], &[4, 0, 0, 1]] {
            assert_eq!(read(0x21, 0x11, &with(tlvs)), Err(HeaderFault::Tlv), "{tlvs:?}");
        }
    }

    /// LIS-04: with any single byte changed, parsing returns a result, and accepts a header only
    /// with the whole signature.
    #[test]
    fn a_changed_byte_is_parsed_without_failure() {
        let good = with(&[4, 0, 2, 9, 9]);
        let mut fixed = [0; FIXED_BYTES];
        fixed[..12].copy_from_slice(&SIGNATURE);
        fixed[12..].copy_from_slice(&[0x21, 0x11, 0, 17]);
        for place in 0..FIXED_BYTES + good.len() {
            for value in 0..=u8::MAX {
                let (is_same, mut fixed, mut rest) =
                    (fixed.get(place) == Some(&value), fixed, good.clone());
                match place.checked_sub(FIXED_BYTES) {
                    None => fixed[place] = value,
                    Some(place) => rest[place] = value,
                }
                let Ok(fixed) = Fixed::read(fixed) else { continue };
                rest.resize(fixed.rest_bytes(), 0);
                if fixed.client(&rest).is_ok() {
                    assert!(is_same || place >= SIGNATURE.len(), "byte {place} is {value}");
                }
            }
        }
    }
}
