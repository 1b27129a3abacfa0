//! An issuer with new keys. Tests of AMQP and of the program link to this file.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// An ES256 key of an issuer.
pub struct IssuerKey {
    id: String,
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl IssuerKey {
    /// Generates a key with this id.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random numbers");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        Self { id: id.to_owned(), pair, random }
    }

    /// Returns the public key as a JWK.
    #[must_use]
    pub fn jwk(&self) -> Value {
        // The first byte marks an uncompressed point.
        let point = self.public().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": x, "y": y})
    }

    /// Returns the raw public key.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// Returns a signed token with these claims.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), claims)
    }

    /// Returns a signed token with this header, valid or not.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[must_use]
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let signature = self.pair.sign(&self.random, message.as_bytes()).expect("random numbers");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns the signed part of a token: header and claims.
#[must_use]
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Returns a JWK set of these keys.
#[must_use]
pub fn key_set<'a>(keys: impl IntoIterator<Item = &'a IssuerKey>) -> String {
    json!({"keys": keys.into_iter().map(IssuerKey::jwk).collect::<Vec<_>>()}).to_string()
}
