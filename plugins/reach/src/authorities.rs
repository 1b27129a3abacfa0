//! Whom TLS trusts: the authorities of the system, and those of the operator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::Reach;

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It has no certificates, or something else.
    #[error("`{}` has no certificates in PEM form: {detail}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

/// The certificates of a file in PEM form, at least one.
///
/// # Errors
/// When the file cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let text = std::fs::read(path)
        .map_err(|source| AuthoritiesError::Unreadable { path: path.to_owned(), source })?;
    let unusable = |detail: String| AuthoritiesError::Unusable { path: path.to_owned(), detail };
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("none was found".to_owned()));
    }
    Ok(found)
}

impl Reach {
    /// How TLS is spoken; read when it is first needed.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        self.tls.get_or_init(|| client_config(&self.authorities).map(Arc::new)).clone()
    }
}

fn client_config(authorities: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    let system = rustls_native_certs::load_native_certs();
    for error in system.errors {
        tracing::warn!(%error, "certificates of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    // Some that systems have are not fit for use, which harms nobody.
    roots.add_parsable_certificates(system.certs);
    for certificate in authorities {
        roots.add(certificate.clone())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
