//! Detects the protocol of a connection from its first bytes.

use std::io;

use peeklock_tls::Stream;
use tokio::io::AsyncReadExt as _;

/// First bytes of AMQP (AMQP 2.2); no HTTP request begins with them.
const AMQP: &[u8] = b"AMQP";
/// First byte of TLS (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;

/// Protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spoken {
    Amqp,
    /// HTTP, or any bytes that the HTTP transport answers as an invalid request.
    Http,
    /// A TLS handshake, on a port without TLS or inside TLS.
    Tls,
}

/// Reads just enough bytes to detect the protocol, and gives them back to the stream.
pub(super) async fn tell(stream: &mut Stream) -> io::Result<Spoken> {
    let mut bytes = [0; AMQP.len()];
    let mut count = 0;
    let spoken = loop {
        let read = stream.read(bytes.get_mut(count..).unwrap_or_default()).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        count += read;
        if let Some(spoken) = spoken_by(bytes.get(..count).unwrap_or_default()) {
            break spoken;
        }
    };
    stream.give_back(bytes.get(..count).unwrap_or_default().to_vec());
    Ok(spoken)
}

/// Protocol of a connection that begins with `bytes`; none while more bytes are needed.
fn spoken_by(bytes: &[u8]) -> Option<Spoken> {
    match bytes {
        AMQP => Some(Spoken::Amqp),
        [HANDSHAKE, ..] => Some(Spoken::Tls),
        begun if AMQP.starts_with(begun) => None,
        _ => Some(Spoken::Http),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LIS-01: the protocol is detected with the first byte that decides it.
    #[test]
    fn first_bytes_tell_what_is_spoken() {
        for (bytes, spoken) in [
            (&b"A"[..], None),
            (b"AMQ", None),
            (b"AMQP", Some(Spoken::Amqp)),
            (b"ACL ", Some(Spoken::Http)),
            (b"AMQX", Some(Spoken::Http)),
            (b"G", Some(Spoken::Http)),
            (b"\r\n", Some(Spoken::Http)),
            (b"\x16\x03\x01", Some(Spoken::Tls)),
            (b"\0", Some(Spoken::Http)),
        ] {
            assert_eq!(spoken_by(bytes), spoken, "{bytes:?}");
        }
    }
}
