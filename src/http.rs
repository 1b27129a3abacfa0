//! One connection to a broker over HTTP/1.1, for commands that ask it and for loads.

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// How much is read ahead of whoever takes it.
const READ_BYTES_MAX: usize = 256 << 10;

/// What requests are sent with over this stream, one after the other. What reads and writes is a task, which ends with it.
pub async fn open<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> hyper::Result<SendRequest<B>>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let (requests, connection) =
        http1::Builder::new().max_buf_size(READ_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // What is wrong the requests are told.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(requests)
}
