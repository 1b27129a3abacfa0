//! What an operator can set.

use std::path::PathBuf;
use std::time::Duration;

/// The settings of TLS, which all listeners of a broker share.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsConfig {
    /// `tls.certificate_file`: the certificate in PEM form, and behind it those that lead to its authority.
    pub certificate_file: PathBuf,
    /// `tls.key_file`: its private key in PEM form (PKCS#8, PKCS#1 or SEC1).
    pub key_file: PathBuf,
    /// `tls.client_ca_file`, `tls.client_certificate_required`: whether clients show certificates.
    pub client_certificates: ClientCertificates,
    /// `tls.handshake_timeout`: how long a handshake may take.
    pub handshake_timeout: Duration,
    /// `tls.handshake_count_max`: handshakes at the same time, over all listeners; for a further one the oldest
    /// ends. Each has at most 64 KiB in memory.
    pub handshake_count_max: usize,
}

/// Whether clients show certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// They are not asked for one.
    Ignored,
    /// They may show one by the authorities in this file; one by somebody else is refused.
    Optional(PathBuf),
    /// They must.
    Required(PathBuf),
}

impl TlsConfig {
    /// The defaults with this certificate and key.
    #[must_use]
    pub fn of_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate_file: certificate.into(),
            key_file: key.into(),
            client_certificates: ClientCertificates::Ignored,
            handshake_timeout: Duration::from_secs(5),
            handshake_count_max: 256,
        }
    }
}
