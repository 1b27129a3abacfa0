//! Lists queues, topics, subscriptions and rules, a page at a time in the order of their names (HTP-13, ADM-23).

use peeklock_core::contract::Action;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::path::subscription_path;

use super::entry::{Addresses, feed};
use super::form::{entity, policies, rule};
use super::path::AtomRoute;
use super::query::{Page, page};
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;

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
    let access = &exchange.access;
    match route {
        AtomRoute::Queues => {
            let turn = access.turn_at_queues().await?;
            let room = exchange.room().await?;
            let queues = whole(page, async |skip, top| turn.page(skip, top).await).await?;
            let Part { items, has_more } = queues;
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for queue in items {
                let policies = teller.tell(&queue.description.path).await;
                entries.push(entity::queue(queue, policies, addresses));
            }
            let list = (route, "Queues");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Topics => {
            let turn = access.turn_at_topics().await?;
            let room = exchange.room().await?;
            let topics = whole(page, async |skip, top| turn.page(skip, top).await).await?;
            let Part { items, has_more } = topics;
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for topic in items {
                let policies = teller.tell(&topic.description.path).await;
                entries.push(entity::topic(topic, policies, addresses));
            }
            let list = (route, "Topics");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Subscriptions { topic } => {
            let turn = access.turn_at_subscriptions(topic).await?;
            let room = exchange.room().await?;
            let listed = whole(page, async |skip, top| turn.page(skip, top).await).await?;
            let Part { items, has_more } = listed;
            let entries = items.into_iter().map(|it| entity::subscription(it, addresses)).collect();
            let list = (route, "Subscriptions");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Rules { topic, subscription } => {
            let path = subscription_path(topic, subscription);
            // Over this API rules are for who manages the subscription, as in the cloud (SEC-05).
            exchange.allow(Action::List, &path).await?;
            let turn = access.turn_at_rules(&path).await?;
            let room = exchange.room().await?;
            let rules = whole(page, async |skip, top| turn.page(skip, top).await).await?;
            let Part { items, has_more } = rules;
            let entries = items.into_iter().map(|it| rule::entry(it, &path));
            let entries = entries.collect::<Result<Vec<_>, _>>()?;
            let list = (route, "Rules");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Namespace
        | AtomRoute::Entity { .. }
        | AtomRoute::Subscription { .. }
        | AtomRoute::Rule { .. } => Err(Refusal::no_resource()),
    }
}

/// A page that has all that was asked for, unless it is the last: clients take a short one for that, and do not look whether
/// there is an address of a next one. So what would be too large is refused, and not cut short.
async fn whole<T>(
    page: Page,
    list: impl AsyncFn(usize, usize) -> Result<Vec<T>, BrokerError>,
) -> Result<Part<T>, Refusal> {
    // One more than was asked for tells whether others follow.
    let wanted = page.top.saturating_add(1);
    let mut items = Vec::new();
    // One part more, which is empty, tells that nothing follows.
    for _ in 0..=PARTS_MAX {
        let part = list(page.skip.saturating_add(items.len()), wanted - items.len()).await?;
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
