//! A minimal HTTP client for the tests.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    /// Bytes that were read and do not belong to an answer yet.
    rest: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), rest: Vec::new() }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Returns the next answer; none when the connection ends before one.
    pub async fn read(&mut self) -> Option<Answer> {
        self.read_answer(false).await
    }

    /// Returns the next answer, to a request whose answer has no body.
    pub async fn read_head(&mut self) -> Option<Answer> {
        self.read_answer(true).await
    }

    async fn read_answer(&mut self, no_body: bool) -> Option<Answer> {
        let head_end = loop {
            if let Some(end) = self.rest.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if !self.read_more().await {
                return None;
            }
        };
        let head: Vec<u8> = self.rest.drain(..head_end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if status == 100 {
            return Box::pin(self.read_answer(no_body)).await;
        }
        let length: usize = answer.header("content-length").map_or(0, |text| text.parse().unwrap());
        if !no_body {
            while self.rest.len() < length {
                assert!(self.read_more().await, "the answer is cut: {answer:?}");
            }
            answer.body = self.rest.drain(..length).collect();
        }
        Some(answer)
    }

    async fn read_more(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.rest).await, Ok(1..))
    }

    /// Returns all bytes up to the end of the connection.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.rest)
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the header with the broker properties.
    pub fn properties(&self) -> Value {
        serde_json::from_str(self.header("brokerproperties").unwrap()).unwrap()
    }

    /// Asserts the form of an error (ERR-02); returns its status and condition.
    pub fn error(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        let text = |name: &str| problem[name].as_str().unwrap().to_owned();
        assert_eq!(problem["status"], self.status);
        assert!(problem["retryable"].is_boolean());
        assert!(!text("title").is_empty() && !text("detail").is_empty());
        assert!(text("type").ends_with(&text("code")));
        let tracking_id = text("trackingId");
        assert_eq!(tracking_id.len(), 36);
        assert!(text("message").contains(&format!("TrackingId:{tracking_id}, Entity:")));
        (self.status, text("code"))
    }
}
