//! Lists: their maximum duration, the time that counts for it, and the size of a page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use peeklock_core::Broker;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::management::{Management, Page};
use peeklock_core::message::Value as PropertyValue;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Fate, FaultStore};
use serde_json::{Value, json};

use super::client::Client;
use super::server::{Plan, Server, run};

const SUBSCRIPTION: &str = "t/Subscriptions/s";

/// Each list that involves several entities: its request, its body and the key of its answer.
fn lists() -> [(&'static str, Value, &'static str); 4] {
    [
        ("listQueues", json!({}), "queues"),
        ("listTopics", json!({}), "topics"),
        ("listSubscriptions", json!({ "path": "t" }), "subscriptions"),
        ("listRules", json!({ "path": SUBSCRIPTION }), "rules"),
    ]
}

async fn furnish(broker: &Broker) {
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
}

/// Sends a request and advances the clock until it is answered.
async fn ask_in_any_time(server: &Server, client: &mut Client, list: &str, body: Value) -> Value {
    let mut asked = std::pin::pin!(client.ask(list, body));
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = tokio::task::yield_now() => server.clock.advance(TimeSpan::from_ms(100)),
        }
    }
}

/// ERR-09, DESIGN D6: each kind of list waits up to 10 s for busy entities and then fails, since
/// others wait for its turn.
#[test]
fn every_list_has_its_time() {
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        let mut plan = Plan::new();
        plan.store = Some(Arc::clone(&store) as _);
        let server = plan.start().await;
        furnish(&server.broker).await;
        let mut client = server.client().await;
        store.complete_at_once(false);
        // A request to an entity waits for earlier changes that are not stored yet.
        let (queues, topics, subscriptions) =
            (server.broker.clone(), server.broker.clone(), server.broker.clone());
        let metadata = || Some("changed".into());
        let changes = [
            tokio::spawn(async move {
                let update = QueueUpdate { user_metadata: metadata(), ..QueueUpdate::default() };
                queues.update_queue("q", update, None).await.map(drop)
            }),
            tokio::spawn(async move {
                let update = TopicUpdate { user_metadata: metadata(), ..TopicUpdate::default() };
                topics.update_topic("t", update, None).await.map(drop)
            }),
            tokio::spawn(async move {
                let update = SubscriptionUpdate {
                    user_metadata: metadata(),
                    ..SubscriptionUpdate::default()
                };
                subscriptions.update_subscription(SUBSCRIPTION, update, None).await.map(drop)
            }),
        ];
        let broker = &server.broker;
        let moment = Duration::from_millis(20);
        while tokio::time::timeout(moment, broker.describe_queue("q")).await.is_ok() {}
        while tokio::time::timeout(moment, broker.describe_topic("t")).await.is_ok() {}
        let described = || broker.describe_subscription(SUBSCRIPTION);
        while tokio::time::timeout(moment, described()).await.is_ok() {}
        for (list, body, _) in lists() {
            let answer = ask_in_any_time(&server, &mut client, list, body).await;
            assert_eq!(answer["error"]["condition"], "ServerBusy", "{list}: {answer}");
            assert!(answer.to_string().contains("an entity is busy"), "{list}: {answer}");
        }
        store.complete_at_once(true);
        while store.complete_next(Shard(0), Fate::Store) {}
        for change in changes {
            change.await.unwrap().unwrap();
        }
        for (list, body, name) in lists() {
            let answer = client.ask(list, body).await;
            assert!(answer.get(name).is_some(), "{list}: {answer}");
        }
        server.stop().await;
    });
}

/// Answers at once for the namespace and for a topic, with no rights. For other entities it answers
/// only when the test allows it: with all rights for one token, with none for another.
#[derive(Default)]
struct Slow {
    asked: AtomicUsize,
    may_say: AtomicBool,
}

#[async_trait]
impl Authorizer for Slow {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        if ["", "t"].contains(&resource) {
            return Ok(Grant::nothing());
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        while !self.may_say.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        Ok(match principal.token.as_deref() {
            Some("narrow") => Grant::everything(),
            _ => Grant::nothing(),
        })
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-08, SEC-26, CON-73, DESIGN D6: the time of an authorizer does not count as time of the list.
/// A client that may read some entities gets them, a client that may read none is refused, and
/// neither has a turn meanwhile.
#[test]
fn the_time_of_an_authorizer_does_not_count() {
    run(async {
        let slow = Arc::new(Slow::default());
        let mut plan = Plan::new();
        plan.authorizer = Arc::clone(&slow) as Arc<dyn Authorizer>;
        let server = plan.start().await;
        furnish(&server.broker).await;
        server.broker.create_topic("other", TopicUpdate::default()).await.unwrap();
        let full = server.broker.full_access();
        for (list, body, name) in lists() {
            for token in ["narrow", "nobody"] {
                slow.may_say.store(false, Ordering::Relaxed);
                slow.asked.store(0, Ordering::Relaxed);
                let mut client = Client::hello(server.address, json!({ "token": token })).await;
                let id = client.begin(list, body.clone()).await;
                while slow.asked.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                let queues = Management::Queues(Page { skip: 0, top: None });
                let turns: Vec<_> =
                    (0..8).map(|_| full.turn_at("", queues.clone()).now_or_never()).collect();
                assert!(turns.iter().all(Option::is_some), "{list}: all turns are free");
                drop(turns);
                server.clock.advance(TimeSpan::from_minutes(1));
                slow.may_say.store(true, Ordering::Relaxed);
                let answer = client.answer(id).await;
                match token {
                    "narrow" => assert!(answer.get(name).is_some(), "{list}: {answer}"),
                    _ => assert_eq!(answer["error"]["condition"], "Unauthorized", "{answer}"),
                }
            }
        }
        server.stop().await;
    });
}

/// Number of queues and rules, and number of topics and subscriptions, each of some 190 KiB.
const MANY: usize = 20;
const SOME: usize = 12;
/// Upper bound of a written page: 1 MiB, and its frame.
const PAGE_BYTES: usize = (1 << 20) + (64 << 10);

/// Starts a broker that allows large descriptions and rules, and creates them.
async fn with_large_descriptions() -> Server {
    let mut plan = Plan::new();
    plan.settings.limits.user_metadata_chars_max = 65_536;
    plan.settings.limits.rule_bytes_max = 1 << 20;
    let server = plan.start().await;
    let broker = &server.broker;
    let metadata = || Some("\u{20ac}".repeat(65_536).into());
    for number in 0..MANY {
        let update = QueueUpdate { user_metadata: metadata(), ..QueueUpdate::default() };
        broker.create_queue(&format!("n{number:02}"), update).await.unwrap();
    }
    furnish(broker).await;
    broker.delete_rule(SUBSCRIPTION, "$Default").await.unwrap();
    for number in 0..SOME {
        let update = TopicUpdate { user_metadata: metadata(), ..TopicUpdate::default() };
        broker.create_topic(&format!("t{number:02}"), update).await.unwrap();
        let update =
            SubscriptionUpdate { user_metadata: metadata(), ..SubscriptionUpdate::default() };
        broker.create_subscription("t", &format!("s{number:02}"), update, vec![]).await.unwrap();
    }
    for number in 0..MANY {
        let value = || PropertyValue::String("v".repeat(30_000));
        let properties = (0..6).map(|place| (format!("p{place}").into(), value())).collect();
        let filter = CorrelationFilter { properties, ..CorrelationFilter::default() };
        let filter = Filter::Correlation(filter);
        let rule = RuleDescription::new(format!("r{number:02}"), filter, Timestamp::NONE);
        broker.create_rule(SUBSCRIPTION, rule).await.unwrap();
    }
    server
}

/// ENT-30, DESIGN D6: the bytes of a page are limited, consecutive pages contain everything, and
/// the page after the last is empty.
#[test]
fn a_page_ends_with_its_bytes() {
    run(async {
        let server = with_large_descriptions().await;
        let mut client = server.client().await;
        let counts = [MANY + 1, SOME + 1, SOME + 1, MANY];
        for ((list, body, name), count) in lists().into_iter().zip(counts) {
            let mut found: Vec<Value> = Vec::new();
            loop {
                let mut body = body.clone();
                body["skip"] = found.len().into();
                let answer = client.ask(list, body).await;
                let bytes = answer.to_string().len();
                assert!(bytes <= PAGE_BYTES, "{list}: {bytes}");
                let page = answer[name][name].as_array().unwrap();
                if page.is_empty() {
                    break;
                }
                let named = |one: &Value| one.get("path").or(one.get("name")).cloned().unwrap();
                found.extend(page.iter().map(named));
            }
            assert_eq!(found.len(), count, "{list}: {found:?}");
            let mut names: Vec<String> = found.iter().map(Value::to_string).collect();
            assert!(names.is_sorted(), "{list}: {names:?}");
            names.dedup();
            assert_eq!(names.len(), count, "{list}");
        }
        server.stop().await;
    });
}
