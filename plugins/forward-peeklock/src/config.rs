//! What an operator can set.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock_reach::{HostPattern, Reach};

/// Longer ones are refused.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The settings of the forwarder.
#[derive(Clone)]
#[non_exhaustive]
pub struct PeerConfig {
    /// Where it may connect to, and whom to trust there: `peers.allowed_hosts`, `peers.ca_file`.
    pub reach: Reach,
    /// `peers.connect_timeout`: time to resolve, connect, agree on TLS and be welcomed.
    pub connect_timeout: Duration,
    /// `peers.tokens`: the first whose pattern fits the host is shown there.
    pub tokens: Vec<(HostPattern, Token)>,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self {
            reach: Reach::new(Vec::new(), Vec::new()),
            connect_timeout: Duration::from_secs(5),
            tokens: Vec::new(),
        }
    }
}

/// What the other broker knows this one by. Never shown.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// Why a file with a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It has none, or more than one.
    #[error("`{}` has no token: it should have one line, of at most 16 KiB", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// A token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(token.into())
    }

    /// Reads a file of one line.
    ///
    /// # Errors
    /// When it cannot be read, or is not one line.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
        let token = text.trim();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || token.contains(char::is_control) {
            return Err(TokenError::Unusable { path: path.to_owned() });
        }
        Ok(Self::new(token))
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_token_which_is_not_shown() {
        let file = std::env::temp_dir().join(format!("peeklock-token-{}", std::process::id()));
        std::fs::write(&file, "  hush-hush \n").unwrap();
        let token = Token::read(&file).unwrap();
        assert_eq!(&*token.text(), "hush-hush");
        assert!(!format!("{token:?}").contains("hush"));
        for text in ["", " \n", "hush\nhush", &"h".repeat(TOKEN_BYTES_MAX + 1)] {
            std::fs::write(&file, text).unwrap();
            let error = Token::read(&file).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(Token::read(&file), Err(TokenError::Unreadable { .. })));
    }
}
