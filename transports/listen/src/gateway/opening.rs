//! Detects the protocol of a connection from its first bytes. `gateway.rs` calls it. The bytes are
//! given back to the stream, so the protocol reads all of them.

use std::io;

use peeklock_tls::Stream;
use tokio::io::AsyncReadExt as _;

/// First bytes of AMQP (AMQP 2.2); no HTTP request begins with them.
const AMQP: &[u8] = b"AMQP";
/// First byte of TLS (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;

/// Protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DetectedProtocol {
    Amqp,
    /// HTTP, or any bytes that the HTTP transport answers as an invalid request.
    Http,
    /// A TLS handshake, on a port without TLS or inside TLS.
    Tls,
}

/// Reads just enough bytes to detect the protocol, and gives them back to the stream.
pub(super) async fn detect_protocol(stream: &mut Stream) -> io::Result<DetectedProtocol> {
    let mut bytes = [0; AMQP.len()];
    let mut count = 0;
    let spoken = loop {
        let read = stream.read(bytes.get_mut(count..).unwrap_or_default()).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        count += read;
        if let Some(spoken) = protocol_of(bytes.get(..count).unwrap_or_default()) {
            break spoken;
        }
    };
    stream.give_back(bytes.get(..count).unwrap_or_default().to_vec());
    Ok(spoken)
}

/// Protocol of a connection that begins with `bytes`; none while more bytes are needed.
fn protocol_of(bytes: &[u8]) -> Option<DetectedProtocol> {
    match bytes {
        AMQP => Some(DetectedProtocol::Amqp),
        [HANDSHAKE, ..] => Some(DetectedProtocol::Tls),
        begun if AMQP.starts_with(begun) => None,
        _ => Some(DetectedProtocol::Http),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LIS-01: the protocol is detected with the first byte that decides it.
    #[test]
    fn the_protocol_is_detected_from_the_first_bytes() {
        for (bytes, spoken) in [
            (&b"A"[..], None),
            (b"AMQ", None),
            (b"AMQP", Some(DetectedProtocol::Amqp)),
            (b"ACL ", Some(DetectedProtocol::Http)),
            (b"AMQX", Some(DetectedProtocol::Http)),
            (b"G", Some(DetectedProtocol::Http)),
            (b"\r\n", Some(DetectedProtocol::Http)),
            (b"\x16\x03\x01", Some(DetectedProtocol::Tls)),
            (b"\0", Some(DetectedProtocol::Http)),
        ] {
            assert_eq!(protocol_of(bytes), spoken, "{bytes:?}");
        }
    }
}
