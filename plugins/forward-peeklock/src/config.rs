//! Settings of the forwarder. The server reads them from its configuration file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock_reach::{HostPattern, Reach};
use peeklock_websocket::client::{ClientOptions, ConnectionString};

/// Maximum length of a token or connection string.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// First keys of connection strings.
const CONNECTION_STRING_KEYS: [&str; 6] = [
    "Endpoint",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "SharedAccessSignature",
    "EntityPath",
    "UseDevelopmentEmulator",
];

/// Settings of the forwarder.
#[derive(Clone)]
#[non_exhaustive]
pub struct PeerConfig {
    /// `peers.allowed_hosts`, `peers.ca_file`: the permitted hosts and trusted authorities.
    pub reach: Reach,
    /// `peers.connect_timeout`: time limit from name lookup to the welcome of the other broker.
    pub connect_timeout: Duration,
    /// `peers.tokens`: the first token whose pattern matches the host is presented there.
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

/// Credential for the other broker: a token, or a connection string that signs a new token when one
/// is due (TLS-09). Never shown.
#[derive(Clone)]
pub struct Token(Credential);

#[derive(Clone)]
enum Credential {
    Token(Arc<str>),
    Signed(Arc<ConnectionString>),
}

/// Reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file has no token, or more than one line.
    #[error(
        "`{}` has no token: write one line with a token or a connection string of at most 16 KiB",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
    },
    /// The text begins like a connection string but is not valid.
    #[error("`{}`: {detail}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Description of the flaw, without any part of the key.
        detail: String,
    },
}

impl Token {
    /// Creates a credential from a token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self(Credential::Token(token.into()))
    }

    /// Reads a file with one line.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not one line.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
        let token = text.trim();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || token.contains(char::is_control) {
            return Err(TokenError::Unusable { path: path.to_owned() });
        }
        // No token begins with one of these keys before its first `=`.
        let begins = token.split('=').next().unwrap_or_default().trim();
        let is_string =
            CONNECTION_STRING_KEYS.iter().any(|known| known.eq_ignore_ascii_case(begins));
        if !is_string {
            return Ok(Self::new(token));
        }
        let string = ConnectionString::parse(token).map_err(|error| TokenError::Malformed {
            path: path.to_owned(),
            detail: error.detail().to_owned(),
        })?;
        Ok(Self(Credential::Signed(Arc::new(string))))
    }

    /// Sets the credential in the options of a client.
    pub(crate) fn apply_to(&self, options: &mut ClientOptions) {
        match &self.0 {
            Credential::Token(token) => options.token = Some(Arc::clone(token)),
            Credential::Signed(string) => options.connection_string = Some(Arc::clone(string)),
        }
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

    /// TLS-09: a file contains one token or connection string, which is never shown.
    #[test]
    fn a_token_file_is_read_and_not_shown() {
        let file = std::env::temp_dir().join(format!("peeklock-token-{}", std::process::id()));
        std::fs::write(&file, "  hush-hush \n").unwrap();
        let token = Token::read(&file).unwrap();
        let shown = |token: &Token| {
            let mut options = ClientOptions::default();
            token.apply_to(&mut options);
            (options.token, options.connection_string.map(|string| string.reveal()))
        };
        assert_eq!(shown(&token), (Some("hush-hush".into()), None));
        assert!(!format!("{token:?}").contains("hush"));
        for text in ["", " \n", "hush\nhush", &"h".repeat(TOKEN_BYTES_MAX + 1)] {
            std::fs::write(&file, text).unwrap();
            let error = Token::read(&file).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        let signed = "SharedAccessSignature sr=a&sig=b&se=1&skn=c";
        std::fs::write(&file, signed).unwrap();
        assert_eq!(shown(&Token::read(&file).unwrap()), (Some(signed.into()), None));
        let string = "Endpoint=sb://b.example.com;SharedAccessKeyName=a;SharedAccessKey=hush";
        std::fs::write(&file, format!("{string}\n")).unwrap();
        let token = Token::read(&file).unwrap();
        assert_eq!(shown(&token), (None, Some(string.to_owned())));
        assert!(!format!("{token:?}").contains("hush"));
        std::fs::write(&file, "Endpoint=sb://b.example.com;SharedAccessKey=hush").unwrap();
        let error = Token::read(&file).unwrap_err().to_string();
        assert!(error.contains("SharedAccessKeyName") && !error.contains("hush"), "{error}");
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(Token::read(&file), Err(TokenError::Unreadable { .. })));
    }
}
