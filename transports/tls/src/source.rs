//! The certificate and key in use, and their replacement while connections stay open. Listeners get
//! their acceptors here, and `watch.rs` calls [`Tls::reload`].

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use peeklock_core::admission::Openings;
use peeklock_core::time::Timestamp;
use ring::digest::{Context, SHA256};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

use crate::acceptor::{Acceptor, Protocol};
use crate::certificate::Certificate;
use crate::config::{ClientCertificates, TlsConfig};
use crate::files::{File, FileError, certificates_in, key_in, read};
use crate::lines::LineLimit;
use crate::standing::{LastReport, Validity};

/// A broker's certificate and key, loaded from files, for all of its listeners.
pub struct Tls {
    pub(crate) config: TlsConfig,
    pub(crate) handshakes: Arc<Openings>,
    pub(crate) lines: LineLimit,
    in_use: RwLock<Arc<InUse>>,
    /// Content at the last check, valid or not: unchanged files are not checked again.
    seen: Mutex<Contents>,
}

/// Result of checking the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reloaded {
    /// The files have not changed since the last check.
    Unchanged,
    /// New connections use the changed files.
    Changed,
}

struct InUse {
    http: Arc<ServerConfig>,
    other: Arc<ServerConfig>,
    certificate: Certificate,
    contents: [u8; 32],
    /// Last report of the certificate's validity.
    last_report: Mutex<LastReport>,
}

/// Digest of the files; `None` if they could not be read.
type Contents = Option<[u8; 32]>;

/// Current content of the files.
struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if they do not belong together. An expired
    /// certificate is logged and used.
    pub fn open(config: TlsConfig) -> Result<Arc<Self>, FileError> {
        let read = Read::of(&config)?;
        let in_use = InUse::new(&config, &read)?;
        in_use.log_validity(now());
        warn_readable_key(&config.key_file);
        Ok(Arc::new(Self {
            handshakes: Openings::new(config.handshake_count_max),
            lines: LineLimit::default(),
            in_use: RwLock::new(Arc::new(in_use)),
            seen: Mutex::new(Some(read.contents())),
            config,
        }))
    }

    /// Loads the files again and uses them if they have changed and are valid (TLS-02). Open
    /// connections keep their certificate.
    ///
    /// # Errors
    /// Returns an error if the changed files cannot be used; the certificate in use stays. Each
    /// change is reported once.
    pub fn reload(&self) -> Result<Reloaded, FileError> {
        let mut seen = self.seen();
        let read = match Read::of(&self.config) {
            Ok(read) => read,
            // An unreadable file is reported once, until the files can be read again.
            Err(error) => {
                return if seen.take().is_some() { Err(error) } else { Ok(Reloaded::Unchanged) };
            }
        };
        let contents = read.contents();
        if *seen == Some(contents) {
            return Ok(Reloaded::Unchanged);
        }
        *seen = Some(contents);
        // A file was absent and has come back unchanged.
        if self.in_use().contents == contents {
            return Ok(Reloaded::Unchanged);
        }
        let newer = InUse::new(&self.config, &read)?;
        if newer.certificate.not_after <= now() {
            let detail =
                format!("has a certificate that has expired, at {}", newer.certificate.not_after);
            return Err(FileError::unusable(
                &self.config.certificate_file,
                File::Certificate,
                detail,
            ));
        }
        newer.log_validity(now());
        *self.in_use.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(newer);
        Ok(Reloaded::Changed)
    }

    /// Logs the validity of the certificate in use if due: when it has changed since the last log
    /// line, and once a day while it is invalid or expires within two weeks (TLS-02). Returns the
    /// logged state.
    pub fn log_validity_if_due(&self, now: Timestamp) -> Option<Validity> {
        self.in_use().log_validity(now)
    }

    /// Returns the certificate in use.
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        self.in_use().certificate.clone()
    }

    /// Returns the acceptor of a listener.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>, protocol: Protocol) -> Acceptor {
        Acceptor::new(Arc::clone(self), protocol)
    }

    pub(crate) fn server_config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let in_use = self.in_use();
        Arc::clone(match protocol {
            Protocol::Http | Protocol::HttpOrAmqp => &in_use.http,
            Protocol::Other => &in_use.other,
        })
    }

    fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.in_use.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn seen(&self) -> MutexGuard<'_, Contents> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Read {
    fn of(config: &TlsConfig) -> Result<Self, FileError> {
        let authorities = match &config.client_certificates {
            ClientCertificates::Ignored => None,
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
                Some(read(path, File::Authorities)?)
            }
        };
        Ok(Self {
            certificate: read(&config.certificate_file, File::Certificate)?,
            key: read(&config.key_file, File::Key)?,
            authorities,
        })
    }

    fn contents(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        let authorities = self.authorities.as_deref().unwrap_or_default();
        for bytes in [&self.certificate[..], &self.key, authorities] {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        }
        let mut contents = [0; 32];
        contents.copy_from_slice(context.finish().as_ref());
        contents
    }
}

impl InUse {
    fn new(config: &TlsConfig, read: &Read) -> Result<Self, FileError> {
        let path = &config.certificate_file;
        let unusable = |detail: String| FileError::unusable(path, File::Certificate, detail);
        let chain = certificates_in(&read.certificate, path, File::Certificate)?;
        let key = key_in(&read.key, &config.key_file)?;
        let certificate = match chain.first() {
            Some(first) => {
                Certificate::of_der(first).map_err(|error| unusable(format!("has a {error}")))?
            }
            None => return Err(unusable("has no certificate".to_owned())),
        };
        let builder =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| unusable(format!("cannot be used: {error}")))?;
        let builder = match &config.client_certificates {
            ClientCertificates::Ignored => builder.with_no_client_auth(),
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
                let is_required =
                    matches!(config.client_certificates, ClientCertificates::Required(_));
                let roots = authorities(read.authorities.as_deref().unwrap_or_default(), path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    Arc::new(crypto::ring::default_provider()),
                );
                let verifier =
                    if is_required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|error| {
                    FileError::unusable(path, File::Authorities, format!("cannot be used: {error}"))
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut other = builder.with_single_cert(chain, key).map_err(|error| {
            unusable(format!("and `{}` do not belong together: {error}", config.key_file.display()))
        })?;
        if config.client_certificates != ClientCertificates::Ignored {
            // A resumed session contains the client's certificate without verifying it again, so an
            // expired certificate would be accepted (TLS-04).
            other.session_storage = Arc::new(NoServerSessionStorage {});
            other.send_tls13_tickets = 0;
        }
        let mut http = other.clone();
        http.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            http: Arc::new(http),
            other: Arc::new(other),
            certificate,
            contents: read.contents(),
            last_report: Mutex::default(),
        })
    }

    /// Logs the validity if due.
    fn log_validity(&self, now: Timestamp) -> Option<Validity> {
        let mut last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = last_report.due(&self.certificate, now)?;
        drop(last_report);
        let Certificate { subject, not_after, not_before, .. } = &self.certificate;
        match standing {
            Validity::Ended => {
                tracing::error!(subject, %not_after, "the certificate has expired: clients refuse \
                    it");
            }
            Validity::NotYet => {
                tracing::error!(subject, %not_before, "the certificate is not valid yet: clients \
                    refuse it");
            }
            Validity::EndsSoon => {
                tracing::warn!(subject, %not_after, "the certificate expires soon");
            }
            Validity::Good => tracing::info!(subject, %not_after, "certificate in use"),
        }
        Some(standing)
    }
}

fn authorities(text: &[u8], path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(text, path, File::Authorities)? {
        roots.add(certificate).map_err(|error| {
            FileError::unusable(
                path,
                File::Authorities,
                format!("has no authority that can be used: {error}"),
            )
        })?;
    }
    Ok(roots)
}

/// Warns if every user of the machine can read the key: its holder can impersonate the broker.
#[cfg(unix)]
fn warn_readable_key(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
    if mode & 0o007 != 0 {
        let path = path.display();
        tracing::warn!(%path, "every user of this machine can read the private key: chmod o= \
            {path}");
    }
}

#[cfg(not(unix))]
const fn warn_readable_key(_: &Path) {}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 100_000))
}
