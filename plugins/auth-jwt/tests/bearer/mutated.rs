//! Mutated bearer tokens and key sets. The mutations are the same in every run.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::contract::{Action, Principal};

use crate::issuer::{IssuerKey, key_set};
use crate::world::{KeyFile, World, config};

const BYTES: &[u8; 23] = b"{}[]\":,.=-_eyJ0\\u\x00\xff\xc3\x80 \n";

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }

    /// Returns the bytes with a few added, removed or changed.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut mutated = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let (one, two) = (self.below(mutated.len() + 1), self.below(mutated.len() + 1));
            let (from, to) = (one.min(two), one.max(two));
            let byte = BYTES[self.below(BYTES.len())];
            match self.below(5) {
                0 => mutated.insert(from, byte),
                1 => drop(mutated.drain(from..to)),
                2 => drop(mutated.splice(from..to, [byte])),
                3 => {
                    let part = mutated[from..to].to_vec();
                    drop(mutated.splice(from..from, part));
                }
                _ => {
                    if let Some(byte) = mutated.get_mut(from) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        mutated
    }
}

/// SEC-28, SEC-31, SEC-22: a token with a changed text, header, claims or signature is refused with
/// a cause, and the refusal does not repeat the token.
#[tokio::test]
async fn mutated_bearer_tokens_are_refused() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("mutated", &[&key]);
    let world = World::new(config(file.source())).await;
    let good = key.sign(&world.claims(&["all"]));
    assert_eq!(world.refusal(&good, Action::Send, "orders").await, None);
    let parts: Vec<Vec<u8>> =
        good.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap()).collect();
    let mut random = Random(0x6a77_7474_6f6b_656e);
    let mut causes = BTreeSet::new();
    for number in 0..6_000 {
        let text = match number % 4 {
            // Mutate the text itself.
            0 => String::from_utf8_lossy(&random.mutate(good.as_bytes())).into_owned(),
            // Mutate the decoded content of a part.
            place => {
                let mut parts = parts.clone();
                parts[place - 1] = random.mutate(&parts[place - 1]);
                let parts = parts.iter().map(|part| URL_SAFE_NO_PAD.encode(part));
                parts.collect::<Vec<_>>().join(".")
            }
        };
        if text == good {
            continue;
        }
        // As from an HTTP client; a principal without a peer address is not delayed.
        let principal = Principal::anonymous().with_token(format!("Bearer {text}"));
        let refused = world.broker.access(principal).allow(Action::Send, "orders").await;
        let error = match refused {
            // Only white space around the token changed.
            Ok(_) if text.trim() == good => continue,
            other => other.unwrap_err(),
        };
        causes.extend(error.rejection().denial().map(|denial| denial.cause));
        assert!(!error.to_string().contains("a-secret-subject"), "{error}");
    }
    for cause in ["malformed", "signature", "algorithm"] {
        assert!(causes.contains(cause), "{cause}: {causes:?}");
    }
    world.stop().await;
}

/// SEC-29: any published content is either parsed within the bounds of a key set or refused, and
/// the error does not repeat it.
#[test]
fn mutated_key_sets_are_parsed_or_refused() {
    let keys = ["k1", "k2"].map(IssuerKey::new);
    let good = key_set(&keys);
    let file = KeyFile::new("published", &[]);
    let mut random = Random(0x6a77_6b73_6a77_6b73);
    let mut read = 0;
    for _ in 0..3_000 {
        let bytes = random.mutate(good.as_bytes());
        std::fs::write(&file.0, &bytes).unwrap();
        match file.source().check() {
            Ok(_) => read += 1,
            Err(error) => assert!(error.to_string().len() < 400, "{error}"),
        }
    }
    assert!(read > 100, "{read}");
}
