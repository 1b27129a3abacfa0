//! Lists queues, topics, subscriptions and rules, a page at a time in the order of their names (HTP-13, ADM-23).

use peeklock_core::InTurn;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::management::{self, Managed, Management};

use super::entry::{Addresses, Page, feed, page};
use super::form::{entity, policies, rule};
use super::path::AtomRoute;
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;

/// A page has no more than so many of the parts that the broker gives, each of at most 1 MiB. As long as no limit of what a
/// description or rule may have is raised, three are enough.
const PARTS_MAX: usize = 8;

/// A part of a list, and whether others follow.
struct Part<T> {
    items: Vec<T>,
    has_more: bool,
}

/// Lists what is below an address.
pub(super) async fn list(exchange: &Exchange, route: &AtomRoute) -> Answer {
    let page = page(exchange)?;
    let addresses = &Addresses::of(exchange);
    let first = management::Page { skip: page.skip, top: Some(page.top) };
    let (request, title) = match route {
        AtomRoute::Queues => (Management::Queues(first), "Queues"),
        AtomRoute::Topics => (Management::Topics(first), "Topics"),
        AtomRoute::Subscriptions { .. } => (Management::Subscriptions(first), "Subscriptions"),
        AtomRoute::Rules { .. } => {
            // Over this API rules are for who manages the subscription, as in the cloud (SEC-05).
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
    let room = exchange.room().await?;
    let list = (route, title);
    match route {
        AtomRoute::Queues => {
            let listed = whole(page, &turn, |part| match part {
                Managed::Queues(items) => Some(items),
                _ => None,
            })
            .await?;
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for queue in listed.items {
                let policies = teller.tell(&queue.description.path).await;
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
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for topic in listed.items {
                let policies = teller.tell(&topic.description.path).await;
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

/// A page that has all that was asked for, unless it is the last: clients take a short one for that, and do not look whether
/// there is an address of a next one. So what would be too large is refused, and not cut short.
async fn whole<T>(
    page: Page,
    turn: &InTurn,
    items_of: impl Fn(Managed) -> Option<Vec<T>>,
) -> Result<Part<T>, Refusal> {
    // One more than was asked for tells whether others follow.
    let wanted = page.top.saturating_add(1);
    let mut items = Vec::new();
    // One part more, which is empty, tells that nothing follows.
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
