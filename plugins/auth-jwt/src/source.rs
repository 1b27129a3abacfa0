//! Source of an issuer's keys: a file or a URL. `keys.rs` reads it. Each read has a time limit and
//! a size limit.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use peeklock_reach::{CertificateDer, ConnectError, HostPattern, Place, Reach};
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::{Host, Position, Url};

use crate::key_set::{KeySet, KeySetError};

/// Maximum size of a key set; sets with certificates have some ten thousand bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Time limit for reading a file, because its disk may hang.
const FILE_TIME: Duration = Duration::from_secs(5);
/// Maximum size of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Source of an issuer's keys.
#[derive(Clone)]
pub struct KeySource(Origin);

#[derive(Clone)]
enum Origin {
    File(PathBuf),
    Url(Box<Remote>),
}

#[derive(Clone)]
struct Remote {
    place: Place,
    reach: Reach,
    /// The header `Host`.
    authority: HeaderValue,
    path: Uri,
    timeout: Duration,
}

/// Reason why keys could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The URL cannot be used, for this reason. The URL is not repeated, because it may contain a
    /// password.
    #[error("the address {0}")]
    Address(&'static str),
    /// The connection failed.
    #[error("the host {0}")]
    Connect(#[from] ConnectError),
    /// The connection broke, or the answer was not HTTP.
    #[error("the host did not answer: {0}")]
    Http(#[from] hyper::Error),
    /// The host answered with this status; redirections are not followed.
    #[error("the host answered {0}")]
    Status(StatusCode),
    /// The read exceeded this time limit.
    #[error("the host did not send them within {0:?}")]
    Time(Duration),
    /// The body is incomplete or too large.
    #[error("they did not arrive completely, or have more than {BODY_BYTES_MAX} bytes")]
    Body,
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The content is not a key set.
    #[error("the content cannot be used: {0}")]
    Keys(#[from] KeySetError),
}

impl KeySource {
    /// Creates a source for a file with a JWK set. Each read opens the file again.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Origin::File(path.into()))
    }

    /// Creates a source for a URL that publishes a JWK set. `authorities` are trusted in addition
    /// to the system's authorities; `timeout` limits a whole read. The URL must use TLS unless its
    /// host is this machine: an attacker able to change keys in transit can sign any token.
    ///
    /// # Errors
    /// Returns [`SourceError::Address`] if the URL cannot be used.
    pub fn url(
        text: &str,
        authorities: Vec<CertificateDer<'static>>,
        timeout: Duration,
    ) -> Result<Self, SourceError> {
        let wrong = SourceError::Address;
        let url = Url::parse(text)
            .map_err(|_| wrong("is not a URL; write one such as https://login.example.com/keys"))?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(wrong("must not have a user name, a password or a fragment"));
        }
        let is_secure = match url.scheme() {
            "https" => true,
            "http" if is_loopback(&url) => false,
            "http" => return Err(wrong("is not secure: write https://")),
            _ => return Err(wrong("must begin with https://")),
        };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(wrong("has no host"));
        };
        let place = Place::new(host, port, is_secure).map_err(|_| wrong("has no usable host"))?;
        // The host may be in any network, because the operator configured it.
        let pattern: Result<HostPattern, _> = format!("{host}:{port}").parse();
        let named = vec![pattern.map_err(|_| wrong("has no usable host"))?];
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        Ok(Self(Origin::Url(Box::new(Remote {
            place,
            reach: Reach::new(named, authorities),
            authority: HeaderValue::from_str(authority).map_err(|_| wrong("has no usable host"))?,
            path: Uri::try_from(&url[Position::BeforePath..Position::AfterQuery])
                .map_err(|_| wrong("has no usable path"))?,
            timeout,
        }))))
    }

    /// Reads the current keys.
    pub(crate) async fn read(&self) -> Result<KeySet, SourceError> {
        let (time, reading) = match &self.0 {
            Origin::Url(remote) => (remote.timeout, timeout(remote.timeout, remote.read()).await),
            Origin::File(path) => {
                let path = path.clone();
                // A blocking task, so that other clients of this thread do not wait for the disk.
                let reading = async {
                    let reading = tokio::task::spawn_blocking(move || read_file(&path));
                    reading.await.unwrap_or(Err(SourceError::Body))
                };
                (FILE_TIME, timeout(FILE_TIME, reading).await)
            }
        };
        let text = reading.unwrap_or(Err(SourceError::Time(time)))?;
        Ok(KeySet::parse(&text)?)
    }

    /// Checks the source without network access, to validate a configuration: parses a file, and
    /// accepts any URL.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a key set.
    pub fn check(&self) -> Result<(), SourceError> {
        match &self.0 {
            Origin::Url(_) => Ok(()),
            Origin::File(path) => Ok(KeySet::parse(&read_file(path)?).map(|_| ())?),
        }
    }
}

impl Remote {
    async fn read(&self) -> Result<Vec<u8>, SourceError> {
        let stream = self.reach.connect(&self.place, self.timeout).await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        // Ends with this read. The request below returns a connection error.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.path.clone();
        request.headers_mut().insert(HOST, self.authority.clone());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = sender.send_request(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(SourceError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await;
        Ok(body.map_err(|_| SourceError::Body)?.to_bytes().into())
    }
}

/// Shows the source in logs: a path, or a URL without its query.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Url(remote) => {
                let scheme = if remote.place.is_secure() { "https" } else { "http" };
                let (host, port) = (remote.place.host(), remote.place.port());
                write!(f, "{scheme}://{host}:{port}{}", remote.path.path())
            }
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let mut text = Vec::new();
    let bound = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let reading =
        std::fs::File::open(path).and_then(|file| file.take(bound).read_to_end(&mut text));
    reading.map_err(|source| SourceError::Unreadable { path: path.to_owned(), source })?;
    if text.len() > BODY_BYTES_MAX { Err(SourceError::Body) } else { Ok(text) }
}
