//! Speaks HTTP/1.1 with one receiver.

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

/// A connection that was idle for longer is not used again: what stands between may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The body of an answer, which is read only to use the connection again.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time for it, once the status has decided all that matters.
const BODY_TIME: Duration = Duration::from_millis(500);

/// Why there is no answer; completes "the webhook ".
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke, or what came was not HTTP.
    #[error("did not answer: {0}")]
    Http(#[from] hyper::Error),
    /// The whole request took too long.
    #[error("did not answer within {0:?}")]
    Time(Duration),
}

/// What a receiver answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// One connection. Dropping it closes it.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    used_at: Instant,
}

impl Connection {
    /// HTTP over a stream.
    pub async fn over(stream: Box<dyn Stream>) -> Result<Self, SendError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // How it ended is told to whoever waits for an answer.
            connection.await.ok();
        });
        Ok(Self { sender, driver, used_at: Instant::now() })
    }

    /// Whether it may be used for another request. The receiver can have closed it all the same.
    pub fn is_fresh(&self) -> bool {
        !self.sender.is_closed() && self.used_at.elapsed() < IDLE_MAX
    }

    /// The answer to a request, and the connection if another request can follow.
    pub async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Answer, Option<Self>), SendError> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let is_read = matches!(timeout(BODY_TIME, read_away(body)).await, Ok(true));
        self.used_at = Instant::now();
        Ok((Answer { status: head.status, headers: head.headers }, is_read.then_some(self)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads a body of bounded size to its end; whether that was reached.
async fn read_away(mut body: Incoming) -> bool {
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
