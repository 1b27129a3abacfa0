//! The text of a destination, as far as it is the same for every forwarder that speaks to a host.

use url::Url;

/// Longer ones are refused.
const CHARS_MAX: usize = 2_048;

/// The schemes of a forwarder, such as `webhook+https` and `webhook+http`: what is behind the plus is that of a URL.
#[derive(Clone, Copy, Debug)]
pub struct Schemes {
    /// With TLS.
    pub secure: &'static str,
    /// Without.
    pub plain: &'static str,
}

/// A destination with one of them.
#[derive(Clone, Debug)]
pub struct Destination<'a> {
    /// The URL, as it was written.
    pub text: &'a str,
    /// The same, read.
    pub url: Url,
    /// Whether TLS is spoken there.
    pub is_secure: bool,
}

/// Why a text is none; completes "destination ".
#[derive(Clone, Debug, thiserror::Error)]
pub enum DestinationError {
    /// It is too long.
    #[error("has more than {} characters", CHARS_MAX)]
    Long,
    /// It has another scheme.
    #[error("must begin with {}:// or {}://", .0.secure, .0.plain)]
    Scheme(Schemes),
    /// It is no URL behind the plus.
    #[error("is not a URL: {0}")]
    Url(#[from] url::ParseError),
}

impl Schemes {
    /// Reads a destination.
    ///
    /// # Errors
    /// With what it is not.
    pub fn read(self, destination: &str) -> Result<Destination<'_>, DestinationError> {
        if destination.len() > CHARS_MAX {
            return Err(DestinationError::Long);
        }
        let scheme = destination.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_secure = scheme.eq_ignore_ascii_case(self.secure);
        if !is_secure && !scheme.eq_ignore_ascii_case(self.plain) {
            return Err(DestinationError::Scheme(self));
        }
        let text = destination.split_once('+').map_or("", |(_, url)| url);
        Ok(Destination { text, url: Url::parse(text)?, is_secure })
    }
}
