//! The part of an HTTP/1.1 client that tests need: one request and one answer on one connection.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, read to its end.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(key, _): &&(String, String)| key.eq_ignore_ascii_case(name);
        self.headers.iter().find(named).map(|(_, value)| value.as_str())
    }
}

/// Sends one request and reads its answer. Dropping the future closes the connection.
///
/// # Errors
/// If the connection fails or the answer is not HTTP.
pub async fn request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len()));
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    read(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// Encodes a segment of a path; everything but letters and digits is escaped.
pub fn segment(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn read(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(answer.get(..end)?).ok()?, answer.get(end + 4..)?);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let mut response = Response { status, headers, body: Vec::new() };
    let chunked = response.header("transfer-encoding").is_some_and(|coding| coding == "chunked");
    response.body = if chunked { unchunk(body)? } else { body.to_vec() };
    if let Some(length) = response.header("content-length") {
        // A shorter body was cut off.
        (length.parse() == Ok(response.body.len())).then_some(())?;
    }
    Some(response)
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
