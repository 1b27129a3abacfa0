//! The section `[webhook]`.

use std::path::Path;
use std::time::Duration;

use peeklock::forward_webhook::{
    HostError, HostPattern, Reach, Secret, WebhookConfig, certificates,
};
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::{List, Scalar};

/// What a time may be. The longest leaves the broker's limit for one call of a forwarder some room.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(20);

/// Forwarding to webhooks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct WebhookSection {
    /// Which hosts may be named.
    pub allowed_hosts: List,
    /// Time to resolve, connect and agree on TLS.
    pub connect_timeout: Scalar<TimeSpan>,
    /// Time for a whole request.
    pub timeout: Scalar<TimeSpan>,
    /// Authorities beside those of the system; empty for none.
    pub ca_file: Scalar<String>,
    /// `[[webhook.secrets]]`.
    #[serde(default)]
    pub secrets: Vec<SecretDeclaration>,
}

/// Who gets signed requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct SecretDeclaration {
    /// The hosts.
    pub host: Scalar<String>,
    /// Where the secrets are; they stand in no configuration, which is shown.
    pub file: Scalar<String>,
}

impl WebhookSection {
    /// The same in the words of the forwarder; reads the files that are named.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn config(&self) -> Result<WebhookConfig, (String, String)> {
        let mut config = WebhookConfig::default();
        let hosts = self.allowed_hosts.0.iter();
        let allowed: Result<_, _> =
            hosts.map(|host| pattern("webhook.allowed_hosts", host)).collect();
        config.connect_timeout = time("webhook.connect_timeout", self.connect_timeout.0)?;
        config.timeout = time("webhook.timeout", self.timeout.0)?;
        let authorities = match self.ca_file.0.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| ("webhook.ca_file".to_owned(), error.to_string()))?,
        };
        config.reach = Reach::new(allowed?, authorities);
        for (index, declared) in self.secrets.iter().enumerate() {
            let host = pattern(&format!("webhook.secrets[{index}].host"), &declared.host.0)?;
            let secret = Secret::read(Path::new(&declared.file.0))
                .map_err(|error| (format!("webhook.secrets[{index}].file"), error.to_string()))?;
            config.secrets.push((host, secret));
        }
        Ok(config)
    }
}

fn pattern(key: &str, text: &str) -> Result<HostPattern, (String, String)> {
    text.parse().map_err(|error: HostError| (key.to_owned(), error.to_string()))
}

fn time(key: &str, span: TimeSpan) -> Result<Duration, (String, String)> {
    let time = span.to_std();
    if TIMES.contains(&time) {
        return Ok(time);
    }
    let (least, most) = (TIMES.start(), TIMES.end());
    Err((
        key.to_owned(),
        format!("{span} is out of range; write a duration from {least:?} to {most:?}"),
    ))
}
