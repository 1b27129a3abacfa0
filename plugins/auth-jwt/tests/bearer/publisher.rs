//! A test host that publishes keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_auth_jwt::KeySource;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::issuer::{IssuerKey, key_set};

pub struct Publisher {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Mutex<Option<String>>,
    /// Number of requests.
    count: AtomicUsize,
    asked: Notify,
    /// Releases an answer that was held back.
    released: Notify,
}

impl Publisher {
    /// Starts a host without TLS that publishes these keys.
    pub async fn new(keys: &[&IssuerKey]) -> Self {
        Self::over(keys, |stream| async { Some(stream) }).await
    }

    /// Starts a host over streams that `wrap` makes from connections.
    pub async fn over<S, F>(
        keys: &[&IssuerKey],
        wrap: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            answer: Mutex::default(),
            count: AtomicUsize::new(0),
            asked: Notify::new(),
            released: Notify::new(),
        });
        let publisher = Self { port, shared: Arc::clone(&shared) };
        publisher.publish(keys);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Some(stream) = wrap(stream).await {
                    shared.serve(stream).await;
                }
            }
        });
        publisher
    }

    /// Publishes these keys for all further requests.
    pub fn publish(&self, keys: &[&IssuerKey]) {
        let body = key_set(keys.iter().copied());
        self.answer("200 OK", &body);
    }

    /// Sets the answer to all further requests.
    pub fn answer(&self, status: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        *self.shared.answer.lock().unwrap() = Some(text);
    }

    /// Holds back all answers until [`release`](Self::release).
    pub fn hold(&self) {
        *self.shared.answer.lock().unwrap() = None;
    }

    /// Sends the current answer to a request that was held back.
    pub fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    /// Waits for a request.
    pub async fn asked(&self) {
        self.shared.asked.notified().await;
    }

    pub fn source(&self) -> KeySource {
        self.source_within(Duration::from_secs(20))
    }

    pub fn source_within(&self, time: Duration) -> KeySource {
        let url = format!("http://127.0.0.1:{}/keys?of=bus", self.port);
        KeySource::url(&url, Vec::new(), time).unwrap()
    }
}

impl Shared {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        assert!(head.starts_with(b"GET /keys"), "{head:?}");
        self.count.fetch_add(1, Ordering::SeqCst);
        self.asked.notify_one();
        if self.answer.lock().unwrap().is_none() {
            self.released.notified().await;
        }
        let answer = self.answer.lock().unwrap().clone().unwrap_or_default();
        stream.write_all(answer.as_bytes()).await.ok();
    }
}
