//! `PLAIN` (RFC 4616): a user and a password.

use std::fmt;

/// A user and a password, which is a policy and its key, or `$jwt` and a token (AMQP-08).
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// The user.
    pub user: Box<str>,
    /// The password.
    pub password: Box<str>,
}

impl Plain {
    /// What a response says: an identity to act as, which must be none or the user, then user and
    /// password, with a zero byte before each.
    #[must_use]
    pub fn read(response: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(response).ok()?;
        let mut parts = text.split('\0');
        let (identity, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || user.is_empty() || !(identity.is_empty() || identity == user) {
            return None;
        }
        Some(Self { user: user.into(), password: password.into() })
    }
}

/// Shows no password, and no user: who mixes them up says his password there (SEC-22).
impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}
