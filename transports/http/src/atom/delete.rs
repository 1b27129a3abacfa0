//! Deletes an entity with everything in it, or a rule (HTP-12, ADM-21, ADM-22, ADM-53).

use actix_web::HttpResponse;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::management::Management;

use super::path::AtomRoute;
use crate::body;
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;

/// Deletes what stands at an address, of whichever kind it is.
pub(super) async fn delete(
    exchange: &Exchange,
    payload: &mut web::Payload,
    route: &AtomRoute,
) -> Answer {
    let action = match route {
        AtomRoute::Rule { .. } => Action::ChangeRules,
        _ => Action::Delete,
    };
    exchange.allow(action, &route.resource()).await?;
    body::discard(exchange, payload).await?;
    let request = match route {
        AtomRoute::Entity { path } => {
            Management::Delete(super::kind_at(exchange, Action::Delete, path).await?)
        }
        AtomRoute::Subscription { .. } => Management::Delete(EntityKind::Subscription),
        AtomRoute::Rule { name, .. } => Management::DeleteRule(name.as_str().into()),
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => return Err(Refusal::no_resource()),
    };
    exchange.access.manage(&route.resource(), request).await?;
    // Some clients take 200 alone for success (ADM-53).
    Ok(HttpResponse::Ok().finish())
}
