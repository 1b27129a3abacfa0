//! Probes of a process that stands by for another broker (CLU-53): it is alive and not ready, and
//! serves nothing else. Clients and load balancers go on to the broker that is ready.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_http::body::BoxBody;
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
use crate::error::RETRY_AFTER_SECONDS;

const NAME: &str = "standby";
/// Probes come one at a time; a few connections may be slow.
const CONNECTIONS_MAX: usize = 64;
/// Maximum time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// State of a process that stands by.
pub struct StandbyReport {
    /// Reason for which it is not ready, without a line end.
    pub reason: String,
    /// The metrics page. It must not name entities, because no token is required.
    pub metrics: String,
}

/// Returns the state of the process for each probe.
pub type StandbyHook = Arc<dyn Fn() -> StandbyReport + Send + Sync>;

/// A listener for probes, until the transports start.
pub struct StandbyProbes {
    address: SocketAddr,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl StandbyProbes {
    /// Listens at the address of the HTTP transport with its TLS settings.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn start(config: &HttpConfig, report: StandbyHook) -> Result<Self, TransportError> {
        let wanted = config.address;
        let failed =
            |source| TransportError { transport: "http", address: wanted.to_string(), source };
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let admission = Admission { proxies: config.proxies.clone(), tls: config.tls.clone() };
        let (started, start) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("peeklock-standby".to_owned())
            .spawn(move || {
                actix_rt::System::new().block_on(async move {
                    match server(admission, listener, report) {
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
        Ok(Self { address, handle, thread: Some(thread) })
    }

    /// Address of the listener.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
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

fn server(admission: Admission, listener: TcpListener, report: StandbyHook) -> io::Result<Server> {
    let connections = move || {
        let (admission, report) = (admission.clone(), Arc::clone(&report));
        let streams = fn_service(move |stream: TcpStream| {
            let admission = admission.clone();
            async move { admission.admit(stream).await.map_err(DispatchError::Io) }
        });
        let http = HttpService::build()
            .keep_alive(KeepAlive::Disabled)
            .client_request_timeout(REQUEST_TIMEOUT)
            .client_disconnect_timeout(REQUEST_TIMEOUT)
            .h1(fn_service(move |request: Request| {
                let answer = answer(request.path(), &report);
                async move { Ok::<_, Infallible>(answer) }
            }));
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

/// Answers a request. Every other path than a probe gets the refusal of `/readyz`.
fn answer(path: &str, report: &StandbyHook) -> Response<BoxBody> {
    let StandbyReport { reason, metrics } = report();
    let (status, content_type, body) = match path {
        "/livez" => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        "/health" => (StatusCode::OK, "application/json", r#"{"status":"standby"}"#.to_owned()),
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", metrics),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{reason}\n")),
    };
    let mut response = Response::build(status);
    response
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CACHE_CONTROL, "no-store"));
    if status != StatusCode::OK {
        response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
    }
    response.body(body).map_into_boxed_body()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-53: a standby is alive and not ready. Requests of clients are refused like a probe for
    /// readiness, with a time to retry.
    #[test]
    fn standby_answers_probes_and_refuses_clients() {
        let report: StandbyHook =
            Arc::new(|| StandbyReport { reason: "standing by".to_owned(), metrics: String::new() });
        let of = |path: &str| {
            let response = answer(path, &report);
            let retry = response.headers().contains_key(header::RETRY_AFTER);
            (response.status().as_u16(), retry)
        };
        for path in ["/livez", "/health", "/metrics"] {
            assert_eq!(of(path), (200, false), "{path}");
        }
        for path in ["/readyz", "/orders/messages", "/", "/$api/v1/queues"] {
            assert_eq!(of(path), (503, true), "{path}");
        }
    }
}
