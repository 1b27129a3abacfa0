//! Probes of a process that stands by for another broker (CLU-53): it is alive and not ready, and
//! serves nothing else. Clients and load balancers go on to the broker that is ready.

use std::io;
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Request, Response};
use actix_server::{Server, ServerHandle};
use actix_service::{Service as _, ServiceFactoryExt as _, apply_fn_factory, fn_service};
use actix_web::http::{StatusCode, header};
use peeklock_core::contract::TransportError;
use peeklock_listen::Admission;
use peeklock_tls::Stream;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::config::HttpConfig;

const NAME: &str = "standby";
/// Probes come one at a time; a few connections may be slow.
const CONNECTIONS_MAX: usize = 64;
/// Maximum time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A listener for probes, until the transports start.
pub struct StandbyProbes {
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl StandbyProbes {
    /// Listens at the address of the HTTP transport with its TLS settings.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn start(config: &HttpConfig) -> Result<Self, TransportError> {
        let address = config.address;
        let failed =
            |source| TransportError { transport: NAME, address: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let admission = Admission { proxies: config.proxies.clone(), tls: config.tls.clone() };
        let (started, start) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("peeklock-standby".to_owned())
            .spawn(move || {
                actix_rt::System::new().block_on(async move {
                    match server(admission, listener) {
                        Ok(server) => {
                            drop(started.send(Ok(server.handle())));
                            if let Err(error) = server.await {
                                tracing::error!(%error, "probes are not answered");
                            }
                        }
                        Err(error) => drop(started.send(Err(error))),
                    }
                });
            })
            .map_err(failed)?;
        let ended = || failed(io::Error::other("the listener's thread ended"));
        let handle = start.await.map_err(|_| ended())?.map_err(failed)?;
        tracing::info!(%address, "answering probes while standing by");
        Ok(Self { handle, thread: Some(thread) })
    }

    /// Stops listening, so that the transports can use the address.
    pub async fn stop(mut self) {
        self.handle.stop(false).await;
        let Some(thread) = self.thread.take() else { return };
        if !matches!(tokio::task::spawn_blocking(move || thread.join()).await, Ok(Ok(()))) {
            tracing::error!("the thread of the probes panicked");
        }
    }
}

impl Drop for StandbyProbes {
    fn drop(&mut self) {
        // The stop is requested at once; the future only waits for its end.
        drop(self.handle.stop(false));
    }
}

fn server(admission: Admission, listener: TcpListener) -> io::Result<Server> {
    let connections = move || {
        let admission = admission.clone();
        let streams = fn_service(move |stream: TcpStream| {
            let admission = admission.clone();
            async move { admission.admit(stream).await.map_err(DispatchError::Io) }
        });
        let http = HttpService::build()
            .keep_alive(KeepAlive::Disabled)
            .client_request_timeout(REQUEST_TIMEOUT)
            .client_disconnect_timeout(REQUEST_TIMEOUT)
            .h1(fn_service(async |request: Request| Ok::<_, DispatchError>(answer(&request))));
        let connections = apply_fn_factory(http, move |stream: Stream, http| {
            let peer = stream.peer();
            http.call((stream, peer))
        });
        streams.and_then(connections)
    };
    let server = Server::build()
        .workers(1)
        .max_concurrent_connections(CONNECTIONS_MAX)
        .shutdown_timeout(0)
        .disable_signals()
        .listen(NAME, listener, connections)?;
    Ok(server.run())
}

fn answer(request: &Request) -> Response<&'static str> {
    let (status, text) = match request.path() {
        "/livez" => (StatusCode::OK, "alive\n"),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "standing by: another broker serves this namespace; use that one, or retry in 10 s\n",
        ),
    };
    let mut response = Response::with_body(status, text);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    if status != StatusCode::OK {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("10"));
    }
    response
}
