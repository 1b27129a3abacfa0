//! Parsing of a forwarding destination, shared by all forwarders that connect to a host.

use url::Url;

/// Maximum length of a destination.
const CHARS_MAX: usize = 2_048;

/// The schemes of a forwarder, such as `webhook+https` and `webhook+http`: the part after the plus
/// is the scheme of the URL.
#[derive(Clone, Copy, Debug)]
pub struct Schemes {
    /// Scheme with TLS.
    pub secure: &'static str,
    /// Scheme without TLS.
    pub plain: &'static str,
}

/// A parsed destination.
#[derive(Clone, Debug)]
pub struct Destination<'a> {
    /// The URL as written.
    pub text: &'a str,
    /// The parsed URL.
    pub url: Url,
    /// Whether the scheme requires TLS.
    pub is_secure: bool,
}

/// Reason why a text is not a destination; completes "destination ".
#[derive(Clone, Debug, thiserror::Error)]
pub enum DestinationError {
    /// The text is too long.
    #[error("has more than {} characters", CHARS_MAX)]
    Long,
    /// The scheme is neither of these.
    #[error("must begin with {}:// or {}://", .0.secure, .0.plain)]
    Scheme(Schemes),
    /// The part after the plus is not a URL.
    #[error("is not a URL: {0}")]
    Url(#[from] url::ParseError),
}

impl Schemes {
    /// Parses a destination.
    ///
    /// # Errors
    /// Returns an error if the text is too long, has another scheme or is not a URL.
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
