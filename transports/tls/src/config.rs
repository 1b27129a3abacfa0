//! Settings of TLS. The server reads them from its configuration file. Listeners pass it to
//! [`Tls`](crate::Tls).

use std::path::PathBuf;
use std::time::Duration;

/// Settings of TLS, shared by all listeners of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsConfig {
    /// `tls.certificate_file`: the certificate in PEM form, followed by its chain of issuers.
    pub certificate_file: PathBuf,
    /// `tls.key_file`: its private key in PEM form (PKCS#8, PKCS#1 or SEC1).
    pub key_file: PathBuf,
    /// `tls.client_ca_file`, `tls.client_certificate_required`: whether clients present
    /// certificates.
    pub client_certificates: ClientCertificates,
    /// `tls.handshake_timeout`: time limit of a handshake.
    pub handshake_timeout: Duration,
    /// `tls.handshake_count_max`: maximum number of concurrent handshakes over all listeners; a
    /// further one ends the oldest. Each uses at most 64 KiB.
    pub handshake_count_max: usize,
}

/// Whether clients present certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// Clients are not asked for a certificate.
    Ignored,
    /// Clients may present a certificate of the authorities in this file; other certificates are
    /// refused.
    Optional(PathBuf),
    /// Clients must present a certificate of the authorities in this file.
    Required(PathBuf),
}

impl TlsConfig {
    /// Returns the defaults with this certificate and key.
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
