//! One reading of all entities of the shown kinds.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use peeklock::websocket::client::Client;

use super::rates::{Kind, Row};
use crate::cli::{Failure, exit, queue, subscription, topic};

/// Topics whose subscriptions are requested at the same time.
const TOPICS_AT_ONCE: usize = 16;

/// Reads all entities of these kinds.
pub async fn read(client: &Client, kinds: &[Kind]) -> Result<Vec<Row>, Failure> {
    let wants = |kind| kinds.contains(&kind);
    let mut rows: Vec<Row> = Vec::new();
    if wants(Kind::Queue) {
        rows.extend(queue::all(client).await?.iter().map(Row::from));
    }
    if !wants(Kind::Topic) && !wants(Kind::Subscription) {
        return Ok(rows);
    }
    let topics = topic::all(client).await?;
    if wants(Kind::Topic) {
        rows.extend(topics.iter().map(Row::from));
    }
    if wants(Kind::Subscription) {
        let some = topics.iter().filter(|topic| topic.subscription_count > 0);
        let lists = some.map(|topic| of_topic(client, &topic.description.path));
        let lists: Vec<Vec<Row>> =
            stream::iter(lists).buffered(TOPICS_AT_ONCE).try_collect().await?;
        rows.extend(lists.into_iter().flatten());
    }
    Ok(rows)
}

/// Subscriptions of a topic; empty if it was deleted meanwhile.
async fn of_topic(client: &Client, topic: &str) -> Result<Vec<Row>, Failure> {
    match subscription::all(client, topic).await {
        Ok(subscriptions) => Ok(subscriptions.iter().map(Row::from).collect()),
        Err(Failure::Ended { code: exit::NOT_FOUND, .. }) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}
