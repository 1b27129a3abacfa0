//! The key set that an issuer publishes: a JWK set (RFC 7517). `source.rs` parses it, and `keys.rs`
//! looks up keys in it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::contract::Epoch;
use serde::Deserialize;

use crate::algorithm::{Algorithm, Kind, PublicKey};

/// Maximum number of keys in a set; known issuers publish at most about ten.
const KEY_COUNT_MAX: usize = 64;

/// The keys of an issuer.
#[derive(Default)]
pub struct KeySet(Vec<Arc<Key>>);

/// A key that signs tokens.
pub struct Key {
    id: Option<Box<str>>,
    /// The only permitted algorithm, if the set names one.
    algorithm: Option<Box<str>>,
    pub public: PublicKey,
    /// Ends all grants made with the key when the issuer withdraws it.
    pub epoch: Epoch,
}

/// Reason why a text is not a usable key set. The text is not repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// The text is not JSON in the format of a key set.
    #[error("it must be a JSON object with a list `keys`")]
    Form,
    /// The set has more than 64 keys.
    #[error("it has more than {KEY_COUNT_MAX} keys")]
    Many,
    /// The set has no key of a supported kind.
    #[error("it has no public key of RSA, P-256, P-384 or Ed25519")]
    Nothing,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

/// A key as published. Other members, such as certificates, are ignored.
#[derive(Deserialize)]
struct Jwk {
    kty: Box<str>,
    kid: Option<Box<str>>,
    alg: Option<Box<str>>,
    #[serde(rename = "use")]
    purpose: Option<Box<str>>,
    crv: Option<Box<str>>,
    n: Option<Box<str>>,
    e: Option<Box<str>>,
    x: Option<Box<str>>,
    y: Option<Box<str>>,
}

impl KeySet {
    /// Parses a set. Keys of other kinds or purposes are skipped, because issuers publish them in
    /// the same set.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        let set: Jwks = serde_json::from_slice(text).map_err(|_| KeySetError::Form)?;
        if set.keys.len() > KEY_COUNT_MAX {
            return Err(KeySetError::Many);
        }
        let jwks = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let keys: Vec<_> = jwks.filter_map(Jwk::into_key).map(Arc::new).collect();
        if keys.is_empty() { Err(KeySetError::Nothing) } else { Ok(Self(keys)) }
    }

    /// Returns the key with this id that fits the algorithm. Without an id, returns a key only if
    /// exactly one fits.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Arc<Key>> {
        let is_meant = |key: &&Arc<Key>| {
            key.public.kind() == algorithm.kind()
                && key.algorithm.as_deref().is_none_or(|only| only == algorithm.name())
                && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        let mut meant = self.0.iter().filter(is_meant);
        let first = meant.next();
        first.filter(|_| id.is_some() || meant.next().is_none())
    }

    /// Returns whether a lasting grant depends on any of these keys.
    pub fn is_in_use(&self) -> bool {
        self.0.iter().any(|key| key.epoch.is_held())
    }

    /// Replaces an older set. Keys in both sets keep their grants; grants of the other older keys
    /// end.
    #[must_use]
    pub fn replacing(mut self, older: &Self) -> Self {
        for key in &mut self.0 {
            if let Some(same) = older.0.iter().find(|it| it.equals(key)) {
                *key = Arc::clone(same);
            }
        }
        let is_left = |key: &Arc<Key>| self.0.iter().any(|it| Arc::ptr_eq(it, key));
        older.0.iter().filter(|key| !is_left(key)).for_each(|key| key.epoch.raise());
        self
    }
}

impl Key {
    fn equals(&self, other: &Self) -> bool {
        (&self.id, &self.algorithm, &self.public) == (&other.id, &other.algorithm, &other.public)
    }
}

impl Jwk {
    fn into_key(self) -> Option<Key> {
        if self.purpose.is_some_and(|purpose| &*purpose != "sig") {
            return None;
        }
        let bytes = |text: Option<Box<str>>| URL_SAFE_NO_PAD.decode(&*text?).ok();
        let public = match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => PublicKey::Rsa { n: bytes(self.n)?.into(), e: bytes(self.e)?.into() },
            ("EC", Some("P-256")) => point(Kind::P256, &bytes(self.x)?, &bytes(self.y)?)?,
            ("EC", Some("P-384")) => point(Kind::P384, &bytes(self.x)?, &bytes(self.y)?)?,
            ("OKP", Some("Ed25519")) => PublicKey::Point(Kind::Ed25519, bytes(self.x)?.into()),
            _ => return None,
        };
        Some(Key { id: self.kid, algorithm: self.alg, public, epoch: Epoch::new() })
    }
}

/// Builds an uncompressed point. Both coordinates must have full length; otherwise bytes could move
/// from x to y.
fn point(kind: Kind, x: &[u8], y: &[u8]) -> Option<PublicKey> {
    let length = if kind == Kind::P384 { 48 } else { 32 };
    let is_whole = x.len() == length && y.len() == length;
    is_whole.then(|| PublicKey::Point(kind, [&[4], x, y].concat().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    fn key(rest: &str) -> String {
        format!(r#"{{"kty": "EC", "crv": "P-256", "x": "{X}", "y": "{Y}"{rest}}}"#)
    }

    fn parse(keys: &[String]) -> Result<KeySet, KeySetError> {
        KeySet::parse(format!("{{\"keys\": [{}]}}", keys.join(", ")).as_bytes())
    }

    fn error(keys: &[String]) -> Option<KeySetError> {
        parse(keys).err()
    }

    /// SEC-28: a key must match its id, algorithm and purpose. Without an id it is found only if
    /// exactly one key fits.
    #[test]
    fn a_key_is_found_by_name_and_algorithm() {
        let es = Algorithm::Es256;
        let keys = [
            key(r#", "kid": "a""#),
            key(r#", "kid": "b", "alg": "ES256", "use": "sig""#),
            key(r#", "kid": "c", "use": "enc""#),
            key(r#", "kid": "d", "alg": "ECDH-ES""#),
        ];
        let set = parse(&keys).unwrap();
        for (id, is_found) in [("a", true), ("b", true), ("c", false), ("d", false), ("A", false)] {
            assert_eq!(set.find(Some(id), es).is_some(), is_found, "{id}");
        }
        assert!(set.find(None, es).is_none(), "two fit");
        assert!(set.find(Some("a"), Algorithm::Rs256).is_none());
        assert!(parse(&keys[..1]).unwrap().find(None, es).is_some());
    }

    /// SEC-28, SEC-29: shared secrets and incomplete points are skipped, a set is bounded, and an
    /// unusable key does not affect the others.
    #[test]
    fn unusable_keys_are_skipped() {
        let odd = [
            r#"{"kty": "oct", "k": "c2VjcmV0"}"#.to_owned(),
            r#"{"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}"#.to_owned(),
            r#"{"kty": "RSA", "n": "%"}"#.to_owned(),
            key("").replace(X, &X[1..]),
            key("").replace(Y, &format!("AAAA{Y}")),
            "7".to_owned(),
            r#"{"kid": 7}"#.to_owned(),
        ];
        for one in &odd {
            assert_eq!(error(std::slice::from_ref(one)), Some(KeySetError::Nothing), "{one}");
        }
        assert_eq!(error(&[]), Some(KeySetError::Nothing));
        let mixed = [&odd[..], &[key("")]].concat();
        assert!(parse(&mixed).unwrap().find(None, Algorithm::Es256).is_some());
        assert!(parse(&vec![key(""); KEY_COUNT_MAX]).is_ok());
        assert_eq!(error(&vec![key(""); KEY_COUNT_MAX + 1]), Some(KeySetError::Many));
        for text in ["", "[]", "{}", "{\"keys\": 7}", "<html>"] {
            assert_eq!(KeySet::parse(text.as_bytes()).err(), Some(KeySetError::Form), "{text}");
        }
    }

    /// SEC-29: a grant ends when the issuer withdraws its key, and continues while the issuer keeps
    /// the key.
    #[test]
    fn a_withdrawn_key_ends_its_grants() {
        let (kept, gone) = (key(r#", "kid": "kept""#), key(r#", "kid": "gone""#));
        let older = parse(&[kept.clone(), gone]).unwrap();
        let mark = |id| older.find(Some(id), Algorithm::Es256).unwrap().epoch.mark();
        let marks = [mark("kept"), mark("gone")];
        let newer = parse(&[key(r#", "kid": "new""#), kept]).unwrap().replacing(&older);
        assert_eq!(marks.map(|mark| mark.is_current()), [true, false]);
        assert!(newer.find(Some("kept"), Algorithm::Es256).is_some());
    }
}
