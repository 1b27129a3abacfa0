//! The headers of Standard Webhooks (<https://www.standardwebhooks.com>): `webhook-id`,
//! `webhook-timestamp` and `webhook-signature`. With them a receiver verifies the sender and the
//! time, and detects repeats.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::contract::Source;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::path::SubQueue;
use ring::hmac;

use crate::config::SecretError;

/// Prefix of a secret.
const PREFIX: &str = "whsec_";
/// Length of a secret in bytes, by the standard.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Maximum number of secrets at a time. A rotation needs two, and each adds a signature.
const SECRETS_MAX: usize = 4;

/// Signing keys for one receiver, several during a rotation. Never shown.
#[derive(Clone)]
pub struct Secret {
    keys: Vec<hmac::Key>,
}

impl Secret {
    /// Reads a file with one secret per line, each `whsec_` and 24 to 64 bytes in base64. Every
    /// secret signs, so that receivers can switch to the next one at any time.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has other content.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SecretError::Unreadable { path: path.to_owned(), source })?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Self::of_lines(lines)
            .map_err(|detail| SecretError::Unusable { path: path.to_owned(), detail })
    }

    fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, &'static str> {
        let mut keys = Vec::new();
        for line in lines {
            let encoded = line.strip_prefix(PREFIX).ok_or("a secret must begin with whsec_")?;
            let bytes =
                STANDARD.decode(encoded).map_err(|_| "after whsec_ a secret must be base64")?;
            if !SECRET_BYTES.contains(&bytes.len()) {
                return Err("a secret must have 24 to 64 bytes");
            }
            keys.push(hmac::Key::new(hmac::HMAC_SHA256, &bytes));
        }
        match keys.len() {
            0 => Err("the file has no secret"),
            count if count > SECRETS_MAX => Err("the file has more than 4 secrets"),
            _ => Ok(Self { keys }),
        }
    }

    /// Returns the value of `webhook-signature`: one signature per secret.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut signatures = String::new();
        for key in &self.keys {
            let mut signing = hmac::Context::with_key(key);
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                signing.update(part);
            }
            if !signatures.is_empty() {
                signatures.push(' ');
            }
            signatures.push_str("v1,");
            STANDARD.encode_string(signing.sign(), &mut signatures);
        }
        signatures
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} keys)", self.keys.len())
    }
}

/// Returns the value of `webhook-id`: a permanent id of a source's message, so that a receiver
/// recognises repeats.
pub fn webhook_id(source: &Source, sequence: SequenceNumber) -> String {
    let queue = match source.sub_queue {
        SubQueue::Main => "",
        SubQueue::DeadLetter => "d",
        SubQueue::TransferDeadLetter => "t",
    };
    format!("msg_{:032x}_{:x}{queue}_{}", source.broker, source.entity.0, sequence.0)
}

#[cfg(test)]
mod tests {
    use peeklock_core::ids::EntityId;

    use super::*;

    /// Compares with the example of the reference implementations.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let secret =
            Secret::of_lines(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"].into_iter()).unwrap();
        let signed =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs() {
        let [first, second] = [encode(&[1; 24]), encode(&[2; 64])];
        let both = Secret::of_lines([first.as_str(), second.as_str()].into_iter()).unwrap();
        let one = |line: &str| Secret::of_lines([line].into_iter()).unwrap().sign("a", "1", b"b");
        assert_eq!(both.sign("a", "1", b"b"), format!("{} {}", one(&first), one(&second)));
    }

    fn encode<const N: usize>(bytes: &[u8; N]) -> String {
        format!("{PREFIX}{}", STANDARD.encode(bytes))
    }

    #[test]
    fn invalid_secrets_are_refused_and_not_repeated() {
        let short = encode(&[7; 23]);
        let long = encode(&[7; 65]);
        let bare = STANDARD.encode([7; 32]);
        for line in [short.as_str(), &long, &bare, "whsec_***", "whsec_"] {
            let detail = Secret::of_lines([line].into_iter()).unwrap_err();
            assert!(!detail.contains(line.trim_start_matches(PREFIX)) || line == "whsec_");
        }
        let good = encode(&[7; 32]);
        assert!(Secret::of_lines(std::iter::empty()).is_err());
        assert!(Secret::of_lines(std::iter::repeat_n(good.as_str(), 5)).is_err());
        let secret = Secret::of_lines([good.as_str()].into_iter()).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(1 keys)");
    }

    #[test]
    fn an_id_names_source_and_number() {
        let mut source = Source {
            broker: 0xab,
            entity: EntityId(18),
            path: "orders".into(),
            sub_queue: SubQueue::Main,
        };
        let main = webhook_id(&source, SequenceNumber(7));
        assert_eq!(main, "msg_000000000000000000000000000000ab_12_7");
        source.sub_queue = SubQueue::DeadLetter;
        assert_eq!(
            webhook_id(&source, SequenceNumber(7)),
            "msg_000000000000000000000000000000ab_12d_7"
        );
    }
}
