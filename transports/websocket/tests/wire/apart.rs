//! Background work of a conversation: lists, explanations, management.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use peeklock_core::Access;
use peeklock_core::admission::HeldTurn;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::management::{Management, Page, SampleMessage};
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use serde_json::json;

use super::server::{Plan, Server, run};

/// Allows everything, but never answers whether the rules of a subscription may be changed.
#[derive(Default)]
struct NeverOfRules {
    asked: Arc<AtomicUsize>,
}

struct Asking(Arc<AtomicUsize>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Authorizer for NeverOfRules {
    async fn authorize(&self, _: &Principal, resource: &str) -> Result<Grant, Rejection> {
        if !resource.contains("/Subscriptions/") {
            return Ok(Grant::everything());
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let _asking = Asking(Arc::clone(&self.asked));
        std::future::pending().await
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// DESIGN D6: a request about entities that has not reached an entity ends with its connection and
/// releases its room. A client that asks, disconnects and reconnects never has more requests under
/// way than one connection may have.
#[test]
fn pending_management_ends_with_its_connection() {
    run(async {
        let authorizer = Arc::new(NeverOfRules::default());
        let asked = Arc::clone(&authorizer.asked);
        let mut plan = Plan::new();
        plan.authorizer = authorizer;
        let server = plan.start().await;
        for round in 0..5 {
            let mut client = server.client().await;
            for number in 0..8 {
                let rule = json!({ "name": "r", "filter": { "type": "true" } });
                let path = format!("t/Subscriptions/s{number}");
                client.begin("createRule", json!({ "path": path, "rule": rule })).await;
            }
            while asked.load(Ordering::Relaxed) < 8 {
                tokio::task::yield_now().await;
            }
            assert_eq!(asked.load(Ordering::Relaxed), 8, "{round}");
            match round % 2 {
                0 => client.close(Some(1_000)).await,
                _ => drop(client),
            }
            while asked.load(Ordering::Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
        }
        server.stop().await;
    });
}

/// Takes a turn of the kind that an operation needs.
async fn turn_at(access: &Access, operation: &str) -> HeldTurn {
    match operation {
        "explain" => {
            let sample = Box::new(SampleMessage::Plain(Message::new("a")));
            let explain = Management::Explain(sample);
            access.turn_at("t/Subscriptions/s", explain).await.unwrap().into_turn()
        }
        _ => {
            let list = Management::Topics(Page { skip: 0, top: None });
            access.turn_at("", list).await.unwrap().into_turn()
        }
    }
}

/// ERR-09, DESIGN D6: lists and explanations have limited turns, and no request waits for one
/// without end.
#[test]
fn lists_and_explanations_take_turns() {
    run(async {
        let server = Server::start().await;
        server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
        let properties = SubscriptionUpdate::default();
        server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
        let mut client = server.client().await;
        let access = server.broker.full_access();
        for (of_which, operation, body) in [
            ("lists (at most 8", "listQueues", json!({})),
            ("lists (at most 8", "listRules", json!({ "path": "t/Subscriptions/s" })),
            (
                "explanations of rules (at most 2",
                "explain",
                json!({ "path": "t/Subscriptions/s", "message": { "body": "a" } }),
            ),
        ] {
            let mut turns = Vec::new();
            while let Some(turn) = turn_at(&access, operation).now_or_never() {
                turns.push(turn);
            }
            let id = client.begin(operation, body.clone()).await;
            let answer = {
                let mut answer = std::pin::pin!(client.answer(id));
                loop {
                    tokio::select! {
                        biased;
                        answer = &mut answer => break answer,
                        () = tokio::task::yield_now() => {
                            server.clock.advance(TimeSpan::from_ms(100));
                        }
                    }
                }
            };
            assert_eq!(answer["error"]["condition"], "ServerBusy", "{answer}");
            assert!(answer["error"]["detail"].as_str().unwrap().contains(of_which), "{answer}");
            turns.pop();
            let answer = client.ask(operation, body).await;
            assert!(answer.get("error").is_none(), "{answer}");
        }
        server.stop().await;
    });
}
