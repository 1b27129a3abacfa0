//! The HTTP client that sends requests to the collector. The SDK's exporters call it. Each request
//! has a time limit, and each answer a size limit.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use peeklock_reach::ConnectError;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::collector::Collector;
use crate::config::{Endpoint, Headers};

/// Time for a request, from connecting to the end of its answer.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Maximum size of the head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum size of the body of an answer. A collector uses it only to explain a rejection.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Reason why a request has no answer; completes "the collector ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("did not answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("did not answer within {0:?}")]
    Time(Duration),
    #[error("sent an answer of more than {BODY_BYTES_MAX} bytes, or an incomplete one")]
    Body,
}

/// Client for one signal, over one connection that is kept open. The SDK calls it from its own
/// thread and blocks that thread until the answer. Therefore the client has its own runtime, which
/// runs only during a call.
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: Headers,
    collector: Arc<Collector>,
    state: Mutex<ClientState>,
}

struct ClientState {
    /// None only during drop.
    runtime: Option<Runtime>,
    connection: Option<Connection>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Client {
    pub(crate) fn new(
        endpoint: Endpoint,
        headers: Headers,
        collector: Arc<Collector>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let state = Mutex::new(ClientState { runtime: Some(runtime), connection: None });
        Ok(Self { endpoint, headers, collector, state })
    }

    /// Returns the request in wire form: only the path as its target, the `Host` header and the
    /// operator's headers.
    fn to_wire(&self, request: Request<Bytes>) -> Request<Full<Bytes>> {
        let mut request = request.map(Full::new);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let path = Uri::try_from(path).unwrap_or_default();
        *request.uri_mut() = path;
        request.headers_mut().insert(HOST, self.endpoint.authority.clone());
        for (name, value) in &self.headers.0 {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }

    /// Sends over the kept connection, or over a new one if that fails: the collector may close an
    /// idle connection at any time.
    async fn send(
        &self,
        kept: &mut Option<Connection>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, SendError> {
        if let Some(connection) = kept.take()
            && let Ok((answer, connection)) = connection.exchange(request.clone()).await
        {
            *kept = connection;
            return Ok(answer);
        }
        let Endpoint { reach, place, .. } = &self.endpoint;
        let stream = reach.connect(place, REQUEST_TIME).await?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // The exchange that waits for an answer gets this error.
            connection.await.ok();
        });
        let (answer, connection) = Connection { sender, driver }.exchange(request).await?;
        *kept = connection;
        Ok(answer)
    }
}

impl Connection {
    /// Sends one request. Returns the answer, and the connection if it can carry another request.
    async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Bytes>, Option<Self>), SendError> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|_| SendError::Body)?.to_bytes();
        let is_open = !self.sender.is_closed();
        Ok((Response::from_parts(head, body), is_open.then_some(self)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Does not wait for a name lookup that is still in progress.
impl Drop for ClientState {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = self.to_wire(request);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ClientState { runtime, connection } = &mut *state;
        let Some(runtime) = runtime else { return Err("the client has ended".into()) };
        let answer = runtime.block_on(async {
            let sending = timeout(REQUEST_TIME, self.send(connection, request));
            sending.await.unwrap_or(Err(SendError::Time(REQUEST_TIME)))
        });
        match &answer {
            Ok(answer) if answer.status().is_success() => self.collector.record_accepted(),
            Ok(answer) => {
                self.collector.record_rejected(&format_args!("it answers {}", answer.status()))
            }
            Err(error) => self.collector.record_rejected(&format_args!("the collector {error}")),
        }
        Ok(answer?)
    }
}

/// Shows only the endpoint: headers may contain secrets.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
