//! The text of a token (RFC 7515 compact), its signature, and what it says (RFC 7519). What it says can only be had from a
//! signature that was verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::algorithm::{Algorithm, PublicKey};
use crate::config::JwtConfig;
use crate::refused::Refused;

/// A token has at most so many bytes. Those of Entra with a list of two hundred groups have about eleven thousand.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// 9999-12-31T23:59:59Z: who writes a later end means none.
const LATEST: Timestamp = Timestamp::from_unix_ms(253_402_300_799_000);
/// Claims whose text is a list with spaces between its parts (RFC 6749 3.3), as they are named by Entra and by RFC 8693.
const SCOPES: [&str; 2] = ["scp", "scope"];
/// Types that the header of an access token may name (RFC 7519 5.1, RFC 9068 2.1); most issuers write the first, or none.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];
/// Types by which a claim `typ` says that it is no access token: Keycloak writes `JWT` into every header, and this there.
const OTHER_TYPES: [&str; 4] = ["ID", "Refresh", "Offline", "Logout"];

/// A token as it was presented. Whether it is good is another question.
pub struct Token<'a> {
    pub algorithm: Algorithm,
    /// The key that is said to have signed it.
    pub key: Option<Box<str>>,
    /// Its header does not say that it is something else than an access token.
    may_give_access: bool,
    /// What was signed: header and claims as they stand there.
    message: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

/// The parts of a header that matter. What else stands there, such as a key or an address of keys, is not looked at.
#[derive(Deserialize)]
struct Header {
    alg: Box<str>,
    kid: Option<Box<str>>,
    typ: Option<Box<str>>,
    /// Names what must be understood, and nothing of that is.
    crit: Option<IgnoredAny>,
}

/// What a token says, once its signature was verified.
pub struct Claims(Map<String, Value>);

impl<'a> Token<'a> {
    /// Reads a token.
    pub fn read(text: &'a str) -> Result<Self, Refused> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Malformed("it is longer than 16 KiB"));
        }
        let parts = || {
            let (message, signature) = text.rsplit_once('.')?;
            let (header, claims) = message.split_once('.')?;
            (!claims.contains('.')).then_some((message, header, claims, signature))
        };
        let (message, header, claims, signature) =
            parts().ok_or(Refused::Malformed("it must have three parts"))?;
        let header: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| Refused::Malformed("its header must be a JSON object with `alg`"))?;
        if header.crit.is_some() {
            return Err(Refused::Malformed("its header has a part `crit`, which is not supported"));
        }
        Ok(Self {
            algorithm: Algorithm::parse(&header.alg).ok_or(Refused::Algorithm)?,
            key: header.kid,
            may_give_access: header.typ.is_none_or(|typ| is_among(&TYPES, &typ)),
            message,
            claims,
            signature: decode(signature)?,
        })
    }

    /// What it says, if this key has signed it.
    pub fn verify(&self, key: &PublicKey) -> Result<Claims, Refused> {
        if !self.algorithm.verifies(key, self.message.as_bytes(), &self.signature) {
            return Err(Refused::Signature);
        }
        if !self.may_give_access {
            return Err(Refused::Type);
        }
        let claims = serde_json::from_slice(&decode(self.claims)?);
        claims.map(Claims).map_err(|_| Refused::Malformed("its claims must be a JSON object"))
    }
}

fn decode(text: &str) -> Result<Vec<u8>, Refused> {
    let decoded = URL_SAFE_NO_PAD.decode(text);
    decoded.map_err(|_| Refused::Malformed("a part is not Base64 for URLs"))
}

impl Claims {
    /// Until when it is good, if it is for this broker and good now (SEC-28).
    pub fn judge(&self, config: &JwtConfig, now: Timestamp) -> Result<Timestamp, Refused> {
        if self.text("iss") != Some(&config.issuer) {
            return Err(Refused::Issuer);
        }
        if self.text("typ").is_some_and(|typ| is_among(&OTHER_TYPES, typ)) {
            return Err(Refused::Type);
        }
        let is_for = |audience: &str| config.audiences.iter().any(|known| known == audience);
        if !texts(self.0.get("aud")).any(is_for) {
            return Err(Refused::Audience);
        }
        if let Some(from) = self.instant("nbf")?
            && now < from.minus(config.clock_skew)
        {
            return Err(Refused::Early(from));
        }
        let Some(expiry) = self.instant("exp")? else {
            return Err(Refused::Malformed("it has no claim `exp`"));
        };
        let until = expiry.plus(config.clock_skew).min(LATEST);
        if now < until { Ok(until) } else { Err(Refused::Expired(expiry)) }
    }

    /// The roles in a claim: a text, a list of texts, or what stands for a list in scopes. A name with dots leads into
    /// objects, unless there is a claim of just that name.
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

    fn instant(&self, name: &'static str) -> Result<Option<Timestamp>, Refused> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        // The standard allows parts of seconds.
        let seconds = value.as_f64().and_then(TimeSpan::from_seconds_f64);
        let seconds =
            seconds.ok_or(Refused::Malformed("`exp` and `nbf` must be numbers of seconds"))?;
        Ok(Some(Timestamp::from_unix_ms(0).plus(seconds).min(LATEST)))
    }
}

fn is_among(types: &[&str], typ: &str) -> bool {
    types.iter().any(|known| known.eq_ignore_ascii_case(typ))
}

/// The texts of a claim that is one text or a list of them.
fn texts(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = claim.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    claim.into_iter().chain(list).filter_map(Value::as_str)
}

fn parts(text: &str, is_scope: bool) -> impl Iterator<Item = &str> {
    let whole = (!is_scope).then_some(text);
    let scopes = is_scope.then(|| text.split(' ').filter(|part| !part.is_empty()));
    whole.into_iter().chain(scopes.into_iter().flatten())
}
