//! A keep-alive connection over HTTP/1.1 that distinguishes requests that were never sent from
//! requests whose answer was lost.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Time after which a broker that does not answer counts as hanging.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Lost {
    /// No byte of the request was sent.
    NotSent(String),
    /// The broker may have carried out the request.
    Unanswered(String),
}

/// An answer, read to its end.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A client connection, reopened as needed. There is at most one at a time.
pub struct Connection {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub const fn new(address: String) -> Self {
        Self { address, stream: None }
    }

    /// Sends one request and reads its whole answer.
    ///
    /// # Errors
    /// [`Lost`]; the next request opens a new connection.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, Lost> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().map_err(|error| Lost::NotSent(error.to_string()))?,
        };
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        let answer = stream.get_mut().write_all(&request).and_then(|()| read(&mut stream));
        let response = answer.map_err(|error| Lost::Unanswered(error.to_string()))?;
        let closes = response.header("connection").is_some_and(|value| value == "close");
        if !closes {
            self.stream = Some(stream);
        }
        Ok(response)
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(BufReader::with_capacity(64 << 10, stream))
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Response> {
    let malformed = |what: &str| std::io::Error::other(format!("the answer has no {what}"));
    let mut line = String::new();
    let mut next = |stream: &mut BufReader<TcpStream>| -> std::io::Result<String> {
        line.clear();
        stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(text) => Ok(text.to_owned()),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let status = next(stream)?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| malformed("status"))?;
    let mut headers = Vec::new();
    loop {
        let header = next(stream)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or_else(|| malformed("header"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut response = Response { status, headers, body: Vec::new() };
    let length = match response.header("content-length") {
        Some(length) => length.parse().map_err(|_| malformed("length"))?,
        None if status == 204 => 0,
        None => return Err(malformed("length")),
    };
    response.body.resize(length, 0);
    stream.read_exact(&mut response.body)?;
    Ok(response)
}
