//! An HTTP/1.1 connection to one receiver. `route.rs` sends one request at a time over it and
//! reuses it while it is fresh.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use peeklock_reach::{ConnectError, Stream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Maximum idle time of a reused connection: a proxy in between may have dropped it after that.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum size of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum size of the body of an answer, which is read only to reuse the connection.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time limit for the body; the verdict depends only on the status.
const BODY_TIME: Duration = Duration::from_millis(500);

/// Reason why a request has no answer; completes "the webhook ".
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The connection failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke, or the answer was not HTTP.
    #[error("did not answer: {0}")]
    Http(#[from] hyper::Error),
    /// The whole request exceeded this time limit.
    #[error("did not answer within {0:?}")]
    Time(Duration),
}

/// Status and headers of an answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// An open connection. Dropping it closes it.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    used_at: Instant,
}

impl Connection {
    /// Starts HTTP over a stream.
    pub async fn over(stream: Box<dyn Stream>) -> Result<Self, SendError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // The exchange that waits for an answer gets this error.
            connection.await.ok();
        });
        Ok(Self { sender, driver, used_at: Instant::now() })
    }

    /// Returns whether to use the connection for another request. The receiver may already have
    /// closed it.
    pub fn is_fresh(&self) -> bool {
        !self.sender.is_closed() && self.used_at.elapsed() < IDLE_MAX
    }

    /// Sends one request. Returns the answer, and the connection if it can carry another request.
    pub async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Answer, Option<Self>), SendError> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let is_read = matches!(timeout(BODY_TIME, drain(body)).await, Ok(true));
        self.used_at = Instant::now();
        Ok((Answer { status: head.status, headers: head.headers }, is_read.then_some(self)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads and discards a body of bounded size. Returns whether its end was reached.
async fn drain(mut body: Incoming) -> bool {
    let mut rest = BODY_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match rest.checked_sub(bytes) {
            Some(left) => rest = left,
            None => return false,
        }
    }
    true
}
