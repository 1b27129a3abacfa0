//! Checks the head of a request before the framework sees it, so that a refusal of a head has the
//! usual form. The framework accepts every head that passes here: it uses the same parser, and
//! these are its rules for the framing of bodies.

use actix_web::http::{Method, Uri};

use super::chunks::Chunks;

/// Maximum bytes of a head.
pub(super) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Maximum number of headers.
pub(super) const HEADER_COUNT_MAX: usize = 96;
/// Maximum bytes of a request target; the framework's type takes no more.
const TARGET_BYTES_MAX: usize = 65_534;
/// Maximum bytes of a header name.
const NAME_BYTES_MAX: usize = 8 << 10;

/// Result of reading the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// More bytes are needed.
    Partial,
    /// The head is complete after `bytes` bytes, and `body` follows.
    Whole { bytes: usize, body: Body },
    /// The head is complete after `bytes` bytes and requests WebSocket at `path`.
    Upgrade { bytes: usize, path: String },
    /// The head is invalid.
    Refused(Fault),
}

/// The length of the body that follows a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A number of bytes.
    Length(u64),
    Chunked(Chunks),
    /// All bytes up to the end of the connection.
    ToEnd,
}

/// Reason why a head is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Malformed(String),
    /// More bytes than [`HEAD_BYTES_MAX`].
    TooLarge,
    /// More headers than [`HEADER_COUNT_MAX`].
    TooManyHeaders,
    /// The request target is too long; the number is its length in bytes.
    LongTarget(usize),
}

/// Finds the end of a head in the received bytes. It parses only if a line may have ended,
/// so slow bytes do not cost a parse each.
#[derive(Default)]
pub(super) struct HeadReader {
    seen_bytes: usize,
    has_line: bool,
}

impl HeadReader {
    /// Examines the received bytes, which must not begin with a blank line.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Head {
        let is_first = self.seen_bytes == 0;
        // A blank line may have begun in bytes that were seen before.
        let fresh = bytes.get(self.seen_bytes.saturating_sub(2)..).unwrap_or_default();
        let is_first_line = !self.has_line && fresh.contains(&b'\n');
        self.has_line |= is_first_line;
        self.seen_bytes = bytes.len();
        if is_first || is_first_line || has_blank_line(fresh) {
            return parse(bytes);
        }
        partial(bytes)
    }

    /// Prepares for the next head.
    pub(super) const fn restart(&mut self) {
        self.seen_bytes = 0;
        self.has_line = false;
    }
}

/// Number of leading bytes that are blank lines.
pub(super) fn blank_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        rest = match rest {
            [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => rest,
            _ => return bytes.len() - rest.len(),
        };
    }
}

fn has_blank_line(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').skip(1).peekable();
    while let Some(line) = lines.next() {
        // The part after the last line break is an incomplete line.
        if lines.peek().is_some() && matches!(line, b"" | b"\r") {
            return true;
        }
    }
    false
}

fn partial(bytes: &[u8]) -> Head {
    if bytes.len() >= HEAD_BYTES_MAX {
        return Head::Refused(Fault::TooLarge);
    }
    Head::Partial
}

fn parse(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => partial(bytes),
        Ok(httparse::Status::Complete(end)) => match lines(bytes, end).and(body(&request)) {
            Ok(Body::ToEnd) if request.method == Some("GET") => {
                Head::Upgrade { bytes: end, path: path(&request) }
            }
            Ok(body) => Head::Whole { bytes: end, body },
            Err(fault) => Head::Refused(fault),
        },
        Err(httparse::Error::TooManyHeaders) => Head::Refused(Fault::TooManyHeaders),
        Err(error) => Head::Refused(malformed(&error.to_string())),
    }
}

/// Checks that every line of a head ends in CR LF. A proxy could otherwise find the end of a line
/// elsewhere (RFC 9112, section 2.2).
fn lines(bytes: &[u8], end: usize) -> Result<(), Fault> {
    let head = bytes.get(..end).unwrap_or_default();
    let mut before = None;
    for byte in head {
        if *byte == b'\n' && before != Some(b'\r') {
            return Err(malformed("a line of the head ends in LF without CR"));
        }
        before = Some(*byte);
    }
    Ok(())
}

/// The path of a valid target.
fn path(request: &httparse::Request<'_, '_>) -> String {
    let target = Uri::try_from(request.path.unwrap_or_default());
    target.map_or_else(|_| String::new(), |target| target.path().to_owned())
}

fn malformed(flaw: &str) -> Fault {
    Fault::Malformed(format!("the request is not HTTP/1.1: {flaw}"))
}

/// The values of headers that decide where a request ends.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    has_encoding: bool,
    is_chunked: bool,
    is_upgrade: bool,
    has_host: bool,
}

/// The body that follows a well-formed head (RFC 9112, section 6.3).
fn body(request: &httparse::Request<'_, '_>) -> Result<Body, Fault> {
    let method = request.method.unwrap_or_default();
    let target = request.path.unwrap_or_default();
    if target.len() > TARGET_BYTES_MAX {
        return Err(Fault::LongTarget(target.len()));
    }
    Method::from_bytes(method.as_bytes()).map_err(|error| malformed(&error.to_string()))?;
    Uri::try_from(target).map_err(|error| malformed(&error.to_string()))?;
    let is_old = request.version == Some(0);
    let framing = framing(request, is_old)?;
    if !is_old && !framing.has_host {
        return Err(malformed("the header Host is missing"));
    }
    if framing.has_encoding {
        if is_old {
            return Err(malformed("Transfer-Encoding is not allowed in HTTP/1.0"));
        }
        if !framing.is_chunked {
            return Err(malformed("the Transfer-Encoding must be chunked"));
        }
        if framing.length.is_some() {
            return Err(malformed("both Content-Length and Transfer-Encoding are given"));
        }
        return Ok(Body::Chunked(Chunks::default()));
    }
    if framing.is_upgrade {
        return Ok(Body::ToEnd);
    }
    match framing.length {
        Some(length) => Ok(Body::Length(length)),
        None if is_old && method == "POST" => {
            Err(malformed("a POST of HTTP/1.0 has no Content-Length"))
        }
        None if method == "CONNECT" => Ok(Body::ToEnd),
        None => Ok(Body::Length(0)),
    }
}

fn framing(request: &httparse::Request<'_, '_>, is_old: bool) -> Result<Framing, Fault> {
    let mut framing = Framing::default();
    for header in &*request.headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if header.name.len() > NAME_BYTES_MAX {
            return Err(Fault::TooLarge);
        }
        if is("content-length") {
            let length = text(header.value)
                .filter(|text| !text.starts_with('+'))
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| malformed("the Content-Length must be a number"))?;
            if framing.length.replace(length).is_some() {
                return Err(malformed("the Content-Length is given twice"));
            }
        } else if is("transfer-encoding") {
            if framing.has_encoding {
                return Err(malformed("the Transfer-Encoding is given twice"));
            }
            framing.has_encoding = true;
            framing.is_chunked =
                text(header.value).is_some_and(|text| text.eq_ignore_ascii_case("chunked"));
        } else if is("host") {
            if framing.has_host {
                return Err(malformed("the Host is given twice"));
            }
            framing.has_host = true;
        } else if is("upgrade") && !is_old {
            framing.is_upgrade |=
                text(header.value).is_some_and(|text| text.eq_ignore_ascii_case("websocket"));
        }
    }
    Ok(framing)
}

/// The value as text; none if it has invisible characters.
fn text(value: &[u8]) -> Option<&str> {
    let is_visible = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| is_visible).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a head that arrives byte by byte, and the number of bytes read.
    fn dripped(head: &[u8]) -> (Head, usize) {
        let mut reader = HeadReader::default();
        let mut ends = (1..=head.len()).map(|end| (reader.read(&head[..end]), end));
        ends.find(|(head, _)| *head != Head::Partial).unwrap_or((Head::Partial, 0))
    }

    fn is_malformed(head: &str) -> bool {
        let refused = |head| matches!(head, Head::Refused(Fault::Malformed(_)));
        let whole = HeadReader::default().read(head.as_bytes());
        refused(whole) && refused(dripped(head.as_bytes()).0)
    }

    /// HTP-01: the end of a head and the length of its body do not depend on how the bytes arrive.
    #[test]
    fn a_head_is_read_however_it_arrives() {
        let length = |bytes| Body::Length(bytes);
        let chunked = || Body::Chunked(Chunks::default());
        for (head, body) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", length(0)),
            ("GET / HTTP/1.0\r\n\r\n", length(0)),
            ("POST /a HTTP/1.1\r\nHost: x\r\ncontent-length:  7 \r\n\r\n", length(7)),
            ("POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: x\r\n\r\n", chunked()),
            ("CONNECT q:443 HTTP/1.1\r\nHost: x\r\n\r\n", Body::ToEnd),
            ("PUT / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n", Body::ToEnd),
        ] {
            let bytes = head.len();
            let whole = format!("{head}and what follows\r\n\r\n");
            let read = HeadReader::default().read(whole.as_bytes());
            assert_eq!(dripped(whole.as_bytes()).1, bytes, "{head}");
            assert_eq!(read, Head::Whole { bytes, body }, "{head}");
        }
    }

    /// LIS-01: a WebSocket request is recognized with its path; a similar request is not.
    #[test]
    fn upgrade_is_recognized() {
        let read = |head: &str| HeadReader::default().read(head.as_bytes());
        for (target, path) in [
            ("/", "/"),
            ("/$servicebus/websocket?a=b", "/$servicebus/websocket"),
            ("http://x/a", "/a"),
        ] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\n\r\n");
            let upgrade = Head::Upgrade { bytes: head.len(), path: path.to_owned() };
            assert_eq!(read(&head), upgrade, "{target}");
            assert_eq!(dripped(head.as_bytes()), (upgrade, head.len()), "{target}");
        }
        for head in [
            "GET / HTTP/1.0\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(matches!(read(head), Head::Whole { .. }), "{head}");
        }
    }

    /// HTP-01, ERR-02: a head that the framework would refuse is refused earlier, with a reason.
    #[test]
    fn a_head_that_frames_no_request_is_refused() {
        for lines in [
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/2.0\r\nHost: x\r\n",
            "GET /\u{1} HTTP/1.1\r\nHost: x\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n",
            "GET / HTTP/1.1\r\nHost : x\r\n",
            "POST / HTTP/1.0\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert!(is_malformed(&format!("{lines}\r\n")), "{lines}");
        }
        for head in [
            "GET / HTTP/1.1\nHost: x\n\n",
            "GET / HTTP/1.1\r\nHost: x\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n\n",
        ] {
            assert!(is_malformed(head), "{head}");
        }
        // Invalid bytes are detected before the first line is complete.
        assert!(is_malformed("\u{16}\u{3}\u{1}\u{2}"));
    }

    /// HTP-01, ERR-02: a head has size limits.
    #[test]
    fn a_head_has_bounds() {
        let refused = |head: &str| match HeadReader::default().read(head.as_bytes()) {
            Head::Refused(fault) => fault,
            other => panic!("{other:?}"),
        };
        let headers = "a: b\r\n".repeat(HEADER_COUNT_MAX);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n")),
            Fault::TooManyHeaders
        );
        let long = "a".repeat(HEAD_BYTES_MAX);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\na: {long}")), Fault::TooLarge);
        // The framework panics over a name that its type does not take.
        let name = "a".repeat(70_000);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\nHost: x\r\n{name}: b\r\n\r\n")),
            Fault::TooLarge
        );
        let target = "a".repeat(70_000);
        assert_eq!(
            refused(&format!("GET /{target} HTTP/1.1\r\nHost: x\r\n\r\n")),
            Fault::LongTarget(70_001)
        );
        let (head, bytes) = dripped(format!("GET / HTTP/1.1\r\na: {long}").as_bytes());
        assert_eq!((head, bytes), (Head::Refused(Fault::TooLarge), HEAD_BYTES_MAX));
    }

    #[test]
    fn blank_lines_before_a_head_are_skipped() {
        for (bytes, blank) in
            [("\r\n\nGET", 3), ("GET\r\n", 0), ("\r", 0), ("\r\n\r", 2), ("", 0), ("\rG", 0)]
        {
            assert_eq!(blank_bytes(bytes.as_bytes()), blank, "{bytes:?}");
        }
    }
}
