//! What an operator can set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::{Clock, SystemClock};
use peeklock_reach::{HostPattern, Reach};

use crate::signature::Secret;

/// The settings of the forwarder.
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// Where it may connect to, and whom to trust there: `webhook.allowed_hosts`, `webhook.ca_file`.
    pub reach: Reach,
    /// `webhook.connect_timeout`: time to resolve, connect and agree on TLS, unless the destination says
    /// otherwise.
    pub connect_timeout: Duration,
    /// `webhook.timeout`: time for a whole request, unless the destination says otherwise.
    pub timeout: Duration,
    /// `webhook.secrets`: the first whose pattern fits the host signs what goes there.
    pub secrets: Vec<(HostPattern, Secret)>,
    /// Dates signatures.
    pub clock: Arc<dyn Clock>,
}

/// Why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It has none, or too many, or something else. What it has is not repeated.
    #[error("`{}`: {detail}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: &'static str,
    },
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            reach: Reach::new(Vec::new(), Vec::new()),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
            secrets: Vec::new(),
            clock: Arc::new(SystemClock::start()),
        }
    }
}
