//! The sections `[webhook]` and `[peers]`: the permitted destinations of forwarded messages.
//! `config.rs` converts them to the settings of the forwarders at start. Secrets and tokens are
//! read from files, never from the configuration itself.

use std::path::Path;

use peeklock::forward_peeklock::{PeerConfig, Token};
use peeklock::forward_webhook::{
    HostError, HostPattern, Reach, Secret, WebhookConfig, certificates,
};
use serde::Deserialize;

use super::sections::{PeersSection, WebhookSection};

/// `[[webhook.secrets]]`: receivers of signed requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct SecretDeclaration {
    /// The hosts.
    pub host: String,
    /// The file with the secrets. The configuration contains no secrets, because commands print it.
    pub file: String,
}

/// `[[peers.tokens]]`: brokers that get a token.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct TokenDeclaration {
    /// The hosts.
    pub host: String,
    /// The file with the token. The configuration contains no token, because commands print it.
    pub file: String,
}

impl WebhookSection {
    /// Converts to the settings of the forwarder; reads the named files.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn config(&self) -> Result<WebhookConfig, (String, String)> {
        let mut config = WebhookConfig::default();
        config.connect_timeout = self.connect_timeout.to_std();
        config.timeout = self.timeout.to_std();
        config.reach = reach("webhook", &self.allowed_hosts, &self.ca_file)?;
        for (index, declared) in self.secrets.iter().enumerate() {
            let host = pattern(&format!("webhook.secrets[{index}].host"), &declared.host)?;
            let secret = Secret::read(Path::new(&declared.file))
                .map_err(|error| (format!("webhook.secrets[{index}].file"), error.to_string()))?;
            config.secrets.push((host, secret));
        }
        Ok(config)
    }
}

impl PeersSection {
    /// Converts to the settings of the forwarder; reads the named files.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn config(&self) -> Result<PeerConfig, (String, String)> {
        let mut config = PeerConfig::default();
        config.connect_timeout = self.connect_timeout.to_std();
        config.reach = reach("peers", &self.allowed_hosts, &self.ca_file)?;
        for (index, declared) in self.tokens.iter().enumerate() {
            let host = pattern(&format!("peers.tokens[{index}].host"), &declared.host)?;
            let token = Token::read(Path::new(&declared.file))
                .map_err(|error| (format!("peers.tokens[{index}].file"), error.to_string()))?;
            config.tokens.push((host, token));
        }
        Ok(config)
    }
}

/// The permitted hosts of a section, and the authorities in addition to the system's.
fn reach(section: &str, hosts: &[String], ca_file: &str) -> Result<Reach, (String, String)> {
    let key = format!("{section}.allowed_hosts");
    let allowed: Result<_, _> = hosts.iter().map(|host| pattern(&key, host)).collect();
    let authorities = match ca_file {
        "" => Vec::new(),
        file => certificates(Path::new(file))
            .map_err(|error| (format!("{section}.ca_file"), error.to_string()))?,
    };
    Ok(Reach::new(allowed?, authorities))
}

fn pattern(key: &str, text: &str) -> Result<HostPattern, (String, String)> {
    text.parse().map_err(|error: HostError| (key.to_owned(), error.to_string()))
}
