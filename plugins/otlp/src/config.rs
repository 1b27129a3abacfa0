//! Where a collector is, and what it is sent.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use peeklock_core::limits::Limits;
use peeklock_reach::{CertificateDer, HostPattern, Place, Reach};
use url::{Position, Url};

/// A file of headers has some hundred bytes.
const HEADERS_BYTES_MAX: u64 = 64 << 10;
/// Headers of each request.
const HEADERS_MAX: usize = 32;
/// They are the client's to set.
const TAKEN: [HeaderName; 4] = [HOST, CONTENT_LENGTH, CONTENT_TYPE, CONNECTION];

/// What is sent to which collector.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// Where it is.
    pub endpoint: Endpoint,
    /// What each request has besides.
    pub headers: Headers,
    /// Whether it is sent spans.
    pub traces: bool,
    /// Whether it is sent metrics.
    pub metrics: bool,
    /// Of the traces that begin here, so many are recorded, from 0 to 1. What goes on with a trace of a message follows that.
    pub sample_ratio: f64,
    /// How often metrics are sent.
    pub interval: Duration,
    /// Of how many entities there may be gauges at a time. Those of twice as many are kept apart, since others may come in
    /// their place; further ones are told as one.
    pub entity_count_max: usize,
    /// What the broker is called there: `service.name`.
    pub service_name: String,
}

impl OtlpConfig {
    /// Everything, to this collector, as the defaults of the configuration have it, and gauges of as many entities as a
    /// broker has by its default limits.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        let limits = Limits::default();
        let subscriptions = limits.broker_subscription_count_max;
        Self {
            endpoint,
            headers: Headers::default(),
            traces: true,
            metrics: true,
            sample_ratio: 1.0,
            interval: Duration::from_secs(60),
            entity_count_max: limits.entity_count_max.saturating_add(subscriptions),
            service_name: "peeklock".to_owned(),
        }
    }
}

/// Where a collector takes OTLP over HTTP.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) place: Place,
    pub(crate) reach: Reach,
    /// The header `Host`.
    pub(crate) authority: HeaderValue,
    /// Without a slash at its end.
    base: String,
}

/// Why a text is no endpoint; completes "the endpoint ". It is not repeated, for it may have a password in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// It cannot be read.
    #[error("is not a URL: write one such as http://127.0.0.1:4318")]
    Url,
    /// It is something else.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// It says more than where.
    #[error(
        "must not have a user name, a password, a query or a fragment; put secrets into headers"
    )]
    More,
    /// It has no host, or none that could be asked.
    #[error("has no usable host")]
    Host,
}

impl Endpoint {
    /// Reads one such as `http://127.0.0.1:4318`, to which the paths `/v1/traces` and `/v1/metrics` are added; with TLS
    /// these authorities are trusted beside those of the system. Whoever configures it means this host, wherever it is.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(
        text: &str,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, EndpointError> {
        let url = Url::parse(text).map_err(|_| EndpointError::Url)?;
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EndpointError::Scheme),
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointError::More);
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(EndpointError::Host);
        };
        let place = Place::new(host, port, is_secure).map_err(|_| EndpointError::Host)?;
        let named: Result<HostPattern, _> = format!("{host}:{port}").parse();
        let named = vec![named.map_err(|_| EndpointError::Host)?];
        let authority = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        Ok(Self {
            place,
            reach: Reach::new(named, authorities),
            authority: authority.map_err(|_| EndpointError::Host)?,
            base: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// Where this signal goes.
    pub(crate) fn of(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// As it was written.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Headers of each request, such as `Authorization`. Their values are shown nowhere.
#[derive(Clone, Default)]
pub struct Headers(pub(crate) Vec<(HeaderName, HeaderValue)>);

/// Why there are no headers; completes "the headers ".
#[derive(Debug, thiserror::Error)]
pub enum HeadersError {
    /// The file cannot be read.
    #[error("cannot be read: `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is too long.
    #[error("are more than {HEADERS_MAX}, or have more than {HEADERS_BYTES_MAX} bytes")]
    Many,
    /// A line is none; which one, from 1. It is not repeated.
    #[error("have an invalid line {0}: write `Name: value`")]
    Line(usize),
    /// It sets what is not its to set.
    #[error("must not set {0}")]
    Taken(HeaderName),
}

impl Headers {
    /// Reads a file with a header a line, `Name: value`. Empty lines, and those that begin with `#`, are passed over.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn read(path: &Path) -> Result<Self, HeadersError> {
        let mut text = String::new();
        let reading = std::fs::File::open(path)
            .and_then(|file| file.take(HEADERS_BYTES_MAX + 1).read_to_string(&mut text));
        let read =
            reading.map_err(|source| HeadersError::Unreadable { path: path.to_owned(), source })?;
        if u64::try_from(read).unwrap_or(u64::MAX) > HEADERS_BYTES_MAX {
            return Err(HeadersError::Many);
        }
        Self::parse(&text)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn parse(text: &str) -> Result<Self, HeadersError> {
        let mut headers = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || HeadersError::Line(number);
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name: HeaderName = name.trim_end().parse().map_err(|_| wrong())?;
            let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
            if TAKEN.contains(&name) {
                return Err(HeadersError::Taken(name));
            }
            value.set_sensitive(true);
            headers.push((name, value));
        }
        if headers.len() > HEADERS_MAX {
            return Err(HeadersError::Many);
        }
        Ok(Self(headers))
    }
}

/// The names alone.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_and_no_more() {
        let check = |text: &str, expected: Result<&str, EndpointError>| {
            let endpoint = Endpoint::new(text, Vec::new());
            let traces = endpoint.map(|endpoint| endpoint.of("/v1/traces"));
            assert_eq!(traces, expected.map(str::to_owned), "{text}");
        };
        check("http://127.0.0.1:4318", Ok("http://127.0.0.1:4318/v1/traces"));
        check("https://otel.example.com/a/", Ok("https://otel.example.com/a/v1/traces"));
        check("http://[::1]:4318/", Ok("http://[::1]:4318/v1/traces"));
        check("127.0.0.1:4318", Err(EndpointError::Url));
        check("grpc://127.0.0.1:4317", Err(EndpointError::Scheme));
        check("https://user:secret@otel.example.com", Err(EndpointError::More));
        check("https://otel.example.com/?key=secret", Err(EndpointError::More));
    }

    #[test]
    fn headers_are_read_and_shown_by_name_alone() {
        let headers = Headers::parse("# a comment\n\nAuthorization: Bearer s3cret\nx-scope:a:b\n");
        let headers = headers.unwrap();
        assert_eq!(headers.0.len(), 2);
        assert_eq!(headers.0[1].1, "a:b");
        let shown = format!("{headers:?}");
        assert!(shown.contains("authorization") && !shown.contains("s3cret"), "{shown}");
        let wrong = Headers::parse("a: b\ns3cret\n").unwrap_err().to_string();
        assert!(wrong.contains("line 2") && !wrong.contains("s3cret"), "{wrong}");
        assert!(matches!(Headers::parse("Host: a.net"), Err(HeadersError::Taken(_))));
        let many: String = (0..33).map(|n| format!("x-{n}: 1\n")).collect();
        assert!(matches!(Headers::parse(&many), Err(HeadersError::Many)));
    }
}
