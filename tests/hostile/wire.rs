//! The part of HTTP and WebSocket that attackers and witnesses need, with blocking reads and
//! writes. Attackers can send bytes that no client library would send.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use peeklock_websocket::testing::in_binary;
use serde_json::{Value as Json, json};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Bytes of a request.
pub fn request(method: &str, target: &str, body: &str) -> Vec<u8> {
    request_with(method, target, "", body)
}

/// Bytes of a request with these headers, one per line.
pub fn request_with(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    format!("{head}{headers}\r\n{body}").into_bytes()
}

/// An answer over HTTP.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends one request on a connection of its own.
pub fn ask(address: SocketAddr, method: &str, target: &str, body: &str) -> io::Result<Answer> {
    let mut stream = connect(address)?;
    // The server may answer and close before it has read everything.
    stream.write_all(&request(method, target, body)).ok();
    read_answer(&mut stream)
}

pub fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut more = [0; 16 << 10];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut more)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&more[..read]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    let mut answer = Answer {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        head,
        body: bytes.split_off(end + 4),
    };
    let length = answer.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while answer.body.len() < length {
        match stream.read(&mut more)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => answer.body.extend_from_slice(&more[..read]),
        }
    }
    Ok(answer)
}

/// Upgrades at a path with this subprotocol. Returns the stream and the bytes that followed the
/// answer.
pub fn upgrade(
    address: SocketAddr,
    path: &str,
    subprotocol: &str,
) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = connect(address)?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    match read_answer(&mut stream)? {
        Answer { status: 101, body, .. } => Ok((stream, body)),
        Answer { status, .. } => Err(io::Error::other(format!("status {status}"))),
    }
}

/// Frame with the hello.
fn hello_frame(hello: &Json) -> Json {
    json!({ "requests": [{ "id": 1, "hello": hello }] })
}

/// A connection over WebSocket, in JSON, after its welcome.
pub struct WebSocket {
    pub stream: TcpStream,
    /// Body of the welcome; null in the binary form.
    pub welcome: Json,
    bytes: Vec<u8>,
    seen: u64,
}

impl WebSocket {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_with(address, &json!({}))
    }

    /// Opens a connection with this hello.
    pub fn open_with(address: SocketAddr, hello: &Json) -> io::Result<Self> {
        let (stream, bytes) = upgrade(address, "/", "peeklock.v1.json")?;
        let mut socket = Self { stream, welcome: Json::Null, bytes, seen: 0 };
        socket.send(&hello_frame(hello))?;
        let mut frame = socket.frame()?;
        socket.welcome = frame["items"][0]["welcome"].take();
        socket.seen = 0;
        Ok(socket)
    }

    /// Opens a connection in the binary form. Only its welcome is read.
    pub fn open_binary(address: SocketAddr, hello: &Json) -> io::Result<Self> {
        let (stream, bytes) = upgrade(address, "/", "peeklock.v1.binary")?;
        let mut socket = Self { stream, welcome: Json::Null, bytes, seen: 0 };
        let hello =
            in_binary(&hello_frame(hello).to_string()).ok_or(io::ErrorKind::InvalidInput)?;
        socket.stream.write_all(&masked(0x82, &hello))?;
        socket.next()?;
        Ok(socket)
    }

    pub fn send(&mut self, frame: &Json) -> io::Result<()> {
        self.stream.write_all(&masked(0x81, frame.to_string().as_bytes()))
    }

    /// The next frame of text.
    pub fn frame(&mut self) -> io::Result<Json> {
        let mut joined = Vec::new();
        loop {
            let (is_last, code, text) = self.next()?;
            match code {
                // A large frame arrives in pieces.
                0x0 | 0x1 => {
                    joined.extend(text);
                    if !is_last {
                        continue;
                    }
                    self.seen += 1;
                    return serde_json::from_slice(&joined).map_err(io::Error::other);
                }
                0x8 => return Err(io::Error::other("closed")),
                0x9 => self.stream.write_all(&masked(0x8a, &text))?,
                _ => {}
            }
        }
    }

    /// Sends a request and waits for its answer. Pushed deliveries in between are dropped.
    pub fn ask(&mut self, id: u64, operation: &str, body: &Json) -> io::Result<Json> {
        self.send(&json!({ "seen": self.seen, "requests": [{ "id": id, operation: body }] }))?;
        loop {
            let frame = self.frame()?;
            let items = frame["items"].as_array().cloned().unwrap_or_default();
            if let Some(answer) = items.into_iter().find(|item| item["id"] == id) {
                return Ok(answer);
            }
        }
    }

    fn next(&mut self) -> io::Result<(bool, u8, Vec<u8>)> {
        loop {
            if let Some((code, start, end)) = frame_in(&self.bytes)
                && self.bytes.len() >= end
            {
                let is_last = self.bytes[0] & 0x80 != 0;
                let text = self.bytes[start..end].to_vec();
                self.bytes.drain(..end);
                return Ok((is_last, code, text));
            }
            let mut more = [0; 16 << 10];
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.bytes.extend_from_slice(&more[..read]),
            }
        }
    }
}

/// Opcode, start and end of the content of an unmasked frame.
pub fn frame_in(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (code, short) = (bytes.first()? & 0x0f, usize::from(bytes.get(1)? & 0x7f));
    let (start, length) = match short {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, short),
    };
    Some((code, start, start + length))
}

/// A client's frame, masked with zeros.
pub fn masked(first: u8, text: &[u8]) -> Vec<u8> {
    let mut frame = head_of(first, text.len());
    frame.extend_from_slice(text);
    frame
}

/// Head of a frame that announces `length` bytes.
pub fn head_of(first: u8, length: usize) -> Vec<u8> {
    let mut head = vec![first];
    match length {
        0..126 => head.push(0x80 | u8::try_from(length).unwrap()),
        126..0x1_0000 => {
            head.push(0x80 | 126);
            head.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head.extend_from_slice(&[0; 4]);
    head
}
