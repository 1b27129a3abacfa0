//! Refusals as problem+json (ERR-02, RFC 9457). The status comes from the condition's row.

use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode, header};
use peeklock_core::condition::{Condition, Surface};
use peeklock_core::error::{BrokerError, Denial, Rejection};
use serde::Serialize;
use utoipa::ToSchema;

use crate::atom::{AtomRoute, refusal_in_xml};
use crate::site::Site;

/// The Content-Type of every answer that is an error.
pub(crate) const PROBLEM: &str = "application/problem+json";
/// That of the Atom API.
const ATOM_ERROR: &str = "application/xml; charset=utf-8";
/// What a client that finds the broker busy is asked to wait (ERR-09).
const RETRY_AFTER_SECONDS: &str = "10";
/// Text of a parser about a client's text is cut after so many characters.
const PARSER_TEXT_CHARS_MAX: usize = 300;

/// The body of every answer that is an error.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// Names the condition as a URI.
    #[serde(rename = "type")]
    kind: String,
    /// The condition in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What was wrong with this request; not stable.
    detail: String,
    /// The condition, for programs: one name of the error catalogue.
    code: &'static str,
    /// The whole text: detail, tracking id, entity, instant.
    message: String,
    /// Under this id the broker has logged the failure.
    tracking_id: String,
    /// Whether the same request can succeed later.
    retryable: bool,
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    cause: Cause,
    /// In place of the status of the condition's row.
    status: Option<StatusCode>,
    /// The methods that the resource has (405).
    allow: Option<&'static str>,
    /// The rest of the request is not read.
    close: bool,
}

#[derive(Debug)]
enum Cause {
    /// The broker's, with its tracking id.
    Broker(BrokerError),
    /// The transport's own, without one as yet.
    Own(Rejection),
}

/// What decides between two statuses of one condition.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) surface: Surface,
    /// Whether the lock token stands in the path.
    pub(crate) token_in_path: bool,
    /// The entity asked for.
    pub(crate) entity: &'a str,
    pub(crate) form: Form,
    /// The operation of the Atom API.
    pub(crate) operation: Option<(&'a Method, &'a AtomRoute)>,
}

/// What the body of a refusal is.
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
    /// A malformed value.
    pub(crate) fn argument(detail: impl Into<Box<str>>) -> Self {
        Rejection::argument(detail).into()
    }

    /// Text that a parser does not take; `subject` names it.
    pub(crate) fn parser(subject: &str, error: &impl std::fmt::Display) -> Self {
        let whole = error.to_string();
        let text: String = whole.chars().take(PARSER_TEXT_CHARS_MAX).collect();
        let more = if text.len() < whole.len() { " ..." } else { "" };
        Self::argument(format!("{subject}: {text}{more}"))
    }

    /// The broker gave an answer that this command does not have.
    pub(crate) fn unexpected() -> Self {
        Rejection::internal("unexpected answer").into()
    }

    /// There is no such resource; says nothing of entities.
    pub(crate) fn no_resource() -> Self {
        let detail = "there is no such resource; the API is described in /$api/v1/openapi.json. A \
            queue or topic is one segment of its paths: write a slash in a name as %2F";
        Self::from(Rejection::new(Condition::EntityNotFound, detail))
            .with_status(StatusCode::NOT_FOUND)
    }

    /// The resource has other methods.
    pub(crate) fn method(allow: &'static str) -> Self {
        let detail = format!("this resource supports the methods {allow}");
        let mut refusal = Self::from(Rejection::invalid_operation(detail))
            .with_status(StatusCode::METHOD_NOT_ALLOWED);
        refusal.allow = Some(allow);
        refusal
    }

    /// Whether it is of this condition.
    pub(crate) fn is(&self, condition: Condition) -> bool {
        match &self.cause {
            Cause::Broker(error) => error.condition() == condition,
            Cause::Own(rejection) => rejection.condition() == condition,
        }
    }

    /// With a status that the condition's row does not have.
    pub(crate) const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// With the end of the connection, because the rest of the request is not read.
    pub(crate) const fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The answer. The transport's own refusals get their tracking id here (SND-06).
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
                // Clients look for these words at the start, where other refusals have their SubCode.
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

/// What clients of the Atom API tell apart below a status (ADM-36, ADM-51).
fn sub_code(condition: Condition, status: StatusCode) -> u32 {
    let of_status = u32::from(status.as_u16()) * 100;
    match condition {
        // Somebody else was faster: nothing that exists already is in the way.
        Condition::UpdateConflict => of_status + 1,
        _ => of_status,
    }
}

/// The status of a condition's row, with the one exception that the row leaves to this transport.
fn status(condition: Condition, circumstances: Circumstances<'_>) -> StatusCode {
    if condition == Condition::MessageLockLost && circumstances.token_in_path {
        return StatusCode::NOT_FOUND;
    }
    condition
        .http_status(circumstances.surface)
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
