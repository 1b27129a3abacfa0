//! What is told about a token that is not good. Nothing that stands in it is repeated (SEC-22), but when it is good.

use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

/// Why a token is not good (SEC-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its text is no token; what is wrong with it.
    Malformed(&'static str),
    /// It is signed by no algorithm that may be used.
    Algorithm,
    /// It is signed with no key that the issuer publishes.
    Key,
    /// Nobody could find out which keys the issuer publishes.
    NoKeys,
    /// Its signature is wrong.
    Signature,
    /// It is no access token, but says who somebody is, or renews others.
    Type,
    /// Somebody else has issued it.
    Issuer,
    /// It is for something else.
    Audience,
    /// It is not good yet.
    Early(Timestamp),
    /// It has expired.
    Expired(Timestamp),
}

impl Refused {
    /// The causes by which refusals are counted.
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

    /// Whether somebody may be trying what opens (SEC-26). Of another issuer, of another type or for something else, a token is good there;
    /// that keys are not at hand is the fault of no client.
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

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Self {
        let cause = refused.cause();
        let expired_at = match &refused {
            Refused::Expired(at) => Some(*at),
            _ => None,
        };
        let detail = match refused {
            Refused::Malformed(flaw) => format!("the bearer token is not a valid JWT: {flaw}"),
            Refused::Algorithm => "the bearer token is signed with an algorithm that is not in \
                security.jwt.algorithms"
                .to_owned(),
            Refused::Key => {
                "the bearer token is signed with a key that its issuer does not publish".to_owned()
            }
            Refused::NoKeys => {
                "the keys of the issuer of bearer tokens are not available; try again, and see the \
                 log of the broker for the reason"
                    .to_owned()
            }
            Refused::Signature => "the signature of the bearer token is wrong".to_owned(),
            Refused::Type => {
                "the bearer token is not an access token, according to its `typ`".to_owned()
            }
            Refused::Issuer => {
                "the bearer token is from another issuer than security.jwt.issuer".to_owned()
            }
            Refused::Audience => {
                "the bearer token is for none of security.jwt.audiences".to_owned()
            }
            Refused::Early(from) => format!("the bearer token is not valid before {from}"),
            Refused::Expired(at) => format!("the bearer token has expired, at {at}"),
        };
        let rejection = Self::unauthorized(detail).because(cause);
        match expired_at {
            Some(at) => rejection.in_cloud_words(&format!(
                "ExpiredToken: The token is expired. Expiration time: {at}."
            )),
            None => rejection,
        }
    }
}
