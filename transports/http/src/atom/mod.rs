//! Administration over the Atom API, as `ServiceBusAdministrationClient` uses it
//! (`docs/spec/admin-http.md`, HTP-12 to HTP-18): operations for queues, topics, subscriptions and
//! rules. `form` maps the content of descriptions, `entry` has entries and feeds around them, `xml`
//! reads and writes both.
//!
//! The broker decides the meaning; only text without a meaning is refused here. Absent on purpose:
//! `enrich`, since counts are cheap, and the differences of API versions, since clients ignore
//! unknown elements.

mod entry;
mod form;
mod path;
mod xml;

mod create;
mod get;
mod list;
mod update;

pub(crate) use path::AtomRoute;
pub(crate) use xml::refusal_in_xml;

use actix_web::http::{Method, StatusCode, header};
use actix_web::web;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::path::{EntityAddress, EntityName, SubQueue};

use crate::body;
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;
use entry::Addresses;
use xml::{Element, SB};

/// Carries out an operation; the resource must have the method.
pub(crate) async fn dispatch(
    exchange: &Exchange,
    payload: &mut web::Payload,
    method: &Method,
    route: &AtomRoute,
) -> Answer {
    match (method.as_str(), route) {
        ("PUT", _) if is_update(exchange) => update::update(exchange, payload, route).await,
        ("PUT", _) => create::create(exchange, payload, route).await,
        ("DELETE", _) => create::delete(exchange, payload, route).await,
        (_, AtomRoute::Namespace) => get::namespace(exchange).await,
        (
            _,
            AtomRoute::Queues
            | AtomRoute::Topics
            | AtomRoute::Subscriptions { .. }
            | AtomRoute::Rules { .. },
        ) => list::list(exchange, route).await,
        (_, AtomRoute::Entity { .. } | AtomRoute::Subscription { .. } | AtomRoute::Rule { .. }) => {
            get::get(exchange, route, StatusCode::OK).await
        }
    }
}

/// A PUT with `If-Match` changes an existing resource, a PUT without it creates a new one (ADM-21).
fn is_update(exchange: &Exchange) -> bool {
    exchange.request.headers().contains_key(header::IF_MATCH)
}

/// Reads the description in the body of a request, with the memory reserved for it.
async fn described(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<(Element, body::RequestBody), Refusal> {
    let mut body = body::read(exchange, payload, "request body", xml::BYTES_MAX).await?;
    body.have_room_for(&exchange.site, xml::room_bytes(&body.bytes)).await?;
    let description = entry::content(xml::read(&body.bytes)?)?;
    Ok((description, body))
}

/// Refuses a description of another kind than the address needs.
fn expect(description: &Element, name: &str) -> Result<(), Refusal> {
    if description.is(SB, name) {
        return Ok(());
    }
    let detail = format!("the content of the entry must be a {name} of `{SB}` at this address");
    Err(Refusal::argument(detail))
}

/// Returns whether a path is a queue or a topic, if the client may do this to it. The dead-letter
/// queue of a topic is refused as an invalid argument, not as missing, since it cannot exist
/// (ADM-21).
async fn kind_at(exchange: &Exchange, action: Action, path: &str) -> Result<EntityKind, Refusal> {
    let refusal = match exchange.entity(action, path).await {
        Ok(entity) => return Ok(entity.kind()),
        Err(refusal) => refusal,
    };
    if refusal.is(Condition::EntityNotFound)
        && let Ok(EntityAddress { entity: EntityName::Root(topic), sub_queue, .. }) =
            EntityAddress::parse(path)
        && sub_queue != SubQueue::Main
        && exchange.entity(action, &topic).await.is_ok()
    {
        let detail = format!(
            "`{topic}` is a topic, which has no dead-letter queue; use one of its subscriptions"
        );
        return Err(Refusal::argument(detail));
    }
    Err(refusal)
}
