//! Lists queues, topics, subscriptions and rules, a page at a time in the order of their names (HTP-13, ADM-23).

use std::sync::Arc;

use peeklock_core::Of;
use peeklock_core::error::BrokerError;
use peeklock_core::path::subscription_path;
use peeklock_core::permits::Large;

use super::entry::{Addresses, feed};
use super::form::{policies, queue, rule, subscription, topic};
use super::path::AtomRoute;
use super::query::{Page, page};
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;

/// A page from which something was deleted while it was read is read again so often. Clients take a short page for the
/// last one.
const ATTEMPTS_MAX: usize = 8;

/// A part of a list, and whether others follow.
struct Part<T> {
    items: Vec<T>,
    has_more: bool,
}

/// Lists what is below an address.
pub(super) async fn list(exchange: &Exchange, route: &AtomRoute) -> Answer {
    let page = page(exchange)?;
    let of_rules;
    let of = match route {
        AtomRoute::Subscriptions { topic } => Of::Entities(topic),
        AtomRoute::Rules { topic, subscription } => {
            of_rules = subscription_path(topic, subscription);
            Of::Rules(&of_rules)
        }
        _ => Of::Entities(""),
    };
    let (_turn, room) = exchange.turn(Large::List, of).await?;
    let addresses = &Addresses::of(exchange);
    let access = &exchange.access;
    let top = page.top.saturating_add(1);
    match route {
        AtomRoute::Queues => {
            let paths = async || access.queue_paths(page.skip, top).await;
            let describe = async || access.queues(page.skip, top).await;
            let Part { items, has_more } = read(page, paths, describe).await?;
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for queue in items {
                let policies = teller.tell(&queue.description.path).await;
                entries.push(queue::entry(queue, policies, addresses));
            }
            let list = (route, "Queues");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Topics => {
            let paths = async || access.topic_paths(page.skip, top).await;
            let describe = async || access.topics(page.skip, top).await;
            let Part { items, has_more } = read(page, paths, describe).await?;
            let teller = policies::Teller::of(exchange, "").await;
            let mut entries = Vec::new();
            for topic in items {
                let policies = teller.tell(&topic.description.path).await;
                entries.push(topic::entry(topic, policies));
            }
            let list = (route, "Topics");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Subscriptions { topic } => {
            let paths = async || access.subscription_paths(topic, page.skip, top).await;
            let describe = async || access.subscriptions(topic, page.skip, top).await;
            let Part { items, has_more } = read(page, paths, describe).await?;
            let entries = items.into_iter().map(|it| subscription::entry(it, addresses)).collect();
            let list = (route, "Subscriptions");
            feed(exchange, room, addresses, list, (page, has_more), entries).await
        }
        AtomRoute::Rules { topic, subscription } => {
            let path = subscription_path(topic, subscription);
            let listing = access.rules(&path, page.skip, top);
            let mut rules = exchange.make(Large::List, listing).await?;
            let has_more = rules.len() > page.top;
            rules.truncate(page.top);
            let entries = rules.into_iter().map(|it| rule::entry(it, &path));
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

/// Reads a page of descriptions, whole unless it is the last.
async fn read<T>(
    page: Page,
    paths: impl AsyncFn() -> Result<Vec<Arc<str>>, BrokerError>,
    describe: impl AsyncFn() -> Result<Vec<T>, BrokerError>,
) -> Result<Part<T>, Refusal> {
    let mut attempts = 1;
    loop {
        let count = paths().await?.len();
        let mut items = describe().await?;
        if items.len() >= count || attempts == ATTEMPTS_MAX {
            let has_more = count > page.top;
            items.truncate(page.top);
            return Ok(Part { items, has_more });
        }
        attempts += 1;
    }
}
