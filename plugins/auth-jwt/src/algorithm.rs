//! Signature algorithms and the public keys that fit them (RFC 7518, RFC 8037). `token.rs` verifies
//! with them. Each algorithm accepts exactly one kind of key, so that a key is never used for
//! another purpose.

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

/// Signature algorithm of a token. No algorithm uses a shared secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// Kind of a public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// Modulus and exponent, big-endian. Only keys of 2,048 to 8,192 bits verify anything.
    Rsa { n: Box<[u8]>, e: Box<[u8]> },
    /// An uncompressed point of a NIST curve, or the public key bytes of Ed25519.
    Point(Kind, Box<[u8]>),
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// Returns the algorithm with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the name in the header of a token.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the kind of key that the algorithm needs.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => {
                Kind::Rsa
            }
            Self::Es256 => Kind::P256,
            Self::Es384 => Kind::P384,
            Self::EdDsa => Kind::Ed25519,
        }
    }

    /// Returns whether `signed` is the signature of `message` with this key.
    pub fn verifies(self, key: &PublicKey, message: &[u8], signed: &[u8]) -> bool {
        if key.kind() != self.kind() {
            return false;
        }
        let rsa = |parameters| match key {
            PublicKey::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signed).is_ok()
            }
            PublicKey::Point(..) => false,
        };
        let point = |parameters| match key {
            PublicKey::Rsa { .. } => false,
            PublicKey::Point(_, point) => {
                UnparsedPublicKey::new(parameters, point).verify(message, signed).is_ok()
            }
        };
        match self {
            Self::Rs256 => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Self::Es256 => point(&signature::ECDSA_P256_SHA256_FIXED),
            Self::Es384 => point(&signature::ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => point(&signature::ED25519),
        }
    }
}

impl PublicKey {
    /// Returns the kind of the key.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Rsa { .. } => Kind::Rsa,
            Self::Point(kind, _) => *kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::key_set::KeySet;

    fn verifies(jwk: &str, algorithm: Algorithm, token: &str) -> bool {
        let set = KeySet::parse(format!("{{\"keys\": [{jwk}]}}").as_bytes()).unwrap();
        let key = set.find(None, algorithm).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        algorithm.verifies(&key.public, message.as_bytes(), &signature)
    }

    /// SEC-28: the signatures in the examples of the standards verify (RFC 7515 A.2 and A.3, RFC
    /// 8037 A.4), and changed ones do not.
    #[test]
    fn the_examples_of_the_standards_are_verified() {
        let rsa = r#"{"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}"#;
        let ec = r#"{"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
        let ed = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let claims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let examples = [
            (rsa, Algorithm::Rs256, format!("eyJhbGciOiJSUzI1NiJ9.{claims}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw")),
            (ec, Algorithm::Es256, format!("eyJhbGciOiJFUzI1NiJ9.{claims}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q")),
            (ed, Algorithm::EdDsa, "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg".to_owned()),
        ];
        for (jwk, algorithm, token) in &examples {
            assert!(verifies(jwk, *algorithm, token), "{}", algorithm.name());
            assert!(!verifies(jwk, *algorithm, &token.replacen("eyJ", "eyK", 1)));
            for other in Algorithm::ALL.into_iter().filter(|other| other != algorithm) {
                let set = KeySet::parse(format!("{{\"keys\": [{jwk}]}}").as_bytes()).unwrap();
                let is_for_both = other.kind() == algorithm.kind();
                assert_eq!(set.find(None, other).is_some(), is_for_both);
                assert!(!is_for_both || !verifies(jwk, other, token), "{}", other.name());
            }
        }
    }

    /// SEC-28: the names match the standard exactly. Unsigned tokens and shared secrets have no
    /// algorithm.
    #[test]
    fn algorithm_names_match_exactly() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name()), Some(algorithm));
        }
        for name in ["none", "None", "HS256", "HS384", "HS512", "rs256", "", "RS1"] {
            assert_eq!(Algorithm::parse(name), None, "{name}");
        }
    }
}
