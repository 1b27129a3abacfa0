//! The headers of Standard Webhooks, by which a receiver knows who posted, and when
//! (<https://www.standardwebhooks.com>): `webhook-id`, `webhook-timestamp`, `webhook-signature`.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::contract::Source;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::path::SubQueue;
use ring::hmac;

use crate::config::SecretError;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// Bytes of a secret, by the standard.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets in force at the same time: signatures grow with them, two are what a change needs.
const SECRETS_MAX: usize = 4;

/// What signs for one receiver: one secret, or several while one is changed for another. Never shown.
#[derive(Clone)]
pub struct Secret {
    keys: Vec<hmac::Key>,
}

impl Secret {
    /// Reads a file with a secret a line, each `whsec_` and 24 to 64 bytes in base64. Every line
    /// signs, so that receivers go from one secret to the next without a gap.
    ///
    /// # Errors
    /// When the file cannot be read, or has something else in it.
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

    /// The value of `webhook-signature`: a signature by each secret.
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

/// The value of `webhook-id`: names a message of a source for ever, so that a receiver knows one that it
/// is posted again.
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

    /// The example of the reference implementations.
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
    fn what_is_no_secret_is_refused_and_not_repeated() {
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
