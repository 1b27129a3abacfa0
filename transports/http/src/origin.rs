//! Who may talk to a listener that any web page can reach: `Host` and `Origin` (SEC-23).

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use peeklock_core::contract::Principal;
use peeklock_core::contract::browser::{Foreign, Known};
use peeklock_core::error::Rejection;

use crate::error::Refusal;
use crate::site::Site;

/// Refuses a foreign `Host` while anonymous access is on, and a foreign `Origin` always.
pub(crate) fn check(site: &Site, request: &HttpRequest) -> Result<(), Refusal> {
    let config = &site.config;
    let known =
        Known { transport: "http", hosts: &config.allowed_hosts, origins: &config.allowed_origins };
    let origins = || request.headers().get_all(header::ORIGIN).map(|it| it.to_str().ok());
    known.check(&site.broker, host(request), origins()).map_err(|foreign| {
        let peer = request.conn_data::<Principal>().and_then(|who| who.peer);
        let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        site.strangers.refused(foreign, peer, named, origins());
        let status = match foreign {
            Foreign::Host(_) | Foreign::DevelopmentHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Foreign::Origin(_) => StatusCode::FORBIDDEN,
        };
        let peer = request.conn_data::<Principal>().and_then(|principal| principal.peer);
        let reason = Rejection::unauthorized(foreign.to_string());
        Refusal::from(reason.because("origin").of_peer(peer)).with_status(status).closing()
    })
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
