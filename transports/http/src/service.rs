//! The framework's part of a connection, from a socket to the handler of all requests. Made once in each thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{ServiceFactory, map_config};
use actix_web::dev::AppConfig;
use actix_web::{App, web};

use crate::serve::serve;
use crate::site::Site;
use crate::socket::Socket;

/// How long a connection that is being closed may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the requests of a socket.
pub(crate) fn http(
    site: &Arc<Site>,
) -> impl ServiceFactory<
    (Socket, Option<SocketAddr>),
    Config = (),
    Response = (),
    Error = DispatchError,
    InitError = (),
> + use<> {
    let data = web::Data::from(Arc::clone(site));
    let app = App::new().app_data(data).default_service(web::to(serve));
    HttpService::build()
        // The socket keeps the time of heads and of idle connections.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(CLOSE_TIMEOUT)
        // A client that has closed its side is gone: its request is dropped, and with it a receive that
        // waits (HTP-11).
        .h1_allow_half_closed(false)
        .on_connect_ext(|socket: &Socket, data| {
            data.insert(socket.connection());
            data.insert(socket.principal());
        })
        .h1(map_config(app, |()| AppConfig::default()))
}
