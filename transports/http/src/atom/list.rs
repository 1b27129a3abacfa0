//! Lists queues, topics, subscriptions and rules in pages, in the order of their names (HTP-13,
//! ADM-23). `atom/mod.rs` calls it.

use peeklock_core::InTurn;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::management::{self, Managed, Management};

use super::entry::{Addresses, Page, feed, page};
use super::form::{entity, policies, rule};
use super::path::AtomRoute;
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;

/// Maximum number of parts in a page. The broker returns parts of at most 1 MiB. With the default
/// limits of descriptions and rules, three are enough.
const PARTS_MAX: usize = 8;

/// A part of a list, and whether further items follow.
struct Part<T> {
    items: Vec<T>,
    has_more: bool,
}

/// Lists the resources below an address.
pub(super) async fn list(exchange: &Exchange, route: &AtomRoute) -> Answer {
    let page = page(exchange)?;
    let addresses = &Addresses::of(exchange);
    let first = management::Page { skip: page.skip, top: Some(page.top) };
    let (request, title) = match route {
        AtomRoute::Queues => (Management::Queues(first), "Queues"),
        AtomRoute::Topics => (Management::Topics(first), "Topics"),
        AtomRoute::Subscriptions { .. } => (Management::Subscriptions(first), "Subscriptions"),
        AtomRoute::Rules { .. } => {
            // In this API, rules need the right to manage the subscription, as in the cloud
            // (SEC-05).
            exchange.allow(Action::List, &route.resource()).await?;
            (Management::Rules(first), "Rules")
        }
        AtomRoute::Namespace
        | AtomRoute::Entity { .. }
        | AtomRoute::Subscription { .. }
        | AtomRoute::Rule { .. } => return Err(Refusal::no_resource()),
    };
    let path = route.resource();
    let turn = exchange.access.turn_at(&path, request).await?;
    let room = exchange.reserve_answer().await?;
    let list = (route, title);
    match route {
        AtomRoute::Queues => {
            let listed = whole(page, &turn, |part| match part {
                Managed::Queues(items) => Some(items),
                _ => None,
            })
            .await?;
            let reader = policies::PolicyReader::of(exchange, "").await?;
            let mut entries = Vec::new();
            for queue in listed.items {
                let policies = reader.read(&queue.description.path).await;
                entries.push(entity::queue(queue, policies, addresses));
            }
            feed(exchange, room, addresses, list, (page, listed.has_more), entries).await
        }
        AtomRoute::Topics => {
            let listed = whole(page, &turn, |part| match part {
                Managed::Topics(items) => Some(items),
                _ => None,
            })
            .await?;
            let reader = policies::PolicyReader::of(exchange, "").await?;
            let mut entries = Vec::new();
            for topic in listed.items {
                let policies = reader.read(&topic.description.path).await;
                entries.push(entity::topic(topic, policies, addresses));
            }
            feed(exchange, room, addresses, list, (page, listed.has_more), entries).await
        }
        AtomRoute::Subscriptions { .. } => {
            let listed = whole(page, &turn, |part| match part {
                Managed::Subscriptions(items) => Some(items),
                _ => None,
            })
            .await?;
            let items = listed.items.into_iter();
            let entries = items.map(|it| entity::subscription(it, addresses)).collect();
            feed(exchange, room, addresses, list, (page, listed.has_more), entries).await
        }
        _ => {
            let listed = whole(page, &turn, |part| match part {
                Managed::Rules(items) => Some(items),
                _ => None,
            })
            .await?;
            let entries = listed.items.into_iter().map(|it| rule::entry(it, &path));
            let entries = entries.collect::<Result<Vec<_>, _>>()?;
            feed(exchange, room, addresses, list, (page, listed.has_more), entries).await
        }
    }
}

/// Returns a page with all requested items, unless it is the last one. Clients take a short page
/// for the last one and ignore its link to the next, so a page that is too large is refused instead
/// of cut.
async fn whole<T>(
    page: Page,
    turn: &InTurn,
    items_of: impl Fn(Managed) -> Option<Vec<T>>,
) -> Result<Part<T>, Refusal> {
    // One additional item shows whether further items follow.
    let wanted = page.top.saturating_add(1);
    let mut items = Vec::new();
    // One additional empty part shows that no items follow.
    for _ in 0..=PARTS_MAX {
        let part = turn.page(page.skip.saturating_add(items.len()), wanted - items.len()).await?;
        let part = items_of(part).ok_or_else(Refusal::unexpected)?;
        let is_last = part.is_empty();
        items.extend(part);
        if is_last || items.len() >= wanted {
            let has_more = items.len() > page.top;
            items.truncate(page.top);
            return Ok(Part { items, has_more });
        }
    }
    let detail = format!(
        "this page has more than {PARTS_MAX} MiB, the limit; ask for at most {} entries with \
         `$top`, and for the next with `$skip`",
        items.len()
    );
    Err(Rejection::out_of_range(detail).into())
}
