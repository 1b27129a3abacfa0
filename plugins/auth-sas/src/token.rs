//! The text of a token, its signature, and the refusals that clients see. `authorizer.rs` parses
//! and verifies tokens here.

use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use peeklock_core::contract::bearer_token;
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::policies::{KeyText, Policy, WhichKey};
use peeklock_core::time::Timestamp;
use peeklock_sas::{LATEST_SECONDS, SCHEME, is_signed_with};
use percent_encoding::percent_decode_str;

/// Maximum length of a token.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Length of an HMAC-SHA256.
const SIGNATURE_BYTES: usize = 32;
/// Base64 with or without the trailing `=`, which some clients omit.
const SIGNATURE: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A token as presented (SEC-10), not yet verified.
pub struct Token<'a> {
    /// Audience, percent-encoded as in the token.
    resource: &'a str,
    signature: Box<[u8]>,
    /// Expiry in seconds, as in the token.
    expiry: &'a str,
    until: Timestamp,
    policy: Box<str>,
}

/// The presented policy name if such a policy exists; otherwise `None`, because the text may be a
/// key in the wrong field (SEC-22). Used only in the log: the text of the refusal must not reveal
/// whether the policy exists (SEC-08).
pub type PolicyName = Option<Box<str>>;

/// Reason why a token or key is refused (SEC-14).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenError {
    /// The client presented no token.
    Missing,
    /// The text is not a shared access signature, for this reason.
    Malformed(&'static str),
    /// The text is a token of another kind.
    Bearer,
    /// No key of a policy with that name that applies here made the signature. Clients do not learn
    /// whether such a policy exists.
    Signature(PolicyName),
    /// The presented key belongs to no policy with that name. Clients do not learn whether such a
    /// policy exists.
    Key(PolicyName),
    /// The audience has another host; the signature was not checked.
    Host(PolicyName),
    /// The signature is valid, but the token has expired.
    Expired(Box<str>, Timestamp),
    /// The signature is valid, but the audience is another resource.
    Audience(Box<str>),
}

impl<'a> Token<'a> {
    /// Parses a token without verifying it.
    ///
    /// # Errors
    /// Returns the reason if the text is not a shared access signature.
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed("it is longer than 8 KiB"));
        }
        let text = text.trim();
        if bearer_token(text).is_some() {
            return Err(TokenError::Bearer);
        }
        let (scheme, fields) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(TokenError::Malformed("it must begin with `SharedAccessSignature `"));
        }
        let mut found: [Option<&str>; 4] = [None; 4];
        let fields = fields.trim();
        // Clients that join the fields in a loop leave a trailing `&`.
        for field in fields.strip_suffix('&').unwrap_or(fields).split('&') {
            let Some((name, value)) = field.split_once('=') else {
                return Err(TokenError::Malformed("a field has no value"));
            };
            let place = ["sr", "sig", "se", "skn"].iter().position(|known| *known == name);
            // Unknown fields are ignored.
            let Some(place) = place.and_then(|place| found.get_mut(place)) else { continue };
            if place.replace(value).is_some() {
                return Err(TokenError::Malformed("a field occurs twice"));
            }
        }
        let [Some(resource), Some(signature), Some(expiry), Some(policy)] = found else {
            return Err(TokenError::Malformed("it needs the fields sr, sig, se and skn"));
        };
        let decode = |value: &str| {
            let text = percent_decode_str(value).decode_utf8();
            text.map_err(|_| TokenError::Malformed("a field is not percent-encoded UTF-8"))
                .map(|text| Box::<str>::from(&*text))
        };
        if expiry.is_empty() || !expiry.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TokenError::Malformed("se must be a number of seconds"));
        }
        let seconds = expiry.parse::<i64>().unwrap_or(LATEST_SECONDS).min(LATEST_SECONDS);
        let signature = decode(signature)?;
        Ok(Self {
            resource,
            // An invalid signature becomes empty and matches no key.
            signature: SIGNATURE.decode(&*signature).unwrap_or_default().into(),
            expiry,
            until: Timestamp::from_unix_ms(seconds.saturating_mul(1_000)),
            policy: decode(policy)?,
        })
    }

    /// Returns the policy name in the token.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the expiry.
    #[must_use]
    pub const fn until(&self) -> Timestamp {
        self.until
    }

    /// Returns the decoded audience.
    #[must_use]
    pub fn resource(&self) -> String {
        percent_decode_str(self.resource).decode_utf8_lossy().into_owned()
    }

    /// Returns the length of the encoded audience in bytes.
    pub(crate) const fn resource_bytes(&self) -> usize {
        self.resource.len()
    }

    /// Returns the key of the policy that signed the token, if any (SEC-11). Takes the same time
    /// for every wrong signature (SEC-14).
    #[must_use]
    pub fn signed_by(&self, policy: &Policy) -> Option<WhichKey> {
        WhichKey::ALL.into_iter().find(|which| self.is_signed_with(policy.key(*which)))
    }

    /// Returns whether the signature has the right length; any other length matches no key.
    pub(crate) fn can_be_signed(&self) -> bool {
        self.signature.len() == SIGNATURE_BYTES
    }

    /// Returns whether this key signed the token. Takes the same time for every key (SEC-14).
    pub(crate) fn is_signed_with(&self, key: &KeyText) -> bool {
        self.is_signed_by(key.reveal())
    }

    /// Takes as long as [`Self::is_signed_with`], with a key that does not exist.
    pub(crate) fn is_signed_with_dummy(&self) -> bool {
        self.is_signed_by("a key without an owner, with the same number of characters")
    }

    fn is_signed_by(&self, key: &str) -> bool {
        is_signed_with(key, self.resource, self.expiry, &self.signature)
    }
}

impl fmt::Debug for Token<'_> {
    /// Omits the signature, and the policy name, which may be a key (SEC-22).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl TokenError {
    /// Returns the named policy, if it exists.
    fn policy(&self) -> Option<&str> {
        match self {
            Self::Missing | Self::Malformed(_) | Self::Bearer => None,
            Self::Signature(named) | Self::Key(named) | Self::Host(named) => named.as_deref(),
            Self::Expired(name, _) | Self::Audience(name) => Some(name),
        }
    }

    /// Returns the label that refusals are counted under.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed(_) => "malformed",
            Self::Bearer => "bearer",
            Self::Signature(_) => "signature",
            Self::Key(_) => "key",
            Self::Expired(..) => "expired",
            Self::Host(_) | Self::Audience(_) => "audience",
        }
    }
}

impl From<TokenError> for Rejection {
    fn from(refused: TokenError) -> Self {
        let (cause, policy) = (refused.cause(), refused.policy().map(Box::<str>::from));
        let cloud = match &refused {
            TokenError::Expired(_, until) => {
                Some(format!("ExpiredToken: The token is expired. Expiration time: {until}."))
            }
            TokenError::Signature(_) => {
                Some("InvalidSignature: The token has an invalid signature.".to_owned())
            }
            _ => None,
        };
        let detail = match refused {
            TokenError::Missing => {
                "no token was presented; connect with the connection string of a policy, which \
                `peeklock connection-string` prints on the machine of the broker"
                    .to_owned()
            }
            TokenError::Malformed(flaw) => {
                format!("the token is not a valid shared access signature: {flaw}")
            }
            TokenError::Bearer => {
                "bearer tokens of an identity provider (JWT), as DefaultAzureCredential gets them, \
                 are not accepted here, because security.jwt has no issuer; connect with the \
                 connection string of a policy, which `peeklock connection-string` prints"
                    .to_owned()
            }
            TokenError::Signature(_) => {
                "the signature of the token matches no key of a policy of that name (skn) that is \
                 valid here"
                    .to_owned()
            }
            TokenError::Key(_) => "the key belongs to no policy of that name".to_owned(),
            TokenError::Host(_) => {
                "the token is for another host than this one (security.strict_audience)".to_owned()
            }
            TokenError::Expired(policy, until) => {
                format!("the token of policy {} has expired, at {until}", Quoted(&policy))
            }
            TokenError::Audience(policy) => {
                let policy = Quoted(&policy);
                format!("the token of policy {policy} is for another resource than this one")
            }
        };
        let rejection = Self::unauthorized(detail).with_cause(cause);
        let rejection = match cloud {
            Some(sentence) => rejection.in_cloud_words(&sentence),
            None => rejection,
        };
        match policy {
            Some(policy) => rejection.with_policy(&policy),
            None => rejection,
        }
    }
}
