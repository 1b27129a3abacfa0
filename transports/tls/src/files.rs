//! Reading of certificates and keys in PEM form. `source.rs` and `client.rs` use it.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file; the usual set of system authorities has a quarter of that.
const BYTES_MAX: u64 = 1 << 20;

/// The files of [`TlsConfig`](crate::TlsConfig).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// `tls.certificate_file`.
    Certificate,
    /// `tls.key_file`.
    Key,
    /// `tls.client_ca_file`, or the authorities that a client trusts.
    Authorities,
}

/// Reason why a file cannot be used. The text contains the path and the flaw, but nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its role.
        file: File,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file has unexpected content.
    #[error("`{}` {detail}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Its role.
        file: File,
        /// Description of the flaw.
        detail: String,
    },
}

impl FileError {
    /// Returns the role of the file.
    #[must_use]
    pub const fn file(&self) -> File {
        match self {
            Self::Unreadable { file, .. } | Self::Unusable { file, .. } => *file,
        }
    }

    pub(crate) fn unusable(path: &Path, file: File, detail: impl fmt::Display) -> Self {
        Self::Unusable { path: path.to_owned(), file, detail: detail.to_string() }
    }
}

/// Returns the certificates in a PEM file, at least one, as trusted authorities.
///
/// # Errors
/// Returns an error if the file cannot be read or has no certificate.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    certificates_in(&read(path, File::Authorities)?, path, File::Authorities)
}

/// Reads a whole file of bounded size.
pub(crate) fn read(path: &Path, file: File) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let reading = std::fs::File::open(path)
        .and_then(|opened| opened.take(BYTES_MAX + 1).read_to_end(&mut bytes));
    match reading {
        Err(source) => Err(FileError::Unreadable { path: path.to_owned(), file, source }),
        Ok(_) if bytes.len() as u64 > BYTES_MAX => {
            Err(FileError::unusable(path, file, format!("has more than {BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(bytes),
    }
}

pub(crate) fn certificates_in(
    text: &[u8],
    path: &Path,
    file: File,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Err(error) => {
            let detail = format!("has no certificates in PEM form: {error}");
            Err(FileError::unusable(path, file, detail))
        }
        Ok(found) if found.is_empty() => {
            let detail = "has no certificates in PEM form: none was found";
            Err(FileError::unusable(path, file, detail))
        }
        Ok(found) => Ok(found),
    }
}

pub(crate) fn key_in(text: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let detail = match error {
            pem::Error::NoItemsFound => {
                "has no private key in PEM form; decrypt an encrypted key first".to_owned()
            }
            other => format!("has no private key in PEM form: {other}"),
        };
        FileError::unusable(path, File::Key, detail)
    })
}
