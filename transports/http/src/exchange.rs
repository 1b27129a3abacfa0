//! A request without its body: its client, its deadline, its memory, and its version; also the
//! version and location of an answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse};
use peeklock_core::clients::ClientGuard;
use peeklock_core::command::{Command, Outcome, ReceiveMode, ReceivedMessage};
use peeklock_core::contract::browser::{HeaderRules, RefusedHeader};
use peeklock_core::contract::{Action, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Entity};

use crate::body;
use crate::deadline::Deadline;
use crate::delivery::Delivery;
use crate::error::Refusal;
use crate::room::{self, AnswerRoom};
use crate::site::Site;
use crate::socket::{AnswerResources, Connection};

/// A request without its body, and the state that its operation needs.
pub(crate) struct Exchange {
    pub(crate) site: Arc<Site>,
    pub(crate) request: HttpRequest,
    /// Access with the rights of the client.
    pub(crate) access: Access,
    /// End of the time that the request may wait for the broker.
    pub(crate) deadline: Deadline,
}

impl Exchange {
    /// Returns the query, still encoded.
    pub(crate) fn query(&self) -> &str {
        self.request.uri().query().unwrap_or_default()
    }

    /// Checks that an action is granted, before any other work for the request; returns the
    /// normalised path. `path` is empty for the namespace.
    pub(crate) async fn allow(&self, action: Action, path: &str) -> Result<String, Refusal> {
        Ok(self.access.allow(action, path).await?)
    }

    /// Returns the entity at a path if this action is granted on it (SEC-08).
    pub(crate) async fn entity(&self, purpose: Action, path: &str) -> Result<Entity, Refusal> {
        let entity = self.access.entity(path, purpose).await?;
        if let Some(client) = self.request.conn_data::<Rc<ClientGuard>>() {
            client.set_policy(entity.policy());
        }
        Ok(entity)
    }

    /// Returns the holder of the locks that this connection takes. Nothing detaches it, so the
    /// locks outlive the connection (SET-23).
    pub(crate) fn holder(&self) -> Option<ReceiverId> {
        Some(self.request.conn_data::<Rc<ClientGuard>>()?.receiver())
    }

    /// Sends a command to an entity and waits for the outcome. A waiting receive ends as if its
    /// wait were over when the listener stops or its slot is needed. At the end of the connection
    /// this future is dropped (RCV-14).
    pub(crate) async fn call(&self, entity: &Entity, command: Command) -> Result<Outcome, Refusal> {
        let permit = room::admit(entity, std::slice::from_ref(&command)).await?;
        let wait = match &command {
            Command::Receive { wait, .. } => *wait,
            _ => TimeSpan::ZERO,
        };
        let waits = wait > TimeSpan::ZERO;
        if waits {
            self.deadline.restart(wait.to_std());
        }
        let call = entity.call_admitted(permit, command);
        let connection = self.request.conn_data::<Rc<Connection>>().filter(|_| waits);
        let Some(connection) = connection else { return Ok(call.await?) };
        let waiting = connection.wait_for_message();
        let evicted = poll_fn(|context| waiting.poll_evicted(context));
        tokio::select! {
            biased;
            outcome = call => Ok(outcome?),
            _ = self.site.requests.stop_begun() => Ok(Outcome::Received(Vec::new())),
            () = evicted => Ok(Outcome::Received(Vec::new())),
        }
    }

    /// Reserves memory for an answer, before the operation runs. A large answer must already have
    /// its turn ([`Access::turn_at`]), which is kept until the answer has all its memory.
    pub(crate) async fn reserve_answer(&self) -> Result<AnswerRoom, Refusal> {
        AnswerRoom::take(&self.site).await
    }

    /// Reserves memory for an answer of at most `bytes`; none if it fits into the free bytes of
    /// each connection.
    pub(crate) async fn room_of(&self, bytes: usize) -> Result<Option<AnswerRoom>, Refusal> {
        AnswerRoom::of(&self.site, bytes as u64).await
    }

    /// Hands memory and received messages of an answer to the connection, which keeps them until
    /// the answer is written.
    pub(crate) fn hand_over(&self, room: AnswerRoom, bytes: usize, delivery: Option<Delivery>) {
        if let Some(connection) = self.request.conn_data::<Rc<Connection>>() {
            connection.hand_over(AnswerResources { delivery, room: Some(room.for_answer(bytes)) });
        }
    }

    /// Receives under lock, with memory for the answer. During the wait the memory is kept only if
    /// much is free; otherwise it is released before the wait.
    pub(crate) async fn receive(
        &self,
        entity: &Entity,
        room: &mut AnswerRoom,
        receive: ReceiveBounds,
    ) -> Result<Vec<ReceivedMessage>, Refusal> {
        let ReceiveBounds { count_max, bytes_max, wait } = receive;
        let mode = ReceiveMode::PeekLock;
        let holder = self.holder();
        let command = |wait| Command::Receive { mode, count_max, bytes_max, wait, holder };
        if wait > TimeSpan::ZERO && !room.is_spare() {
            let messages = received(self.call(entity, command(TimeSpan::ZERO)).await?)?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            room.leave();
        }
        received(self.call(entity, command(wait)).await?)
    }

    /// Returns the URL by which the client reached this listener, without a trailing slash.
    pub(crate) fn base_url(&self) -> String {
        match (&self.site.config.public_url, host(&self.request)) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some(host)) => format!("{}://{host}", self.site.scheme()),
            (None, None) => format!("{}://{}", self.site.scheme(), self.site.config.address),
        }
    }
}

/// Limits of a receive.
pub(crate) struct ReceiveBounds {
    pub(crate) count_max: u32,
    pub(crate) bytes_max: u64,
    pub(crate) wait: TimeSpan,
}

fn received(outcome: Outcome) -> Result<Vec<ReceivedMessage>, Refusal> {
    match outcome {
        Outcome::Received(messages) => Ok(messages),
        _ => Err(Refusal::unexpected()),
    }
}

/// Returns the version that the client has read; none if any version will do.
pub(crate) fn version(exchange: &Exchange) -> Result<Option<Timestamp>, Refusal> {
    let Some(header) = exchange.request.headers().get(header::IF_MATCH) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let instant = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match Timestamp::parse(instant) {
        Some(version) => Ok(Some(version)),
        None => {
            let detail = "If-Match must be * or the ETag of the entity, its quoted updatedAt";
            Err(Rejection::argument(detail).into())
        }
    }
}

/// Adds the version to an answer as ETag.
pub(crate) fn versioned(mut response: HttpResponse, updated_at: Timestamp) -> HttpResponse {
    if let Ok(etag) = header::HeaderValue::from_str(&format!("\"{updated_at}\"")) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Adds the location of the created resource to an answer.
pub(crate) fn located(mut response: HttpResponse, location: &str) -> HttpResponse {
    if let Ok(location) = header::HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Refuses a foreign `Host` while anonymous access is on, and a foreign `Origin` always.
pub(crate) fn check_origin(site: &Site, request: &HttpRequest) -> Result<(), Refusal> {
    let config = &site.config;
    let known = HeaderRules {
        transport: "http",
        hosts: &config.allowed_hosts,
        origins: &config.allowed_origins,
    };
    let origins = || request.headers().get_all(header::ORIGIN).map(|it| it.to_str().ok());
    known.check(&site.broker, host(request), origins()).map_err(|foreign| {
        let peer = request.conn_data::<Principal>().and_then(|principal| principal.peer);
        let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        site.strangers.refused(foreign, peer, named, origins());
        let status = match foreign {
            RefusedHeader::Host(_) | RefusedHeader::DevelopmentHost(_) => {
                StatusCode::MISDIRECTED_REQUEST
            }
            RefusedHeader::Origin(_) => StatusCode::FORBIDDEN,
        };
        let peer = request.conn_data::<Principal>().and_then(|principal| principal.peer);
        let reason = Rejection::unauthorized(foreign.to_string());
        Refusal::from(reason.with_cause("origin").with_peer(peer)).with_status(status).closing()
    })
}

/// Whether a page of this origin makes the request.
pub(crate) fn is_page(request: &HttpRequest) -> bool {
    request.headers().contains_key(PAGE_HEADER)
}

/// Header of every request with which a page of this origin writes to the JSON API. A form or link
/// cannot send it, and a script of another origin only with its permission.
const PAGE_HEADER: &str = "peeklock-page";
/// Header in which a browser reports the site of the page that makes a request.
const FETCH_SITE: &str = "sec-fetch-site";

/// Refuses a request of the JSON API that a page of another site has caused, and one that writes
/// without the marks of a page of this origin (CON-70). A request with an `Origin` has passed
/// [`check_origin`]. A program that is no browser sends neither `Origin` nor `Sec-Fetch-Site`, and
/// no page can mislead it.
pub(crate) fn check_page(request: &HttpRequest) -> Result<(), Refusal> {
    let headers = request.headers();
    let refuse = |detail: &str| {
        let peer = request.conn_data::<Principal>().and_then(|principal| principal.peer);
        let reason = Rejection::unauthorized(detail.to_owned());
        let refusal = Refusal::from(reason.with_cause("origin").with_peer(peer));
        Err(refusal.with_status(StatusCode::FORBIDDEN).closing())
    };
    let has_origin = headers.contains_key(header::ORIGIN);
    let is_foreign = |site: &header::HeaderValue| site != "same-origin" && site != "none";
    if !has_origin && headers.get_all(FETCH_SITE).any(is_foreign) {
        return refuse("a page of another site may not use this API");
    }
    let is_page = has_origin || headers.contains_key(FETCH_SITE);
    let is_marked = headers.contains_key(PAGE_HEADER) && body::is_json(request) == Some(true);
    if is_page && !request.method().is_safe() && !is_marked {
        return refuse(
            "a page must send the header Peeklock-Page and Content-Type: application/json with \
             this request",
        );
    }
    Ok(())
}

/// Returns the only host that the request names, in its target or in its header; none if they
/// differ.
fn host(request: &HttpRequest) -> Option<&str> {
    let mut headers = request.headers().get_all(header::HOST);
    let header = headers.next().and_then(|host| host.to_str().ok());
    if headers.next().is_some() {
        return None;
    }
    match request.uri().authority() {
        None => header,
        Some(target) => header.filter(|host| host.eq_ignore_ascii_case(target.as_str())),
    }
}

/// Returns the presented token; never logged (SEC-22).
pub(crate) fn token(request: &HttpRequest) -> Option<Box<str>> {
    let header = request.headers().get(header::AUTHORIZATION)?;
    Some(String::from_utf8_lossy(header.as_bytes()).into())
}
