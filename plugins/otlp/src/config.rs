//! Configuration of the exporter: the collector's address, the headers, and the signals to send.
//! The server reads it from its own configuration.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use peeklock_core::limits::Limits;
use peeklock_reach::{CertificateDer, HostPattern, Place, Reach};
use url::{Position, Url};

/// Maximum size of a header file; usual files have a few hundred bytes.
const HEADERS_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of configured headers per request.
const HEADERS_MAX: usize = 32;
/// Headers that the client itself sets.
const RESERVED: [HeaderName; 4] = [HOST, CONTENT_LENGTH, CONTENT_TYPE, CONNECTION];

/// The collector, and the telemetry to send to it.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// Address of the collector.
    pub endpoint: Endpoint,
    /// Additional headers of each request.
    pub headers: Headers,
    /// Whether to send spans.
    pub traces: bool,
    /// Whether to send metrics.
    pub metrics: bool,
    /// Fraction of the traces that begin in the broker to record, from 0 to 1. An operation that
    /// continues the trace of a message follows the sampling decision of that trace.
    pub sample_ratio: f64,
    /// Interval between two metric reports.
    pub interval: Duration,
    /// Maximum number of entities with gauges of their own at a time. The SDK has series for twice
    /// as many, since other entities may take their place; it reports any further ones as one
    /// overflow series.
    pub entity_count_max: usize,
    /// The broker's `service.name`.
    pub service_name: String,
}

impl OtlpConfig {
    /// Returns a configuration that sends both signals to `endpoint`, with the defaults of the
    /// configuration file, and gauges for as many entities as the default limits allow.
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

/// Address at which a collector accepts OTLP over HTTP.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) place: Place,
    pub(crate) reach: Reach,
    /// The header `Host`.
    pub(crate) authority: HeaderValue,
    /// The URL without a trailing slash.
    base: String,
}

/// Reason why a text is not an endpoint; completes "the endpoint ". The text is not repeated,
/// because it may contain a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// The text is not a URL.
    #[error("is not a URL: write one such as http://127.0.0.1:4318")]
    Url,
    /// The scheme is neither `http` nor `https`.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// The URL contains a user name, a password, a query or a fragment.
    #[error(
        "must not have a user name, a password, a query or a fragment; put secrets into headers"
    )]
    ExtraParts,
    /// The URL has no host, or none that can be connected to.
    #[error("has no usable host")]
    Host,
}

impl Endpoint {
    /// Parses a URL such as `http://127.0.0.1:4318`, to which the paths `/v1/traces` and
    /// `/v1/metrics` are added. With TLS, `authorities` are trusted in addition to the system's
    /// authorities. The host may be in any network, because the operator configured it.
    ///
    /// # Errors
    /// Returns [`EndpointError`] if the text is not such a URL.
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
            return Err(EndpointError::ExtraParts);
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

    /// Returns the URL for the path of a signal.
    pub(crate) fn of(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Shows the URL as configured.
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

/// Additional headers of each request, such as `Authorization`. Their values are never shown.
#[derive(Clone, Default)]
pub struct Headers(pub(crate) Vec<(HeaderName, HeaderValue)>);

/// Reason why headers cannot be used; completes "the headers ".
#[derive(Debug, thiserror::Error)]
pub enum HeadersError {
    /// The file cannot be read.
    #[error("cannot be read: `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file has too many bytes or headers.
    #[error("are more than {HEADERS_MAX}, or have more than {HEADERS_BYTES_MAX} bytes")]
    Many,
    /// The line with this number, from 1, is not a header. Its text is not repeated, because it may
    /// be a secret.
    #[error("have an invalid line {0}: write `Name: value`")]
    Line(usize),
    /// The client itself sets this header.
    #[error("must not set {0}")]
    Taken(HeaderName),
}

impl Headers {
    /// Reads a file with one header per line, `Name: value`. Empty lines and lines that begin with
    /// `#` are ignored.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is too large or contains an invalid header.
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

    /// Parses headers in the format of [`read`](Self::read).
    ///
    /// # Errors
    /// Returns an error if there are too many headers or one is invalid.
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
            if RESERVED.contains(&name) {
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

/// Shows only the names.
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
        check("https://user:secret@otel.example.com", Err(EndpointError::ExtraParts));
        check("https://otel.example.com/?key=secret", Err(EndpointError::ExtraParts));
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
