//! Resolves, connects, agrees on TLS, and speaks HTTP/1.1 with one receiver.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use url::Host;

use crate::host::is_public;
use crate::target::Target;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// A connection that was idle for longer is not used again: what stands between may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The body of an answer, which is read only to use the connection again.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time for it, once the status has decided all that matters.
const BODY_TIME: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The name has no address.
    #[error("has no address: {0}")]
    Resolve(#[source] io::Error),
    /// The name has only addresses that are not public, and the operator has not named it.
    #[error("has no public address; name it in webhook.allowed_hosts if it is meant")]
    NotPublic,
    /// No address could be connected to.
    #[error("cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    /// Resolving, connecting and TLS together took too long.
    #[error("was not connected to within {0:?}")]
    ConnectTime(Duration),
    /// TLS could not be set up at all.
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The connection broke, or what came was not HTTP.
    #[error("gave no answer: {0}")]
    Http(#[from] hyper::Error),
    /// The whole request took too long.
    #[error("gave no answer within {0:?}")]
    Time(Duration),
}

/// What a receiver answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// Connects, with the authorities that are trusted; read when they are first needed.
pub struct Connector {
    authorities: Vec<CertificateDer<'static>>,
    tls: OnceLock<Result<Arc<ClientConfig>, rustls::Error>>,
}

/// One connection. Dropping it closes it.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    used_at: Instant,
}

impl Connector {
    pub const fn new(authorities: Vec<CertificateDer<'static>>) -> Self {
        Self { authorities, tls: OnceLock::new() }
    }

    /// A connection to the target, within its time.
    pub async fn connect(&self, target: &Target) -> Result<Connection, SendError> {
        let connecting = async {
            let stream = connect(target).await?;
            stream.set_nodelay(true).map_err(SendError::Connect)?;
            if !target.is_secure {
                return Connection::over(stream).await;
            }
            let connector = TlsConnector::from(self.tls().clone()?);
            let stream = connector
                .connect(server_name(&target.host)?, stream)
                .await
                .map_err(SendError::Connect)?;
            Connection::over(stream).await
        };
        let time = target.connect_timeout;
        timeout(time, connecting).await.unwrap_or(Err(SendError::ConnectTime(time)))
    }

    fn tls(&self) -> &Result<Arc<ClientConfig>, rustls::Error> {
        self.tls.get_or_init(|| client_config(&self.authorities).map(Arc::new))
    }
}

impl Connection {
    async fn over<S>(stream: S) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // How it ended is told to whoever waits for an answer.
            connection.await.ok();
        });
        Ok(Self { sender, driver, used_at: Instant::now() })
    }

    /// Whether it may be used for another request. The receiver can have closed it all the same.
    pub fn is_fresh(&self) -> bool {
        !self.sender.is_closed() && self.used_at.elapsed() < IDLE_MAX
    }

    /// The answer to a request, and the connection if another request can follow.
    pub async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Answer, Option<Self>), SendError> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let is_read = matches!(timeout(BODY_TIME, read_away(body)).await, Ok(true));
        self.used_at = Instant::now();
        Ok((Answer { status: head.status, headers: head.headers }, is_read.then_some(self)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads a body of bounded size to its end; whether that was reached.
async fn read_away(mut body: Incoming) -> bool {
    let mut rest = BODY_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match rest.checked_sub(bytes) {
            Some(left) => rest = left,
            None => return false,
        }
    }
    true
}

/// Connects to one of the addresses that may be meant, each with its part of the time.
async fn connect(target: &Target) -> Result<TcpStream, SendError> {
    let deadline = Instant::now() + target.connect_timeout;
    let addresses = addresses(target).await?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for (left, address) in (1..=count).rev().zip(addresses) {
        let part = deadline.saturating_duration_since(Instant::now()) / left;
        match timeout_at(Instant::now() + part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(SendError::Connect(last))
}

async fn addresses(target: &Target) -> Result<Vec<SocketAddr>, SendError> {
    let may_be_meant = |address: IpAddr| target.is_named || is_public(address);
    let mut found = Vec::new();
    match &target.host {
        Host::Domain(name) => {
            let all =
                lookup_host((name.as_str(), target.port)).await.map_err(SendError::Resolve)?;
            found.extend(all.filter(|address| may_be_meant(address.ip())).take(ADDRESSES_MAX));
        }
        Host::Ipv4(_) | Host::Ipv6(_) => {
            let address = target.address().filter(|address| may_be_meant(*address));
            found.extend(address.map(|address| SocketAddr::new(address, target.port)));
        }
    }
    if found.is_empty() { Err(SendError::NotPublic) } else { Ok(found) }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, SendError> {
    match host {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| {
            SendError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error))
        }),
        Host::Ipv4(address) => Ok(ServerName::from(IpAddr::V4(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(IpAddr::V6(*address))),
    }
}

/// Trusts the authorities of the system and those of the operator.
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
