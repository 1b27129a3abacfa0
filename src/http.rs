//! HTTP/1.1 connection to a broker, for commands and benchmarks.

use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes that are read ahead of the consumer.
const READ_BYTES_MAX: usize = 256 << 10;

/// Sends requests over a stream, one after the other. A task reads and writes the stream; it ends
/// when the returned sender is dropped.
pub async fn open<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> hyper::Result<SendRequest<B>>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let (requests, connection) =
        http1::Builder::new().max_buf_size(READ_BYTES_MAX).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Requests report their own errors.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(requests)
}
