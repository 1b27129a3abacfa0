//! Reasons for refusing a token, as clients see them. A refusal repeats nothing from the token
//! (SEC-22) except its validity times.

use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

/// Reason why a token is refused (SEC-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenError {
    /// The text is not a token, for this reason.
    Malformed(&'static str),
    /// The algorithm is not permitted.
    Algorithm,
    /// The issuer publishes no such key.
    Key,
    /// The issuer's keys could not be read.
    NoKeys,
    /// The signature does not match.
    Signature,
    /// The token is an identity or refresh token, not an access token.
    Type,
    /// The token has another issuer.
    Issuer,
    /// The token is for another audience.
    Audience,
    /// The token is valid only from this time.
    Early(Timestamp),
    /// The token expired at this time.
    Expired(Timestamp),
}

impl TokenError {
    /// Returns the label that refusals are counted under.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Algorithm => "algorithm",
            Self::Key => "issuer_key",
            Self::NoKeys => "no_issuer_keys",
            Self::Signature => "signature",
            Self::Type => "type",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Early(_) => "early",
            Self::Expired(_) => "expired",
        }
    }

    /// Returns whether the refusal may be an attempt to guess a token (SEC-26). A token with
    /// another issuer, type or audience may be valid elsewhere, and missing keys are not the
    /// client's fault.
    pub(crate) const fn is_attempt(&self) -> bool {
        match self {
            Self::Malformed(_)
            | Self::Algorithm
            | Self::Key
            | Self::Signature
            | Self::Early(_)
            | Self::Expired(_) => true,
            Self::NoKeys | Self::Type | Self::Issuer | Self::Audience => false,
        }
    }
}

impl From<TokenError> for Rejection {
    fn from(refused: TokenError) -> Self {
        let cause = refused.cause();
        let expired_at = match &refused {
            TokenError::Expired(at) => Some(*at),
            _ => None,
        };
        let detail = match refused {
            TokenError::Malformed(flaw) => format!("the bearer token is not a valid JWT: {flaw}"),
            TokenError::Algorithm => "the bearer token is signed with an algorithm that is not in \
                security.jwt.algorithms"
                .to_owned(),
            TokenError::Key => {
                "the bearer token is signed with a key that its issuer does not publish".to_owned()
            }
            TokenError::NoKeys => {
                "the keys of the issuer of bearer tokens are not available; try again, and see the \
                 log of the broker for the reason"
                    .to_owned()
            }
            TokenError::Signature => "the signature of the bearer token is wrong".to_owned(),
            TokenError::Type => {
                "the bearer token is not an access token, according to its `typ`".to_owned()
            }
            TokenError::Issuer => {
                "the bearer token is from another issuer than security.jwt.issuer".to_owned()
            }
            TokenError::Audience => {
                "the bearer token is for none of security.jwt.audiences".to_owned()
            }
            TokenError::Early(from) => format!("the bearer token is not valid before {from}"),
            TokenError::Expired(at) => format!("the bearer token has expired, at {at}"),
        };
        let rejection = Self::unauthorized(detail).with_cause(cause);
        match expired_at {
            Some(at) => rejection.in_cloud_words(&format!(
                "ExpiredToken: The token is expired. Expiration time: {at}."
            )),
            None => rejection,
        }
    }
}
