//! Serves one request from its line to its answer: the common checks, and the dispatch to its
//! operation. The framework calls `serve` for each request of a socket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive};
use actix_service::{ServiceFactory, map_config};
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::AppConfig;
use actix_web::http::{ConnectionType, Method, Version, header};
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse};
use peeklock_core::Access;
use peeklock_core::clients::ClientGuard;
use peeklock_core::condition::Surface;
use peeklock_core::contract::Principal;
use peeklock_listen::relayed::is_proxy_header;

use crate::atom::{self, AtomRoute};
use crate::deadline::Deadline;
use crate::error::{Answer, Circumstances, Form, Refusal};
use crate::exchange::{Exchange, check_origin, check_page, token};
use crate::route::{self, ApiRoute, Probe, Route};
use crate::site::Site;
use crate::socket::{Connection, Socket};
use crate::{api, console, data, probe};

/// Serves a request of the listener.
pub(crate) async fn serve(
    request: HttpRequest,
    mut payload: web::Payload,
    site: web::Data<Site>,
) -> HttpResponse {
    let site = site.into_inner();
    let _tracked = site.requests.track();
    let connection = request.conn_data::<Rc<Connection>>().map(Rc::clone);
    if let Some(refusal) = connection.as_ref().and_then(|connection| connection.take_refusal()) {
        let response = refusal.respond(&site, circumstances(None));
        return finish(response, connection, Some(payload));
    }
    let route = route::parse(request.uri().path(), request.uri().query().unwrap_or_default());
    let (route, token) = redeemed(&site, &request, route);
    let access = access(&site, &request, route.as_ref(), token);
    note_client(&site, &request);
    let deadline = Deadline::begin(site.config.operation_timeout);
    let exchange = Exchange { site, request, access, deadline };
    let mut response = exchange.answer(route.as_ref(), &mut payload).await;
    // Another connection needs its place, an operator closes it, or the listener is stopping.
    let is_evicted = connection.as_ref().is_some_and(|connection| connection.is_evicted());
    // The framework would keep the connection alive after an offer to upgrade, for instance to
    // HTTP/2, but closes it.
    let has_offered = exchange.request.head().connection_type() == ConnectionType::Upgrade;
    let client = exchange.request.conn_data::<Rc<ClientGuard>>();
    let is_closed = client.is_some_and(|client| client.is_closed());
    if is_evicted || has_offered || is_closed || exchange.site.requests.is_stopping() {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    let unread = may_be_unread(&exchange.request, &response).then_some(payload);
    finish(response, connection, unread)
}

fn finish(
    mut response: HttpResponse,
    connection: Option<Rc<Connection>>,
    unread: Option<web::Payload>,
) -> HttpResponse {
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response.map_body(|_, body| BoxBody::new(AnswerBody { body, connection, _unread: unread }))
}

/// Whether a part of the request's body may be unread: the request was refused, or its operation
/// has no body.
fn may_be_unread(request: &HttpRequest, response: &HttpResponse) -> bool {
    let headers = request.headers();
    let has_body = headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING);
    has_body && (!response.status().is_success() || request.method().is_safe())
}

/// The body of an answer. It notifies its connection when the framework has taken all bytes.
struct AnswerBody {
    body: BoxBody,
    connection: Option<Rc<Connection>>,
    /// The body of the request, if the answer is sent before it is read. While its reader exists,
    /// the framework closes the connection after the answer. Without it, the framework would read
    /// on until a chunked body ends, perhaps forever.
    _unread: Option<web::Payload>,
}

impl MessageBody for AnswerBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.body.as_pin_mut().poll_next(context)
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.answered();
        }
    }
}

impl Exchange {
    async fn answer(&self, route: Option<&Route>, payload: &mut web::Payload) -> HttpResponse {
        let site = &*self.site;
        let mut circumstances = circumstances(route);
        if let Some(Route::Atom(route)) = route {
            circumstances.operation = Some((self.request.method(), route));
        }
        let answer = async {
            check_origin(site, &self.request)?;
            let Some(route) = route else {
                return Err(Refusal::argument("the path is not percent-encoded UTF-8"));
            };
            if let Route::Api(_) = route {
                check_page(&self.request)?;
            }
            self.dispatch(route, payload).await
        };
        match self.deadline.keep(answer).await {
            Ok(response) => response,
            Err(refusal) => refusal.respond(site, circumstances),
        }
    }

    async fn dispatch(&self, route: &Route, payload: &mut web::Payload) -> Answer {
        let methods = methods(route).ok_or_else(Refusal::no_resource)?;
        let method = self.request.method();
        if method == Method::OPTIONS {
            return Ok(HttpResponse::NoContent().insert_header((header::ALLOW, methods)).finish());
        }
        // HEAD is handled as GET; the framework leaves out the body.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        if !methods.split(", ").any(|allowed| allowed == method.as_str()) {
            return Err(Refusal::method(methods));
        }
        match route {
            Route::Probe(probe) => probe::answer(self, *probe).await,
            Route::Messages { entity } => data::send(self, payload, entity).await,
            Route::Head { entity } => data::receive(self, payload, method, entity).await,
            Route::Lock { entity, reference, token } => {
                data::settle(self, payload, method, entity, reference, token).await
            }
            Route::Api(route) => api::dispatch(self, payload, method, route).await,
            Route::Atom(route) => atom::dispatch(self, payload, method, route).await,
            Route::Console { path } => console::answer(self, path),
            Route::Unknown => Err(Refusal::no_resource()),
        }
    }
}

/// Replaces the address of a download with the address of its content (CON-71). Returns the token
/// of the request, or of the request that made the address.
fn redeemed(
    site: &Site,
    request: &HttpRequest,
    route: Option<Route>,
) -> (Option<Route>, Option<Box<str>>) {
    if let Some(Route::Api(ApiRoute::Download { ticket })) = &route
        && request.method() == Method::GET
        && let Some(download) = site.downloads.take(ticket, site.broker.now())
    {
        return (route::parse(&download.path, ""), download.token);
    }
    (route, token(request))
}

/// Returns the access of the client of a request. For the JSON API, the Listen right is enough to
/// read descriptions and counts (SEC-05), a console token counts, and roles have their limits
/// (CON-73).
fn access(
    site: &Site,
    request: &HttpRequest,
    route: Option<&Route>,
    token: Option<Box<str>>,
) -> Access {
    let known = request.conn_data::<Principal>().cloned().unwrap_or_default();
    let principal = known.with_token_if_any(token);
    let principal = if is_forwarded(request) { principal.through_proxy() } else { principal };
    // Some clients sign the address of each request, which may differ from the address of its
    // entity (ADM-10).
    let principal = match route {
        Some(Route::Atom(route)) => {
            principal.with_request_address(route.address(), route.resource())
        }
        Some(Route::Messages { entity }) => {
            principal.with_request_address(format!("{entity}/messages"), entity.as_str())
        }
        Some(Route::Head { entity }) => {
            principal.with_request_address(format!("{entity}/messages/head"), entity.as_str())
        }
        Some(Route::Lock { entity, reference, token }) => {
            let address = format!("{entity}/messages/{reference}/{token}");
            principal.with_request_address(address, entity.as_str())
        }
        Some(_) | None => principal,
    };
    let ceiling = site.config.ceiling(&principal);
    let access = site.broker.access(principal);
    match route {
        Some(Route::Api(_)) => {
            let access = access.with_listen_reads().with_ceiling(ceiling).with_console_token();
            if site.config.needs_unlock { access.with_locked_tokens() } else { access }
        }
        // The console shows the health of the broker too.
        Some(Route::Probe(_)) => access.with_console_token(),
        Some(_) | None => access,
    }
}

/// Notes the client of a request in the list of clients (CON-24).
fn note_client(site: &Site, request: &HttpRequest) {
    let Some(client) = request.conn_data::<Rc<ClientGuard>>() else { return };
    let agent = request.headers().get(header::USER_AGENT);
    client.set_name(agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default());
    let peer = request.conn_data::<Principal>().and_then(|principal| principal.peer);
    client.set_address(peer, is_forwarded(request));
    client.note_activity(site.broker.now());
}

/// Whether a proxy has forwarded the request (SEC-17). HTTP/1.0 counts as forwarded, since some
/// proxies use it without adding headers.
fn is_forwarded(request: &HttpRequest) -> bool {
    let is_old = request.version() < Version::HTTP_11;
    is_old || request.headers().keys().any(|name| is_proxy_header(name.as_str()))
}

/// Returns the methods of a resource, as the `Allow` header lists them.
fn methods(route: &Route) -> Option<&'static str> {
    Some(match route {
        Route::Probe(Probe::Live | Probe::Ready | Probe::Health | Probe::Metrics)
        | Route::Console { .. } => "GET, HEAD, OPTIONS",
        Route::Messages { .. } => "POST, OPTIONS",
        Route::Head { .. } => "POST, DELETE, OPTIONS",
        Route::Lock { .. } => "DELETE, PUT, POST, OPTIONS",
        Route::Atom(route) => route.methods(),
        Route::Api(route) => api::methods(route)?,
        Route::Unknown => return None,
    })
}

/// Returns the properties of a route on which the form of a refusal depends.
fn circumstances(route: Option<&Route>) -> Circumstances<'_> {
    let form = match route {
        Some(Route::Atom(_)) => Form::Atom,
        Some(_) | None => Form::Problem,
    };
    let (surface, token_in_path, entity) = match route {
        Some(Route::Messages { entity } | Route::Head { entity }) => {
            (Surface::Messages, false, entity.as_str())
        }
        Some(Route::Lock { entity, .. }) => (Surface::Messages, true, entity.as_str()),
        Some(Route::Api(ApiRoute::Messages { queue } | ApiRoute::Message { queue, .. })) => {
            (Surface::Messages, false, queue.as_str())
        }
        Some(Route::Api(
            ApiRoute::MessageHead { path, .. }
            | ApiRoute::MessageBody { path, .. }
            | ApiRoute::Journey { path, .. },
        )) => (Surface::Messages, false, path.as_str()),
        Some(Route::Api(ApiRoute::Lock { queue, .. })) => (Surface::Messages, true, queue.as_str()),
        Some(Route::Api(
            ApiRoute::Queue { queue: path }
            | ApiRoute::Topic { topic: path }
            | ApiRoute::Subscriptions { topic: path }
            | ApiRoute::Subscription { topic: path, .. }
            | ApiRoute::Rules { path }
            | ApiRoute::Rule { path, .. }
            | ApiRoute::Explain { path }
            | ApiRoute::ExplainTopic { path }
            | ApiRoute::WhatIf { path }
            | ApiRoute::Samples { path }
            | ApiRoute::Sessions { path }
            | ApiRoute::SessionDetails { path }
            | ApiRoute::SessionState { path, .. }
            | ApiRoute::Heads { path }
            | ApiRoute::Locks { path }
            | ApiRoute::Act { path }
            | ApiRoute::CreateJob { path }
            | ApiRoute::Receipt { path, .. }
            | ApiRoute::LockBreak { path }
            | ApiRoute::SessionBreak { path, .. }
            | ApiRoute::Timeline { path }
            | ApiRoute::Series { path }
            | ApiRoute::Policies { owner: path }
            | ApiRoute::Policy { owner: path, .. }
            | ApiRoute::PolicyKeys { owner: path, .. }
            | ApiRoute::RegenerateKey { owner: path, .. },
        )) => (Surface::Management, false, path.as_str()),
        Some(Route::Atom(
            AtomRoute::Entity { path } | AtomRoute::Subscriptions { topic: path },
        )) => (Surface::Management, false, path.as_str()),
        Some(
            Route::Probe(_)
            | Route::Console { .. }
            | Route::Atom(_)
            | Route::Unknown
            | Route::Api(
                ApiRoute::Declaration
                | ApiRoute::DeclarationText
                | ApiRoute::DeclarationExport
                | ApiRoute::Document
                | ApiRoute::Namespace
                | ApiRoute::Queues
                | ApiRoute::Topics
                | ApiRoute::Entities
                | ApiRoute::Clients
                | ApiRoute::Client { .. }
                | ApiRoute::Audit
                | ApiRoute::AuditExport
                | ApiRoute::Journeys
                | ApiRoute::Topology
                | ApiRoute::Checks
                | ApiRoute::Mute
                | ApiRoute::Unmute
                | ApiRoute::Jobs
                | ApiRoute::Job { .. }
                | ApiRoute::JobSamples { .. }
                | ApiRoute::JobFailures { .. }
                | ApiRoute::JobExport { .. }
                | ApiRoute::ControlJob { .. }
                | ApiRoute::Watch
                | ApiRoute::Search
                | ApiRoute::SignIn
                | ApiRoute::Unlock
                | ApiRoute::Downloads
                | ApiRoute::Download { .. },
            ),
        )
        | None => (Surface::Management, false, ""),
    };
    Circumstances { surface, token_in_path, entity, form, operation: None }
}

/// Maximum duration of closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes the service that serves the requests of a socket.
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
        // The socket enforces the timeouts of heads and of idle connections.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(CLOSE_TIMEOUT)
        // A client that closes its sending side counts as gone: its request is dropped, including a
        // waiting receive (HTP-11).
        .h1_allow_half_closed(false)
        .on_connect_ext(|socket: &Socket, data| {
            data.insert(socket.connection());
            data.insert(socket.client());
            data.insert(socket.principal());
        })
        .h1(map_config(app, |()| AppConfig::default()))
}
