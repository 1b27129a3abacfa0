//! Where the keys of an issuer are, and reading them: within a time, and within a bound.

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

/// A set of keys; those with certificates have some ten thousand bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Time for a file, which is on a disk that may hang.
const FILE_TIME: Duration = Duration::from_secs(5);
/// The head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Where the keys of an issuer are.
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

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The address is none that could be asked; what is wrong with it. It is not repeated, for it may have a password in it.
    #[error("the address {0}")]
    Address(&'static str),
    /// There is no connection.
    #[error("the host {0}")]
    Connect(#[from] ConnectError),
    /// The connection broke, or what came was not HTTP.
    #[error("the host did not answer: {0}")]
    Http(#[from] hyper::Error),
    /// It answered something else; redirections are not followed.
    #[error("the host answered {0}")]
    Status(StatusCode),
    /// The whole of it took too long.
    #[error("the host did not send them within {0:?}")]
    Time(Duration),
    /// The body broke off, or had more bytes than are read.
    #[error("they did not arrive completely, or have more than {BODY_BYTES_MAX} bytes")]
    Body,
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What was read is no set of keys.
    #[error("the content cannot be used: {0}")]
    Keys(#[from] KeySetError),
}

impl KeySource {
    /// A file with a JWK set. It is read anew whenever keys are.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Origin::File(path.into()))
    }

    /// An address where a JWK set is published, authorities that are trusted there beside those of the system, and the time
    /// that reading may take. TLS is spoken, but for an address of this machine: whoever can change keys on their way can
    /// sign anything.
    ///
    /// # Errors
    /// When it is no such address.
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
        // Who has written it into the configuration means this host, wherever it is.
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

    /// The keys that are there now.
    pub(crate) async fn read(&self) -> Result<KeySet, SourceError> {
        let (time, reading) = match &self.0 {
            Origin::Url(remote) => (remote.timeout, timeout(remote.timeout, remote.read()).await),
            Origin::File(path) => {
                let path = path.clone();
                // Whoever else is served by this thread does not wait for the disk.
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

    /// Whether there are keys, as far as that can be told without asking anybody else: for a look at the configuration.
    ///
    /// # Errors
    /// With what is wrong with the file.
    pub fn judge(&self) -> Result<(), SourceError> {
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
        // Ends with this reading. How the connection ended is told to whoever waits for an answer.
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

/// Where it reads, for the log.
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
