//! The client side of TLS: trusted authorities, the client's own certificate, and clear errors.
//! Clients over WebSocket and AMQP and the command line use it.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage, RootCertStore, crypto,
};

use crate::files::{File, FileError, certificates_in, key_in, read};

/// Trusted authorities and client certificate of a client. Clones share the loaded authorities of
/// the system.
#[derive(Clone, Default)]
pub struct ClientTls {
    authorities: Arc<[CertificateDer<'static>]>,
    identity: Option<Arc<Identity>>,
    config: Arc<OnceLock<Result<Arc<ClientConfig>, Error>>>,
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Reason why a TLS connection failed. The text names the usual remedy, if there is one.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server's certificate was signed by an untrusted authority.
    #[error(
        "the certificate of {0} was signed by an authority that is not trusted here; give the \
         authority's certificate with --ca or PEEKLOCK_CA (in a program with \
         `ClientOptions::tls`), or let this machine trust it (`peeklock tls trust` prints the \
         steps)"
    )]
    UnknownAuthority(Box<str>),
    /// The server's certificate is for other names.
    #[error(
        "{detail}; connect with a name that is in the certificate, or add this name to the \
         certificate"
    )]
    WrongName {
        /// The names of the certificate.
        detail: Box<str>,
    },
    /// The server's certificate is invalid for another reason.
    #[error("the certificate of {host} is not valid: {detail}")]
    BadCertificate {
        /// The host.
        host: Box<str>,
        /// Description of the flaw.
        detail: Box<str>,
    },
    /// The server does not use TLS.
    #[error("{0} does not use TLS there; use ws:// instead of wss://, or another port")]
    NotTls(Box<str>),
    /// The server requires a client certificate, and got none that it accepts.
    #[error("{0} requires a client certificate that it trusts, and none was given")]
    CertificateWanted(Box<str>),
    /// The server closed the connection during the handshake.
    #[error(
        "{0} closed the connection during the TLS handshake; it may not use TLS there: try ws:// \
         instead of wss://"
    )]
    Closed(Box<str>),
    /// The host is neither a name nor an address.
    #[error("`{0}` must be the name of a host or an address")]
    NotAHost(Box<str>),
    /// TLS or the connection failed in another way.
    #[error("no TLS with {host}: {source}")]
    Failed {
        /// The host.
        host: Box<str>,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl ClientTls {
    /// Trusts the authorities of the system, which are loaded on first use.
    #[must_use]
    pub fn of_system() -> Self {
        Self::default()
    }

    /// Adds trusted authorities.
    #[must_use]
    pub fn trusting(self, authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let authorities = self.authorities.iter().cloned().chain(authorities).collect();
        Self { authorities, identity: self.identity, config: Arc::default() }
    }

    /// Adds a client certificate with its key, from PEM files, for servers that request one.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read. The first connection checks whether certificate
    /// and key match.
    pub fn with_identity(
        self,
        certificate: &std::path::Path,
        key: &std::path::Path,
    ) -> Result<Self, FileError> {
        let chain = read(certificate, File::Certificate)?;
        let chain = certificates_in(&chain, certificate, File::Certificate)?;
        let key = key_in(&read(key, File::Key)?, key)?;
        let identity = Some(Arc::new(Identity { chain, key }));
        Ok(Self { authorities: self.authorities, identity, config: Arc::default() })
    }

    /// Connects TLS over a socket to this host: a name or an address, IPv6 with or without
    /// brackets. Always verifies the server's certificate and its name (TLS-06).
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| ConnectError::NotAHost(host.into()))?;
        let config = self.config.get_or_init(|| {
            client_config(&self.authorities, self.identity.as_deref().map(Identity::parts))
                .map(Arc::new)
        });
        let failed = |error| explain(host, error);
        let config = config.clone().map_err(|error| failed(io::Error::other(error)))?;
        TlsConnector::from(config).connect(name, socket).await.map_err(failed)
    }

    /// Explains an error on a stream from [`Self::connect`]: with TLS 1.3 a client learns only
    /// after the handshake that the server rejects its certificate.
    #[must_use]
    pub fn explain(host: &str, error: io::Error) -> ConnectError {
        explain(host, error)
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("authorities", &self.authorities.len())
            .field("has_identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

impl Identity {
    fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }
}

/// Returns the TLS configuration of an HTTP or WebSocket client that trusts the authorities of the
/// system and `authorities`.
///
/// # Errors
/// Returns an error if an authority, or the client certificate with its key, cannot be used.
pub fn client_config(
    authorities: &[CertificateDer<'static>],
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, Error> {
    let system = rustls_native_certs::load_native_certs();
    for error in system.errors {
        tracing::warn!(%error, "cannot read the certificates of the system");
    }
    let mut roots = RootCertStore::empty();
    // Systems may have unusable certificates, which are skipped.
    roots.add_parsable_certificates(system.certs);
    for certificate in authorities {
        roots.add(certificate.clone())?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn explain(host: &str, source: io::Error) -> ConnectError {
    let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            ConnectError::UnknownAuthority(host.into())
        }
        Some(Error::InvalidCertificate(
            error @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        )) => ConnectError::WrongName { detail: error.to_string().into() },
        Some(Error::InvalidCertificate(error)) => {
            ConnectError::BadCertificate { host: host.into(), detail: error.to_string().into() }
        }
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            ConnectError::NotTls(host.into())
        }
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::UnknownCA,
        )) => ConnectError::CertificateWanted(host.into()),
        None if source.kind() == io::ErrorKind::UnexpectedEof => ConnectError::Closed(host.into()),
        _ => ConnectError::Failed { host: host.into(), source },
    }
}
