//! Over HTTP: messages on the Service Bus REST plane, queues on the JSON API. A window is as many
//! connections, each kept alive: HTTP/1.1 answers one request at a time.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use peeklock::tls::ClientTls;
use serde_json::json;
use tokio::sync::Mutex;

use crate::BenchError;
use crate::latency::Latencies;
use crate::messages::Run;
use peeklock::tls::place::{self, Place};

/// How long a receive waits for a message, in seconds.
const WAIT_SECONDS: u32 = 30;
/// Maximum number of bytes that are read ahead.
const READ_BYTES_MAX: usize = 256 << 10;

/// A client; its own connection is for management.
#[derive(Clone)]
pub struct Http {
    broker: Arc<Broker>,
    management: Arc<Mutex<Option<Connection>>>,
}

/// The address of the broker and the way to connect.
struct Broker {
    place: Place,
    tls: ClientTls,
}

impl Http {
    /// A client of `http://HOST:PORT`, or `https://` with TLS.
    pub fn new(url: &str, tls: &ClientTls) -> Result<Self, BenchError> {
        let place = Place::parse(url, place::HTTP).ok_or_else(|| {
            BenchError::Http(format!("`{url}` must have the form http://HOST:PORT"))
        })?;
        let broker = Arc::new(Broker { place, tls: tls.clone() });
        Ok(Self { broker, management: Arc::default() })
    }

    pub(super) async fn create_queue(&self, path: &str, megabytes: u64) -> Result<(), BenchError> {
        let body = json!({ "maxSizeInMegabytes": megabytes }).to_string();
        self.manage(Method::PUT, path, body).await.map(drop)
    }

    pub(super) async fn delete_queue(&self, path: &str) -> Result<(), BenchError> {
        self.manage(Method::DELETE, path, String::new()).await.map(drop)
    }

    pub(super) async fn messages_in(&self, path: &str) -> Result<u64, BenchError> {
        let answer = self.manage(Method::GET, path, String::new()).await?;
        let queue: serde_json::Value = serde_json::from_slice(&answer.body)
            .map_err(|error| BenchError::Http(format!("answer is not JSON: {error}")))?;
        let count = queue.pointer("/runtime/totalMessageCount").and_then(serde_json::Value::as_u64);
        count.ok_or_else(|| BenchError::Http("answer has no totalMessageCount".to_owned()))
    }

    async fn manage(&self, method: Method, path: &str, body: String) -> Result<Answer, BenchError> {
        let target = format!("/$api/v1/queues/{}", path.replace('/', "%2F"));
        let mut connection = self.management.lock().await;
        if connection.is_none() {
            *connection = Some(Connection::open(&self.broker).await?);
        }
        let Some(open) = connection.as_mut() else { return Err(gone()) };
        let answer = open.ask(method, &target, Some("application/json"), body.into()).await;
        if answer.is_err() {
            *connection = None;
        }
        answer
    }

    pub(super) async fn send(&self, run: &Run, took: &Latencies) -> Result<(), BenchError> {
        let target = &format!("/{}/messages", run.queue);
        let lanes = (0..run.window).map(|_| async move {
            let mut connection = Connection::open(&self.broker).await?;
            while run.take() {
                let started = Instant::now();
                connection.ask(Method::POST, target, None, run.body(started)).await?;
                took.record(started.elapsed());
                run.sent().await;
            }
            Ok::<(), BenchError>(())
        });
        try_join_all(lanes).await.map(drop)
    }

    pub(super) async fn receive(
        &self,
        path: &str,
        run: &Run,
        took: &Latencies,
    ) -> Result<(), BenchError> {
        let head = &format!("/{path}/messages/head?timeout={WAIT_SECONDS}");
        let lanes = (0..run.window).map(|_| async move {
            let mut connection = Connection::open(&self.broker).await?;
            loop {
                let answer = tokio::select! {
                    biased;
                    () = run.all_received() => break,
                    answer = connection.ask(Method::POST, head, None, Bytes::new()) => answer?,
                };
                let Some(lock) = answer.location else { continue };
                run.received(&answer.body, answer.delivery_count, took);
                connection.ask(Method::DELETE, &lock, None, Bytes::new()).await?;
                run.completed(1);
            }
            Ok::<(), BenchError>(())
        });
        try_join_all(lanes).await.map(drop)
    }
}

/// An answer of the broker.
struct Answer {
    /// The path of the lock.
    location: Option<String>,
    delivery_count: u32,
    body: Bytes,
}

/// One connection with one request under way.
struct Connection {
    host: String,
    requests: SendRequest<Full<Bytes>>,
}

impl Connection {
    async fn open(broker: &Broker) -> Result<Self, BenchError> {
        let stream = broker.place.connect(&broker.tls).await.map_err(failed)?;
        let (requests, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        tokio::spawn(async move {
            // Its requests fail too, and report it.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(Self { host: broker.place.to_string(), requests })
    }

    /// Sends a request and reads the whole answer; any status but success is an error.
    async fn ask(
        &mut self,
        method: Method,
        target: &str,
        content_type: Option<&str>,
        body: Bytes,
    ) -> Result<Answer, BenchError> {
        let mut request =
            Request::builder().method(&method).uri(target).header(header::HOST, &self.host);
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body)).map_err(failed)?;
        self.requests.ready().await.map_err(failed)?;
        let response = self.requests.send_request(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(failed)?.to_bytes();
        if !head.status.is_success() {
            let detail = String::from_utf8_lossy(&body).into_owned();
            return Err(BenchError::Http(format!("{method} {target}: {} {detail}", head.status)));
        }
        let text = |name| {
            head.headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok())
        };
        let is_locked = head.status == StatusCode::CREATED;
        let location = text(header::LOCATION).filter(|_| is_locked).and_then(path_of);
        let properties = text(header::HeaderName::from_static("brokerproperties"));
        Ok(Answer {
            location,
            delivery_count: delivery_count(properties.unwrap_or_default()),
            body,
        })
    }
}

/// The path of an address; host and port are known from the connection.
fn path_of(address: &str) -> Option<String> {
    let (_, rest) = address.split_once("://")?;
    rest.find('/').map(|begin| rest[begin..].to_owned())
}

/// The delivery count among BrokerProperties, without reading the others.
fn delivery_count(properties: &str) -> u32 {
    let rest = properties.split_once("\"DeliveryCount\":").map_or("", |(_, rest)| rest);
    let digits = rest.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Http(format!("connection failed: {error}"))
}

fn gone() -> BenchError {
    failed("the connection is closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_lock_and_its_delivery_count_are_read() {
        let path = path_of("http://127.0.0.1:5300/q/messages/1/token");
        assert_eq!(path.as_deref(), Some("/q/messages/1/token"));
        assert_eq!(path_of("/relative"), None);
        assert_eq!(delivery_count(r#"{"DeliveryCount":12,"X":1}"#), 12);
        assert_eq!(delivery_count("{}"), 0);
    }
}
