//! Console tokens and downloads (CON-71): `/sign-in` exchanges credentials for a console token, and
//! `/downloads` gives the address of a body or file, which a browser can follow without a token.

use actix_web::http::{Method, StatusCode};
use actix_web::web;
use peeklock_core::Standing;
use peeklock_core::contract::{Action, Ceiling};
use peeklock_core::error::Rejection;
use peeklock_json::Instant;
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::{job, json, no_content};
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::{Exchange, token};
use crate::route::{self, ApiRoute, Route, parameter};

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(standing, sign_in, sign_out, unlock, lock, create_download, download))]
pub(super) struct Operations;

/// Methods of `/sign-in`.
pub(super) const METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";

/// Maximum length of the path of a download in bytes.
const PATH_BYTES_MAX: usize = 8 << 10;

/// A role: `viewer` reads, `operator` also sends, receives and settles, `admin` may do everything
/// that the rights allow.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Role {
    Viewer,
    Operator,
    Admin,
}

impl From<Ceiling> for Role {
    fn from(ceiling: Ceiling) -> Self {
        match ceiling {
            Ceiling::Viewer => Self::Viewer,
            Ceiling::Operator => Self::Operator,
            Ceiling::Admin => Self::Admin,
        }
    }
}

impl From<Role> for Ceiling {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
        }
    }
}

/// Role of a client.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StandingView {
    /// Highest role that the rights allow; absent without the right to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    /// Policy of the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Whether the client presents a console token.
    is_signed_in: bool,
    /// Latest end of the console token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    ends_at_utc: Option<Instant>,
    /// Whether the console token of an admin is locked, so that its role is viewer.
    is_locked: bool,
    /// End of the time for which the console token is unlocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    unlocked_until_utc: Option<Instant>,
    /// Clock of the broker.
    #[schema(value_type = String, format = DateTime)]
    now_utc: Instant,
}

impl StandingView {
    fn new(standing: Standing, exchange: &Exchange) -> Self {
        Self {
            role: standing.role.map(Role::from),
            policy: standing.policy.as_deref().map(str::to_owned),
            is_signed_in: standing.ends_at.is_some(),
            ends_at_utc: standing.ends_at.map(Instant),
            is_locked: standing.is_locked,
            unlocked_until_utc: standing.unlocked_until.map(Instant),
            now_utc: Instant(exchange.site.broker.now()),
        }
    }
}

/// Sign-in with the credentials in the `Authorization` header.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SignInForm {
    /// Highest role of the console token. By default the highest that the rights allow.
    role: Option<Role>,
    /// Entity of the policy. By default the namespace.
    path: Option<String>,
}

/// A console token.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsoleTokenView {
    /// Value for the `Authorization` header.
    token: String,
    role: Role,
    /// Policy of the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Latest end of the token. It ends earlier after 30 minutes without a request.
    #[schema(value_type = String, format = DateTime)]
    ends_at_utc: Instant,
    /// Clock of the broker.
    #[schema(value_type = String, format = DateTime)]
    now_utc: Instant,
}

/// Content to download.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DownloadForm {
    /// Path of a body, a session state or the export of a job in this API, such as
    /// `queues/orders/messages/17/body`.
    path: String,
}

/// Address of a download.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DownloadView {
    /// Path in this API. It is for one `GET` within 60 s, without credentials.
    path: String,
}

/// Dispatches by method to the operation on the sign-in of the client.
pub(super) async fn one(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
) -> Answer {
    match method.as_str() {
        "POST" => sign_in(exchange, payload).await,
        "DELETE" => sign_out(exchange, payload).await,
        _ => standing(exchange).await,
    }
}

/// Read the role that your requests have.
///
/// With `path` it is the role at an entity, otherwise in the namespace.
#[utoipa::path(get, operation_id = "get_sign_in", path = "/sign-in", tag = "console",
    params(("path" = Option<String>, Query, description = "path of an entity")),
    responses((status = 200, body = StandingView), (status = "default", body = Problem)))]
pub(super) async fn standing(exchange: &Exchange) -> Answer {
    let path = parameter(exchange.query(), "path").unwrap_or_default();
    let standing = exchange.access.standing(&path).await?;
    Ok(json(StatusCode::OK, &StandingView::new(standing, exchange)))
}

/// Exchange credentials for a console token.
///
/// Present a signed token in the `Authorization` header. The answer is a token with a role, for the
/// header of later requests. It lasts 8 hours at most, never longer than the credentials, and ends
/// after 30 minutes without a request, with the key that signed the credentials, and by sign-out.
/// Only over TLS, from loopback, or if `http.public_url` begins with `https`.
#[utoipa::path(post, operation_id = "sign_in", path = "/sign-in", tag = "console",
    request_body = SignInForm,
    responses((status = 201, body = ConsoleTokenView), (status = "default", body = Problem)))]
pub(super) async fn sign_in(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    if !is_confidential(exchange) {
        let detail = "sign-in needs TLS, a client on loopback, or an http.public_url that begins \
            with https";
        return Err(Refusal::from(Rejection::invalid_operation(detail)).closing());
    }
    exchange.access.allow_sign_in().await?;
    let (form, _room): (SignInForm, _) = body::read_json(exchange, payload).await?;
    let path = form.path.unwrap_or_default();
    let signed_in = exchange.access.sign_in(&path, form.role.map(Ceiling::from)).await?;
    let view = ConsoleTokenView {
        token: signed_in.token.into(),
        role: signed_in.role.into(),
        policy: signed_in.policy.as_deref().map(str::to_owned),
        ends_at_utc: Instant(signed_in.ends_at),
        now_utc: Instant(exchange.site.broker.now()),
    };
    Ok(json(StatusCode::CREATED, &view))
}

/// Whether nobody on the way can read the token.
fn is_confidential(exchange: &Exchange) -> bool {
    let config = &exchange.site.config;
    let is_public_tls = config.public_url.as_ref().is_some_and(|url| {
        url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    });
    let is_local = || exchange.access.principal().is_none_or(|principal| principal.is_local());
    config.tls.is_some() || is_public_tls || is_local()
}

/// End your console token.
#[utoipa::path(delete, operation_id = "sign_out", path = "/sign-in", tag = "console",
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn sign_out(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    body::discard(exchange, payload).await?;
    exchange.access.sign_out().await?;
    Ok(no_content())
}

/// Dispatches by method to unlocking or locking.
pub(super) async fn unlock_or_lock(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
) -> Answer {
    match method {
        &Method::DELETE => lock(exchange, payload).await,
        _ => unlock(exchange, payload).await,
    }
}

/// Work as admin for the next 15 minutes.
///
/// With `console.unlock`, the console token of an admin has the role viewer until it is unlocked.
/// Unlocking again restarts the time.
#[utoipa::path(post, operation_id = "unlock", path = "/sign-in/unlock", tag = "console",
    responses((status = 200, body = StandingView), (status = "default", body = Problem)))]
pub(super) async fn unlock(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    body::discard(exchange, payload).await?;
    let standing = exchange.access.unlock().await?;
    Ok(json(StatusCode::OK, &StandingView::new(standing, exchange)))
}

/// Work as viewer again before the 15 minutes are over.
#[utoipa::path(delete, operation_id = "lock", path = "/sign-in/unlock", tag = "console",
    responses((status = 204), (status = "default", body = Problem)))]
pub(super) async fn lock(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    body::discard(exchange, payload).await?;
    exchange.access.lock().await?;
    Ok(no_content())
}

/// Make an address from which a browser downloads a body, a session state or an export.
///
/// The address has the rights of this request.
#[utoipa::path(post, operation_id = "create_download", path = "/downloads", tag = "console",
    request_body = DownloadForm,
    responses((status = 201, body = DownloadView), (status = "default", body = Problem)))]
pub(super) async fn create_download(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    exchange.access.require_valid_credentials().await?;
    let (form, _room): (DownloadForm, _) = body::read_json(exchange, payload).await?;
    let address = format!("/$api/v1/{}", form.path);
    let parsed = (form.path.len() <= PATH_BYTES_MAX).then(|| route::parse(&address, "")).flatten();
    match parsed {
        Some(Route::Api(
            ApiRoute::MessageBody { path, .. } | ApiRoute::SessionState { path, .. },
        )) => drop(exchange.allow(Action::Inspect, &path).await?),
        Some(Route::Api(ApiRoute::JobExport { job })) => {
            exchange.access.allow_job(Action::Inspect, job::parse(&job)?).await?;
        }
        _ => {
            let detail = "path must name a body, a session state or the export of a job, such as \
                queues/orders/messages/17/body";
            return Err(Refusal::argument(detail));
        }
    }
    let (site, token) = (&exchange.site, token(&exchange.request));
    let ticket = site.downloads.add(address, token, site.broker.now())?;
    Ok(json(StatusCode::CREATED, &DownloadView { path: format!("downloads/{ticket}") }))
}

/// Download a body, a session state or an export, once.
#[utoipa::path(get, operation_id = "download", path = "/downloads/{ticket}", tag = "console",
    params(("ticket" = String, Path)),
    responses((status = 200, body = [u8], content_type = "application/octet-stream"),
        (status = "default", body = Problem)))]
pub(super) fn download() -> Answer {
    // `serve.rs` has replaced a valid address with the address of its content.
    let detail = "the address of a download is for one use within 60 s; make another one";
    Err(Refusal::argument(detail).with_status(StatusCode::NOT_FOUND))
}
