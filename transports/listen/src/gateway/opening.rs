//! What a connection speaks, by the bytes it begins with.

use std::io;

use peeklock_tls::Stream;
use tokio::io::AsyncReadExt as _;

/// How AMQP begins (AMQP 2.2), and no request of HTTP.
const AMQP: &[u8] = b"AMQP";
/// How TLS begins (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spoken {
    Amqp,
    /// Or what HTTP answers as none.
    Http,
    /// Where none is spoken, or within TLS.
    Tls,
}

/// Reads no more than it takes to tell, and gives it back.
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

/// None while it could be either.
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

    /// LIS-01: what is spoken is told as soon as it can be, and not before.
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
