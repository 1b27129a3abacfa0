//! Deletes an entity with everything in it, or a rule (HTP-12, ADM-21, ADM-22, ADM-53).

use actix_web::HttpResponse;
use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::path::subscription_path;

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
    match route {
        AtomRoute::Entity { path } => {
            let kind = super::kind_at(exchange, Action::Delete, path).await?;
            exchange.access.delete(path, kind).await?;
        }
        AtomRoute::Subscription { topic, name } => {
            let path = subscription_path(topic, name);
            exchange.access.delete(&path, EntityKind::Subscription).await?;
        }
        AtomRoute::Rule { topic, subscription, name } => {
            let path = subscription_path(topic, subscription);
            exchange.access.delete_rule(&path, name).await?;
        }
        AtomRoute::Namespace
        | AtomRoute::Queues
        | AtomRoute::Topics
        | AtomRoute::Subscriptions { .. }
        | AtomRoute::Rules { .. } => return Err(Refusal::no_resource()),
    }
    // Some clients take 200 alone for success (ADM-53).
    Ok(HttpResponse::Ok().finish())
}
