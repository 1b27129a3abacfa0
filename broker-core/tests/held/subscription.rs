//! A session of a subscription, in the tree of its topic.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

use crate::stand::{Log, Stand, receive, submit};

/// SES-01, DESIGN D3: a session of a subscription is an actor in the tree of the topic. It gets
/// messages published while its holder waits, and it ends with the topic.
#[tokio::test]
async fn a_session_of_a_subscription_is_an_actor_too() {
    let stand = Stand::new().await;
    let broker = stand.broker.clone();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let properties =
        SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
    broker.create_subscription("events", "all", properties, Vec::new()).await.unwrap();
    let path = "events/Subscriptions/all";
    let observed = broker.observed().into_iter().find(|(of, _)| of.eq_ignore_ascii_case(path));
    let stand =
        Stand { queue: broker.entity(path).unwrap(), observed: observed.unwrap().1, ..stand };
    let topic = broker.entity("events").unwrap();
    let held = stand.accept("a").await.unwrap();
    stand.actors(1).await;
    let log = Arc::new(Log::default());
    let waits = held.command(receive(TimeSpan::from_seconds(20)));
    submit(&held.entity, vec![(waits, log.reply(0))]);
    assert_eq!(held.renewal().await, Ok(()));
    let message = broker.inbound(Message::new("body").with_session_id("a"));
    topic.call(Command::Send { message }).await.unwrap();
    let (_, answer) = log.answers(1).await.remove(0);
    let Ok(Outcome::Received(messages)) = answer else { panic!("{answer:?}") };
    held.complete(messages[0].facts.lock.unwrap().token).await.unwrap();
    assert!(held.receive(TimeSpan::ZERO).await.unwrap().is_empty());
    broker.delete_entity("events").await.unwrap();
    assert_eq!(held.renewal().await, Err(Condition::EntityNotFound));
    stand.actors(0).await;
    stand.stop().await;
}
