//! Connection strings, as our tools and the official SDKs take them (SEC-18 to SEC-21). The command
//! line prints them, and the clients parse them. The text with a key is returned only by an
//! explicit call.

use std::fmt;

use peeklock_core::contract::browser::split_host;
use peeklock_core::error::{Quoted, Rejection};
use peeklock_core::path::PathKey;
use peeklock_core::time::Timestamp;

use crate::signature::sign;

/// Maximum length of a connection string in bytes.
const BYTES_MAX: usize = 16 << 10;

/// Address of a broker, and a credential for it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectionString {
    /// Host and port of the broker.
    pub endpoint: Endpoint,
    /// Credential that the client presents.
    pub credential: Credential,
    /// Only entity that a client may use with it (SEC-20).
    pub entity_path: Option<Box<str>>,
    /// Whether the client connects without TLS (SEC-21).
    pub use_development_emulator: bool,
}

/// A host, and a port if one is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The host; an address of IPv6 in brackets.
    pub host: Box<str>,
    /// The port.
    pub port: Option<u16>,
}

/// Credential of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Policy with one key.
    Key {
        /// Its name.
        policy: Box<str>,
        /// The text of the key.
        key: Box<str>,
    },
    /// Signed token.
    Token(Box<str>),
}

impl fmt::Debug for Credential {
    /// Without the key or the token (SEC-22).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { policy, .. } => {
                f.debug_struct("Key").field("policy", policy).finish_non_exhaustive()
            }
            Self::Token(_) => f.write_str("Token"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

impl Endpoint {
    /// Reads `sb://host:port`, with or without a slash at its end.
    fn parse(text: &str) -> Result<Self, Rejection> {
        let wrong = || {
            const FORM: &str =
                "the Endpoint of a connection string must be sb://HOST or sb://HOST:PORT, not";
            // The text after a missing `;` may be the key, which no error repeats (SEC-22).
            Rejection::argument(match text.contains('=') {
                true => format!("{FORM} text with a `=`: a `;` is missing after it"),
                false => format!("{FORM} {}", Quoted(text)),
            })
        };
        let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let is_foreign = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
        if !scheme.eq_ignore_ascii_case("sb") || authority.contains(is_foreign) {
            return Err(wrong());
        }
        let (host, port) = split_host(authority).ok_or_else(wrong)?;
        if port == Some(0) {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }
}

impl ConnectionString {
    /// Connection string for a policy with one key.
    #[must_use]
    pub fn of_key(endpoint: Endpoint, policy: &str, key: &str) -> Self {
        let credential = Credential::Key { policy: policy.into(), key: key.into() };
        Self { endpoint, credential, entity_path: None, use_development_emulator: false }
    }

    /// Restricts it to an entity.
    #[must_use]
    pub fn at_entity(mut self, path: impl Into<Box<str>>) -> Self {
        self.entity_path = Some(path.into());
        self
    }

    /// Makes clients connect without TLS (SEC-21).
    #[must_use]
    pub const fn without_tls(mut self) -> Self {
        self.use_development_emulator = true;
        self
    }

    /// Reads a connection string (SEC-18, SEC-19).
    ///
    /// # Errors
    /// `ArgumentError` that names the missing or wrong part, and no secret.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let refuse = |flaw: &str| Err(Rejection::argument(format!("the connection string {flaw}")));
        if text.len() > BYTES_MAX {
            return refuse("is longer than 16 KiB");
        }
        const KEYS: [&str; 6] = [
            "endpoint",
            "sharedaccesskeyname",
            "sharedaccesskey",
            "sharedaccesssignature",
            "entitypath",
            "usedevelopmentemulator",
        ];
        let mut found: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return refuse("has a part that is not Key=Value");
            };
            let key = key.trim().to_ascii_lowercase();
            let place = KEYS.iter().position(|known| *known == key);
            let Some(place) = place.and_then(|place| found.get_mut(place)) else { continue };
            if place.replace(value.trim()).is_some() {
                return refuse(&format!("has {key} twice; keep one"));
            }
        }
        let [endpoint, policy, key, signature, entity_path, emulator] = found;
        let Some(endpoint) = endpoint else {
            return refuse("has no Endpoint; add one such as Endpoint=sb://localhost:5301");
        };
        let credential = match (policy, key, signature) {
            (Some(policy), Some(key), None) if !policy.is_empty() && !key.is_empty() => {
                Credential::Key { policy: policy.into(), key: key.into() }
            }
            (None, None, Some(token)) if !token.is_empty() => Credential::Token(token.into()),
            _ => {
                return refuse(
                    "needs SharedAccessKeyName and SharedAccessKey, or only SharedAccessSignature",
                );
            }
        };
        let use_development_emulator = match emulator {
            None => false,
            Some(value) if value.eq_ignore_ascii_case("true") => true,
            Some(value) if value.eq_ignore_ascii_case("false") => false,
            Some(_) => return refuse("has a UseDevelopmentEmulator that must be true or false"),
        };
        Ok(Self {
            endpoint: Endpoint::parse(endpoint)?,
            credential,
            entity_path: entity_path.filter(|path| !path.is_empty()).map(Into::into),
            use_development_emulator,
        })
    }

    /// Text with its secret, for the client only.
    #[must_use]
    pub fn reveal(&self) -> String {
        let mut text = format!("Endpoint=sb://{};", self.endpoint);
        match &self.credential {
            Credential::Key { policy, key } => {
                text.push_str(&format!("SharedAccessKeyName={policy};SharedAccessKey={key}"));
            }
            Credential::Token(token) => text.push_str(&format!("SharedAccessSignature={token}")),
        }
        if let Some(path) = &self.entity_path {
            text.push_str(&format!(";EntityPath={path}"));
        }
        if self.use_development_emulator {
            text.push_str(";UseDevelopmentEmulator=true");
        }
        text
    }

    /// Refuses any entity outside `entity_path` (SEC-20).
    ///
    /// # Errors
    /// `ArgumentError`.
    pub fn check_entity(&self, path: &str) -> Result<(), Rejection> {
        let Some(only) = &self.entity_path else { return Ok(()) };
        let (asked, only_key) = (PathKey::fold(path.trim_matches('/')), PathKey::fold(only));
        let below = asked.as_str().strip_prefix(only_key.as_str());
        if below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            return Ok(());
        }
        let (path, only) = (Quoted(path), Quoted(only));
        Err(Rejection::argument(format!(
            "the connection string is only for {only} (EntityPath), not for {path}"
        )))
    }

    /// Token that is valid until an instant, for `entity_path` or for the whole namespace.
    #[must_use]
    pub fn token(&self, until: Timestamp) -> String {
        match &self.credential {
            Credential::Token(token) => token.to_string(),
            Credential::Key { policy, key } => {
                let path = self.entity_path.as_deref().unwrap_or_default();
                sign(policy, key, &format!("sb://{}/{path}", self.endpoint), until)
            }
        }
    }

    /// Whether [`Self::token`] can make another token after the last one has expired.
    #[must_use]
    pub const fn renews(&self) -> bool {
        matches!(self.credential, Credential::Key { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "Endpoint=sb://127.0.0.1:5301/;SharedAccessKeyName=Root;SharedAccessKey=ab==;\
                         EntityPath=orders;UseDevelopmentEmulator=true";

    fn refusal(text: &str) -> String {
        ConnectionString::parse(text).unwrap_err().detail().to_owned()
    }

    /// SEC-18: keys ignore case, values may have `=`, unknown keys are ignored.
    #[test]
    fn a_connection_string_is_pairs() {
        let read = ConnectionString::parse(WHOLE).unwrap();
        assert_eq!(read.endpoint, Endpoint { host: "127.0.0.1".into(), port: Some(5301) });
        assert_eq!(read.credential, Credential::Key { policy: "Root".into(), key: "ab==".into() });
        assert_eq!(read.entity_path.as_deref(), Some("orders"));
        assert!(read.use_development_emulator);
        let other = " endpoint = sb://127.0.0.1:5301 ; SHAREDACCESSKEYNAME=Root;sharedaccesskey=ab==; \
                     TransportType=Amqp;entitypath=orders;useDevelopmentEmulator=TRUE;";
        assert_eq!(ConnectionString::parse(other), Ok(read.clone()));
        assert_eq!(ConnectionString::parse(&read.reveal()), Ok(read));
        let plain = ConnectionString::parse("Endpoint=sb://[::1];SharedAccessSignature=SharedAccessSignature sr=a&sig=b%3d&se=1&skn=c").unwrap();
        assert_eq!(plain.endpoint, Endpoint { host: "[::1]".into(), port: None });
        assert!(!plain.use_development_emulator && !plain.renews());
        assert_eq!(plain.token(Timestamp::NEVER), "SharedAccessSignature sr=a&sig=b%3d&se=1&skn=c");
    }

    /// SEC-19: a connection string without an endpoint or a credential is refused, and the error has no secret.
    #[test]
    fn connection_string_names_missing_parts() {
        let key = "SharedAccessKeyName=a;SharedAccessKey=hidden";
        assert!(refusal(key).contains("Endpoint"));
        for endpoint in ["http://a", "sb://", "sb://a:0", "sb://a:x", "sb://a/b", "a:1", "sb://u@a"]
        {
            let text = refusal(&format!("Endpoint={endpoint};{key}"));
            assert!(text.contains("sb://HOST") && !text.contains("hidden"), "{endpoint}: {text}");
        }
        for credential in [
            "",
            "SharedAccessKeyName=a",
            "SharedAccessKey=hidden",
            "SharedAccessKeyName=;SharedAccessKey=hidden",
            "SharedAccessKeyName=a;SharedAccessKey=",
            "SharedAccessKeyName=a;SharedAccessKey=hidden;SharedAccessSignature=hidden",
            "SharedAccessSignature=",
        ] {
            let text = refusal(&format!("Endpoint=sb://a;{credential}"));
            assert!(text.contains("SharedAccessKeyName and"), "{credential}: {text}");
            assert!(!text.contains("hidden"), "{text}");
        }
        assert!(refusal(&format!("Endpoint=sb://a;Endpoint=sb://b;{key}")).contains("twice"));
        assert!(
            refusal(&format!("Endpoint=sb://a;{key};UseDevelopmentEmulator=1")).contains("true")
        );
        assert!(refusal("Endpoint=sb://a;hidden").contains("not Key=Value"));
    }

    /// Another entity than its own is refused.
    #[test]
    fn an_entity_path_restricts() {
        let read = ConnectionString::parse(WHOLE).unwrap();
        for fits in ["orders", "Orders", "orders/$deadletterqueue", "/orders/"] {
            assert!(read.check_entity(fits).is_ok(), "{fits}");
        }
        for other in ["orders2", "other", ""] {
            let text = read.check_entity(other).unwrap_err().detail().to_owned();
            assert!(text.contains("`orders`"), "{text}");
        }
        let all = ConnectionString { entity_path: None, ..read };
        assert!(all.check_entity("other").is_ok());
    }

    /// SEC-22: a key is not shown by accident.
    #[test]
    fn a_key_is_not_shown_by_accident() {
        let read = ConnectionString::parse(WHOLE).unwrap();
        assert!(!format!("{read:?}").contains("ab=="));
    }
}
