//! What an operator can set.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::{Clock, SystemClock};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};

use crate::host::HostPattern;
use crate::signature::Secret;

/// The settings of the forwarder.
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// `webhook.allowed_hosts`: which hosts may be named. Empty: any whose addresses are public, over
    /// TLS only. Otherwise these and no others, whatever their addresses, also without TLS.
    pub allowed_hosts: Vec<HostPattern>,
    /// `webhook.connect_timeout`: time to resolve, connect and agree on TLS, unless the destination says
    /// otherwise.
    pub connect_timeout: Duration,
    /// `webhook.timeout`: time for a whole request, unless the destination says otherwise.
    pub timeout: Duration,
    /// `webhook.secrets`: the first whose pattern fits the host signs what goes there.
    pub secrets: Vec<(HostPattern, Secret)>,
    /// `webhook.ca_file`: authorities that are trusted beside those of the system.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Dates signatures.
    pub clock: Arc<dyn Clock>,
}

/// Why something in the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A pattern for hosts is none.
    #[error(
        "`{0}` is not a host: write a name such as hooks.example.com, *.example.com, an IP address, \
         each with :port if only that one is meant, or * for all"
    )]
    Host(String),
    /// A file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file of secrets has none, or too many, or something else. What it has is not repeated.
    #[error("`{}`: {detail}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: &'static str,
    },
    /// A file of certificates has none, or something else.
    #[error("`{}` has no certificates in PEM form: {detail}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
            secrets: Vec::new(),
            authorities: Vec::new(),
            clock: Arc::new(SystemClock::start()),
        }
    }
}

/// The certificates of a file in PEM form, at least one.
///
/// # Errors
/// When the file cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = std::fs::read(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let invalid = |detail: String| ConfigError::Certificates { path: path.to_owned(), detail };
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| invalid(error.to_string()))?;
    if found.is_empty() {
        return Err(invalid("none was found".to_owned()));
    }
    Ok(found)
}
