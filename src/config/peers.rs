//! The section `[peers]`.

use std::path::Path;
use std::time::Duration;

use peeklock::forward_peeklock::{HostError, HostPattern, PeerConfig, Reach, Token, certificates};
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::{List, Scalar};

/// What a time may be: the broker's limit for one call of a forwarder leaves no more.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(15);

/// Forwarding to other brokers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct PeersSection {
    /// Which hosts may be named.
    pub allowed_hosts: List,
    /// Time to resolve, connect, agree on TLS and be welcomed.
    pub connect_timeout: Scalar<TimeSpan>,
    /// Authorities beside those of the system; empty for none.
    pub ca_file: Scalar<String>,
    /// `[[peers.tokens]]`.
    #[serde(default)]
    pub tokens: Vec<TokenDeclaration>,
}

/// Who is shown a token.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct TokenDeclaration {
    /// The hosts.
    pub host: Scalar<String>,
    /// Where the token is; it stands in no configuration, which is shown.
    pub file: Scalar<String>,
}

impl PeersSection {
    /// The same in the words of the forwarder; reads the files that are named.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn config(&self) -> Result<PeerConfig, (String, String)> {
        let mut config = PeerConfig::default();
        let hosts = self.allowed_hosts.0.iter();
        let allowed: Result<_, _> =
            hosts.map(|host| pattern("peers.allowed_hosts", host)).collect();
        let authorities = match self.ca_file.0.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| ("peers.ca_file".to_owned(), error.to_string()))?,
        };
        config.reach = Reach::new(allowed?, authorities);
        config.connect_timeout = self.connect_timeout.0.to_std();
        if !TIMES.contains(&config.connect_timeout) {
            let (span, least, most) = (self.connect_timeout.0, TIMES.start(), TIMES.end());
            let detail =
                format!("{span} is out of range; write a duration from {least:?} to {most:?}");
            return Err(("peers.connect_timeout".to_owned(), detail));
        }
        for (index, declared) in self.tokens.iter().enumerate() {
            let host = pattern(&format!("peers.tokens[{index}].host"), &declared.host.0)?;
            let token = Token::read(Path::new(&declared.file.0))
                .map_err(|error| (format!("peers.tokens[{index}].file"), error.to_string()))?;
            config.tokens.push((host, token));
        }
        Ok(config)
    }
}

fn pattern(key: &str, text: &str) -> Result<HostPattern, (String, String)> {
    text.parse().map_err(|error: HostError| (key.to_owned(), error.to_string()))
}
