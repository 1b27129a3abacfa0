//! Who may talk to a listener that any web page can reach: `Host` and `Origin` (SEC-23).

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use peeklock_core::contract::browser::{is_known_host, is_known_origin};
use peeklock_core::error::Rejection;

use crate::error::Refusal;
use crate::site::Site;

/// Refuses a foreign `Host` while anonymous access is on, and a foreign `Origin` always.
pub(crate) fn check(site: &Site, request: &HttpRequest) -> Result<(), Refusal> {
    let host = host(request);
    if site.broker.allows_anonymous()
        && !host.is_some_and(|host| is_known_host(host, &site.config.allowed_hosts))
    {
        let detail = "the Host of the request is not an IP address, `localhost` or one of the \
                      setting `http.allowed_hosts`";
        return Err(Refusal::from(Rejection::unauthorized(detail))
            .with_status(StatusCode::MISDIRECTED_REQUEST)
            .closing());
    }
    let mut origins = request.headers().get_all(header::ORIGIN);
    if origins.all(|origin| {
        origin
            .to_str()
            .is_ok_and(|origin| is_known_origin(origin, host, &site.config.allowed_origins))
    }) {
        return Ok(());
    }
    let detail = "the Origin of the request is neither this listener nor one of the setting \
                  `http.allowed_origins`";
    Err(Refusal::from(Rejection::unauthorized(detail)).with_status(StatusCode::FORBIDDEN).closing())
}

/// The one host that the request names, in its target or in its header; none if they differ.
pub(crate) fn host(request: &HttpRequest) -> Option<&str> {
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
