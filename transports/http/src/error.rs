//! Refusals as problem+json (ERR-02, RFC 9457). The row of the condition gives the status. Every
//! handler returns them.

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode, header};
use peeklock_core::condition::{Condition, Surface};
use peeklock_core::error::{BrokerError, Denial, Rejection};
use serde::Serialize;
use utoipa::ToSchema;

use crate::atom::{AtomRoute, refusal_in_xml};
use crate::site::Site;

/// Content-Type of each error.
pub(crate) const PROBLEM: &str = "application/problem+json";
/// Content-Type of each error of the Atom API.
const ATOM_ERROR: &str = "application/xml; charset=utf-8";
/// Value of `Retry-After` when the broker is busy, in seconds (ERR-09).
pub(crate) const RETRY_AFTER_SECONDS: &str = "10";
/// Maximum length of a quoted parser error in characters; the rest is cut off.
const PARSER_TEXT_CHARS_MAX: usize = 300;

/// Body of each error.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// The condition as a URI.
    #[serde(rename = "type")]
    kind: String,
    /// The condition in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Description of the problem with this request; its text may change between versions.
    detail: String,
    /// The condition, for programs: a name of the error catalogue.
    code: &'static str,
    /// The complete text: detail, tracking id, entity, instant.
    message: String,
    /// Id under which the broker has logged the failure.
    tracking_id: String,
    /// Whether the same request can succeed later.
    retryable: bool,
}

/// Reason why a request is not carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    cause: Cause,
    /// Replaces the status of the condition's row.
    status: Option<StatusCode>,
    /// Methods of the resource, for status 405.
    allow: Option<&'static str>,
    /// Whether to close the connection, because the rest of the request is not read.
    close: bool,
}

#[derive(Debug)]
enum Cause {
    /// An error of the broker, with its tracking id.
    Broker(BrokerError),
    /// A rejection of the transport, which gets a tracking id later.
    Own(Rejection),
}

/// Properties of a request on which the status of a condition depends.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) surface: Surface,
    /// Whether the path contains the lock token.
    pub(crate) token_in_path: bool,
    /// The requested entity.
    pub(crate) entity: &'a str,
    pub(crate) form: Form,
    /// The operation of the Atom API.
    pub(crate) operation: Option<(&'a Method, &'a AtomRoute)>,
}

/// Form of the body of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// JSON (RFC 9457).
    Problem,
    /// The XML of the Atom API (ADM-50).
    Atom,
}

pub(crate) type Answer = Result<HttpResponse, Refusal>;

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self { cause: Cause::Broker(error), status: None, allow: None, close: false }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self { cause: Cause::Own(rejection), status: None, allow: None, close: false }
    }
}

impl Refusal {
    /// Refuses a malformed value.
    pub(crate) fn argument(detail: impl Into<Box<str>>) -> Self {
        Rejection::argument(detail).into()
    }

    /// Refuses text that a parser rejects; `subject` names the text.
    pub(crate) fn parser(subject: &str, error: &impl std::fmt::Display) -> Self {
        let whole = error.to_string();
        let text: String = whole.chars().take(PARSER_TEXT_CHARS_MAX).collect();
        let more = if text.len() < whole.len() { " ..." } else { "" };
        Self::argument(format!("{subject}: {text}{more}"))
    }

    /// Refuses because the broker's outcome does not belong to the command.
    pub(crate) fn unexpected() -> Self {
        Rejection::internal("unexpected answer").into()
    }

    /// Refuses an unknown resource, without revealing whether an entity exists.
    pub(crate) fn no_resource() -> Self {
        let detail = "there is no such resource; the API is described in /$api/v1/openapi.json. A \
            queue or topic is one segment of its paths: write a slash in a name as %2F";
        Self::from(Rejection::new(Condition::EntityNotFound, detail))
            .with_status(StatusCode::NOT_FOUND)
    }

    /// Refuses a method that the resource does not have.
    pub(crate) fn method(allow: &'static str) -> Self {
        let detail = format!("this resource supports the methods {allow}");
        let mut refusal = Self::from(Rejection::invalid_operation(detail))
            .with_status(StatusCode::METHOD_NOT_ALLOWED);
        refusal.allow = Some(allow);
        refusal
    }

    /// Whether it has this condition.
    pub(crate) fn is(&self, condition: Condition) -> bool {
        self.condition() == condition
    }

    /// Its condition.
    pub(crate) const fn condition(&self) -> Condition {
        match &self.cause {
            Cause::Broker(error) => error.condition(),
            Cause::Own(rejection) => rejection.condition(),
        }
    }

    /// Replaces the status of the condition's row.
    pub(crate) const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Closes the connection after the answer, because the rest of the request is not read.
    pub(crate) const fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// Makes the answer. Rejections of the transport get their tracking id here (SND-06).
    pub(crate) fn respond(self, site: &Site, circumstances: Circumstances<'_>) -> HttpResponse {
        let error = match self.cause {
            Cause::Broker(error) => error,
            Cause::Own(rejection) => site.broker.refuse(rejection, circumstances.entity),
        };
        let condition = error.condition();
        let status = self.status.unwrap_or_else(|| status(condition, circumstances));
        let mut answer = HttpResponse::build(status);
        let content_type = match circumstances.form {
            Form::Problem => PROBLEM,
            Form::Atom => ATOM_ERROR,
        };
        answer.insert_header((header::CONTENT_TYPE, content_type));
        answer.insert_header((header::CACHE_CONTROL, "no-store"));
        if condition == Condition::ServerBusy {
            answer.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            answer.insert_header((header::WWW_AUTHENTICATE, "SharedAccessSignature"));
        }
        if let Some(allow) = self.allow {
            answer.insert_header((header::ALLOW, allow));
        }
        if self.close {
            answer.force_close();
        }
        if circumstances.form == Form::Atom {
            let is_denied =
                error.rejection().denial().is_some_and(|denial| denial.cause == Denial::RIGHT);
            let text = match circumstances.operation.filter(|_| is_denied) {
                // Clients expect these words at the start, where other refusals have their SubCode.
                Some((method, route)) => format!("{} {error}", route.denied(method)),
                None => format!("SubCode={}. {error}", sub_code(condition, status)),
            };
            return answer.body(refusal_in_xml(status, &text));
        }
        let problem = Problem {
            kind: format!("urn:peeklock:condition:{condition}"),
            title: condition.name(),
            status: status.as_u16(),
            detail: error.detail().to_owned(),
            code: condition.name(),
            message: error.to_string(),
            tracking_id: error.tracking_id().to_string(),
            retryable: error.retryable(),
        };
        answer.body(serde_json::to_vec(&problem).unwrap_or_default())
    }
}

/// Returns the code by which clients of the Atom API distinguish errors with the same status
/// (ADM-36, ADM-51).
fn sub_code(condition: Condition, status: StatusCode) -> u32 {
    let of_status = u32::from(status.as_u16()) * 100;
    match condition {
        // A concurrent change, not an existing entity, is in the way.
        Condition::UpdateConflict => of_status + 1,
        _ => of_status,
    }
}

/// Returns the status of a condition's row, with the one exception that the row leaves to this
/// transport.
fn status(condition: Condition, circumstances: Circumstances<'_>) -> StatusCode {
    if condition == Condition::MessageLockLost && circumstances.token_in_path {
        return StatusCode::NOT_FOUND;
    }
    condition
        .http_status(circumstances.surface)
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
