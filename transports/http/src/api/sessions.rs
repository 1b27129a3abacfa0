//! Sessions of a queue or subscription. They cannot be accepted here: HTTP has no link that could
//! hold one.

use peeklock_core::command::{Command, Outcome, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::management::Page;
use serde::Serialize;
use utoipa::ToSchema;

use super::{instant, large, page};
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::route::parameter;

/// A page of sessions in ascending order of their ids.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionPage {
    session_ids: Vec<String>,
    skip: usize,
    top: usize,
}

/// List sessions with a message, a state or a holder.
#[utoipa::path(get, operation_id = "list_sessions", path = "/queues/{queue}/sessions", tag = "sessions",
    params(("queue" = String, Path),
        ("withActiveMessages" = Option<bool>, Query,
            description = "only sessions with active messages"),
        ("stateSetAfterUtc" = Option<String>, Query,
            description = "only sessions whose state was set after this instant; not together with \
                withActiveMessages"),
        ("skip" = Option<usize>, Query, description = "by default 0"),
        ("top" = Option<usize>, Query, description = "maximum number of sessions; at most 100, the \
            default")),
    responses((status = 200, body = SessionPage), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange, path: &str) -> Answer {
    let entity = exchange.entity(Action::ListSessions, path).await?;
    let which = filter(exchange)?;
    let Page { skip, top } = page(exchange)?;
    let top = top.unwrap_or_default();
    let room = exchange.reserve_answer().await?;
    let command = Command::ListSessions {
        which,
        after: None,
        skip: u64::try_from(skip).unwrap_or(u64::MAX),
        top: u32::try_from(top).unwrap_or(u32::MAX),
    };
    match exchange.call(&entity, command).await? {
        Outcome::Sessions(names) => {
            let session_ids = names.iter().map(|name| (**name).to_owned()).collect();
            large(exchange, Some(room), &SessionPage { session_ids, skip, top }).await
        }
        _ => Err(Refusal::unexpected()),
    }
}

/// Returns the filter of the request (SES-29).
fn filter(exchange: &Exchange) -> Result<SessionFilter, Refusal> {
    let query = exchange.query();
    let is_active = match parameter(query, "withactivemessages").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            let detail = "the query parameter withActiveMessages must be true or false";
            return Err(Refusal::argument(detail));
        }
    };
    let after = parameter(query, "statesetafterutc");
    match (is_active, instant("stateSetAfterUtc", after.as_deref())?) {
        (true, Some(_)) => {
            Err(Refusal::argument("give withActiveMessages or stateSetAfterUtc, not both"))
        }
        (true, None) => Ok(SessionFilter::WithActiveMessages),
        (false, Some(at)) => Ok(SessionFilter::StateSetAfter(at)),
        (false, None) => Ok(SessionFilter::All),
    }
}
