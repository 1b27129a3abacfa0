//! The text of a token (RFC 7515 compact), its signature and its claims (RFC 7519). The authorizer
//! reads a token here. Claims are available only after the signature was verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::algorithm::{Algorithm, PublicKey};
use crate::config::JwtConfig;
use crate::refused::TokenError;

/// Maximum length of a token. Entra's tokens with two hundred groups have about eleven thousand
/// bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// 9999-12-31T23:59:59Z: a later expiry counts as this one.
const LATEST: Timestamp = Timestamp::from_unix_ms(253_402_300_799_000);
/// Claims whose text is a list separated by spaces (RFC 6749 3.3), as named by Entra and by RFC
/// 8693.
const SCOPES: [&str; 2] = ["scp", "scope"];
/// Values of the header `typ` that access tokens may have (RFC 7519 5.1, RFC 9068 2.1); most
/// issuers write the first, or none.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];
/// Values of the claim `typ` for other kinds of tokens: Keycloak always writes `JWT` into the
/// header, and the actual kind into this claim.
const OTHER_TYPES: [&str; 4] = ["ID", "Refresh", "Offline", "Logout"];

/// A token as presented, not yet verified.
pub struct Token<'a> {
    pub algorithm: Algorithm,
    /// Id of the key that the token names.
    pub key: Option<Box<str>>,
    /// False if the header names another kind of token.
    may_give_access: bool,
    /// The signed part: header and claims as encoded.
    message: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

/// The header fields in use. Others, such as a key or a key address, are ignored.
#[derive(Deserialize)]
struct Header {
    alg: Box<str>,
    kid: Option<Box<str>>,
    typ: Option<Box<str>>,
    /// Names extensions that must be understood. None are supported.
    crit: Option<IgnoredAny>,
}

/// Claims of a token with a verified signature.
pub struct Claims(Map<String, Value>);

impl<'a> Token<'a> {
    /// Parses a token without verifying it.
    pub fn read(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed("it is longer than 16 KiB"));
        }
        let parts = || {
            let (message, signature) = text.rsplit_once('.')?;
            let (header, claims) = message.split_once('.')?;
            (!claims.contains('.')).then_some((message, header, claims, signature))
        };
        let (message, header, claims, signature) =
            parts().ok_or(TokenError::Malformed("it must have three parts"))?;
        let header: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| TokenError::Malformed("its header must be a JSON object with `alg`"))?;
        if header.crit.is_some() {
            return Err(TokenError::Malformed(
                "its header has a part `crit`, which is not supported",
            ));
        }
        Ok(Self {
            algorithm: Algorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?,
            key: header.kid,
            may_give_access: header.typ.is_none_or(|typ| is_among(&TYPES, &typ)),
            message,
            claims,
            signature: decode(signature)?,
        })
    }

    /// Returns the claims if this key signed the token.
    pub fn verify(&self, key: &PublicKey) -> Result<Claims, TokenError> {
        if !self.algorithm.verifies(key, self.message.as_bytes(), &self.signature) {
            return Err(TokenError::Signature);
        }
        if !self.may_give_access {
            return Err(TokenError::Type);
        }
        let claims = serde_json::from_slice(&decode(self.claims)?);
        claims.map(Claims).map_err(|_| TokenError::Malformed("its claims must be a JSON object"))
    }
}

fn decode(text: &str) -> Result<Vec<u8>, TokenError> {
    let decoded = URL_SAFE_NO_PAD.decode(text);
    decoded.map_err(|_| TokenError::Malformed("a part is not Base64 for URLs"))
}

impl Claims {
    /// Returns the expiry of the token if it is for this broker and currently valid (SEC-28).
    pub fn judge(&self, config: &JwtConfig, now: Timestamp) -> Result<Timestamp, TokenError> {
        if self.text("iss") != Some(&config.issuer) {
            return Err(TokenError::Issuer);
        }
        if self.text("typ").is_some_and(|typ| is_among(&OTHER_TYPES, typ)) {
            return Err(TokenError::Type);
        }
        let is_for = |audience: &str| config.audiences.iter().any(|known| known == audience);
        if !texts(self.0.get("aud")).any(is_for) {
            return Err(TokenError::Audience);
        }
        if let Some(from) = self.instant("nbf")?
            && now < from.minus(config.clock_skew)
        {
            return Err(TokenError::Early(from));
        }
        let Some(expiry) = self.instant("exp")? else {
            return Err(TokenError::Malformed("it has no claim `exp`"));
        };
        let until = expiry.plus(config.clock_skew).min(LATEST);
        if now < until { Ok(until) } else { Err(TokenError::Expired(expiry)) }
    }

    /// Returns the roles in a claim: a text, a list of texts, or a list separated by spaces in
    /// scope claims. A name with dots is a path into objects unless a claim has exactly that name.
    pub fn roles(&self, claim: &str) -> Vec<&str> {
        let found = self.0.get(claim).or_else(|| {
            let (first, rest) = claim.split_once('.')?;
            rest.split('.').try_fold(self.0.get(first)?, |found, name| found.get(name))
        });
        let is_scope = SCOPES.contains(&claim);
        texts(found).flat_map(|text| parts(text, is_scope)).collect()
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn instant(&self, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        // The standard permits fractions of seconds.
        let seconds = value.as_f64().and_then(TimeSpan::from_seconds_f64);
        let seconds =
            seconds.ok_or(TokenError::Malformed("`exp` and `nbf` must be numbers of seconds"))?;
        Ok(Some(Timestamp::from_unix_ms(0).plus(seconds).min(LATEST)))
    }
}

fn is_among(types: &[&str], typ: &str) -> bool {
    types.iter().any(|known| known.eq_ignore_ascii_case(typ))
}

/// Returns the texts of a claim that is one text or a list.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = claim.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    claim.into_iter().chain(list).filter_map(Value::as_str)
}

fn parts(text: &str, is_scope: bool) -> impl Iterator<Item = &str> {
    let whole = (!is_scope).then_some(text);
    let scopes = is_scope.then(|| text.split(' ').filter(|part| !part.is_empty()));
    whole.into_iter().chain(scopes.into_iter().flatten())
}
