//! Tests of requests that are carried out apart from the connection.

use futures_util::FutureExt as _;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::management::{Management, Page};
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::server::Server;

/// ERR-09, AMQP-92, DESIGN D6: lists of rules take turns with all other lists, and the wait for a
/// turn is limited.
#[tokio::test]
async fn lists_of_rules_have_their_turns() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let access = server.broker.full_access();
    let queues = Management::Queues(Page { skip: 0, top: None });
    let mut turns = Vec::new();
    while let Some(turn) = access.turn_at("", queues.clone()).now_or_never() {
        turns.push(turn.unwrap());
    }
    let refused = {
        let mut asked = std::pin::pin!(client.ask(0, "enumerate-rules", &[]));
        loop {
            tokio::select! {
                biased;
                reply = &mut asked => break reply,
                () = tokio::task::yield_now() => server.clock.advance(TimeSpan::from_ms(100)),
            }
        }
    };
    assert_eq!((refused.status(), &*refused.condition()), (503, "com.microsoft:server-busy"));
    turns.pop();
    let reply = client.ask(0, "enumerate-rules", &[]).await;
    assert_eq!((reply.status(), reply.maps("rules").len()), (200, 1));
    server.stop().await;
}

/// ENT-30, AMQP-87: a reply has all rules of a subscription, although the broker reads them in
/// pages of limited size.
#[tokio::test]
async fn large_rules_are_all_in_one_reply() {
    let mut limits = Limits::of(Tier::Premium);
    limits.rule_bytes_max = 1 << 20;
    let server = Server::start_under(limits).await;
    let rule = |number: usize| {
        let filter = (0..6).fold(CorrelationFilter::default(), |filter, place| {
            filter.and_property(format!("p{place}"), "v".repeat(30_000))
        });
        let filter = Filter::Correlation(filter);
        RuleDescription::new(format!("r{number:02}"), filter, Timestamp::NONE)
    };
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let (properties, rules) = (SubscriptionUpdate::default(), (0..12).map(rule).collect());
    server.broker.create_subscription("t", "s", properties, rules).await.unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let reply = client.ask(0, "enumerate-rules", &[]).await;
    assert_eq!((reply.status(), reply.maps("rules").len()), (200, 12));
    server.stop().await;
}
