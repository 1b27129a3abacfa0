//! Settings of the forwarder. The server reads them from its configuration file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::{Clock, SystemClock};
use peeklock_reach::{HostPattern, Reach};

use crate::signature::Secret;

/// Settings of the forwarder.
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// `webhook.allowed_hosts`, `webhook.ca_file`: the permitted hosts and trusted authorities.
    pub reach: Reach,
    /// `webhook.connect_timeout`: default time limit from name lookup to TLS; a destination may
    /// override it.
    pub connect_timeout: Duration,
    /// `webhook.timeout`: default time limit for a whole request; a destination may override it.
    pub timeout: Duration,
    /// `webhook.secrets`: the first secret whose pattern matches the host signs the requests.
    pub secrets: Vec<(HostPattern, Secret)>,
    /// Clock for the timestamps of signatures.
    pub clock: Arc<dyn Clock>,
}

/// Reason why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file has no secret, too many, or other content, which is not repeated.
    #[error("`{}`: {detail}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Description of the flaw.
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
