//! Looks at messages without changing them.

use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;

use super::{Messages, deliver};
use crate::api::query::number;
use crate::error::{Answer, Problem, Refusal};
use crate::route::parameter;
use crate::serve::Exchange;

/// Look at messages without changing them.
#[utoipa::path(get, path = "/queues/{queue}/messages", tag = "messages",
    params(("queue" = String, Path),
        ("from" = Option<u64>, Query, description = "the first sequence number; by default the lowest"),
        ("count" = Option<u32>, Query, description = "maximum number of messages; by default 1"),
        ("sessionId" = Option<String>, Query, description = "only messages of this session")),
    responses((status = 200, body = Messages), (status = "default", body = Problem)))]
pub(in crate::api) async fn peek(exchange: &Exchange, queue: &str) -> Answer {
    let entity = exchange.entity(Action::Peek, queue).await?;
    let from = SequenceNumber(number(exchange, "from")?.unwrap_or(0));
    let count_max = number(exchange, "count")?.unwrap_or(1);
    let command = match parameter(exchange.query(), "sessionid") {
        Some(session) => Command::PeekSession { session: session.into(), from, count_max },
        None => Command::Peek { from, count_max },
    };
    let room = exchange.room().await?;
    match exchange.call(&entity, command).await? {
        Outcome::Peeked(messages) => deliver(exchange, &entity, room, None, messages).await,
        _ => Err(Refusal::unexpected()),
    }
}
