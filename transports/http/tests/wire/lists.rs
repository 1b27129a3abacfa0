//! Lists of the JSON API and of the Atom API: their maximum duration, the time that counts for it,
//! and the size of a page.

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
use peeklock_core::message::Value;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Fate, FaultStore};

use super::client::Answer;
use super::server::{Plan, Server};

/// Each list of both APIs that involves several entities; lists of sessions and policies do not.
const LISTS: [&str; 8] = [
    "GET /$api/v1/queues",
    "GET /$api/v1/topics",
    "GET /$api/v1/topics/t/subscriptions",
    "GET /$api/v1/topics/t/subscriptions/s/rules",
    "GET /$Resources/queues?api-version=2021-05",
    "GET /$Resources/topics?api-version=2021-05",
    "GET /t/subscriptions?api-version=2021-05",
    "GET /t/subscriptions/s/rules?api-version=2021-05",
];

const SUBSCRIPTION: &str = "t/Subscriptions/s";

async fn furnish(broker: &Broker) {
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
}

/// ERR-09, ADM-23, DESIGN D6: each kind of list waits up to 10 s for busy entities and then fails,
/// since others wait for its turn.
#[tokio::test]
async fn every_list_has_its_time() {
    let store = FaultStore::at_once(1, u64::MAX);
    let mut plan = Plan::new();
    plan.store = Some(Arc::clone(&store) as _);
    let server = plan.start().await;
    furnish(&server.broker).await;
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
            let update =
                SubscriptionUpdate { user_metadata: metadata(), ..SubscriptionUpdate::default() };
            subscriptions.update_subscription(SUBSCRIPTION, update, None).await.map(drop)
        }),
    ];
    let broker = &server.broker;
    let moment = Duration::from_millis(20);
    while tokio::time::timeout(moment, broker.describe_queue("q")).await.is_ok() {}
    while tokio::time::timeout(moment, broker.describe_topic("t")).await.is_ok() {}
    let described = || broker.describe_subscription(SUBSCRIPTION);
    while tokio::time::timeout(moment, described()).await.is_ok() {}
    for head in LISTS {
        let answer = ask_in_any_time(&server, head).await;
        assert_eq!(answer.status, 503, "{head}: {}", answer.text());
        assert!(answer.text().contains("an entity is busy"), "{head}: {}", answer.text());
    }
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    for change in changes {
        change.await.unwrap().unwrap();
    }
    for head in LISTS {
        assert_eq!(server.ask(head, "").await.status, 200, "{head}");
    }
    server.stop().await;
}

/// Sends a request and advances the clock until it is answered.
async fn ask_in_any_time(server: &Server, head: &str) -> Answer {
    let mut asked = std::pin::pin!(server.ask(head, ""));
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = tokio::task::yield_now() => server.clock.advance(TimeSpan::from_ms(100)),
        }
    }
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
#[tokio::test]
async fn the_time_of_an_authorizer_does_not_count() {
    let slow = Arc::new(Slow::default());
    let mut plan = Plan::new();
    plan.authorizer = Arc::clone(&slow) as Arc<dyn Authorizer>;
    let server = plan.start().await;
    furnish(&server.broker).await;
    server.broker.create_topic("other", TopicUpdate::default()).await.unwrap();
    let full = server.broker.full_access();
    for head in LISTS {
        for (token, status) in [("narrow", 200), ("nobody", 401)] {
            slow.may_say.store(false, Ordering::Relaxed);
            slow.asked.store(0, Ordering::Relaxed);
            let mut client = server.connect().await;
            client.write(&server.request(&format!("{head}\nAuthorization: {token}"), "")).await;
            while slow.asked.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let queues = Management::Queues(Page { skip: 0, top: None });
            let turns: Vec<_> =
                (0..8).map(|_| full.turn_at("", queues.clone()).now_or_never()).collect();
            assert!(turns.iter().all(Option::is_some), "{head}: all turns are free");
            drop(turns);
            server.clock.advance(TimeSpan::from_minutes(1));
            slow.may_say.store(true, Ordering::Relaxed);
            let answer = client.read().await.unwrap();
            assert_eq!(answer.status, status, "{head} with {token}: {}", answer.text());
        }
    }
    server.stop().await;
}

/// Number of queues and rules, each of some 190 KiB, and number of topics and subscriptions.
const MANY: usize = 45;
const SOME: usize = 12;
/// Upper bound of a written page: 1 MiB, and its envelope.
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
        let value = || Value::String("v".repeat(30_000));
        let properties = (0..6).map(|place| (format!("p{place}").into(), value())).collect();
        let filter = CorrelationFilter { properties, ..CorrelationFilter::default() };
        let filter = Filter::Correlation(filter);
        let rule = RuleDescription::new(format!("r{number:02}"), filter, Timestamp::NONE);
        broker.create_rule(SUBSCRIPTION, rule).await.unwrap();
    }
    server
}

/// ENT-30, DESIGN D6: the bytes of a page of the JSON API are limited, consecutive pages contain
/// everything, and the page after the last is empty.
#[tokio::test]
async fn a_page_of_the_json_api_ends_with_its_bytes() {
    let server = with_large_descriptions().await;
    for (path, list, name, count) in [
        ("queues", "queues", "path", MANY + 1),
        ("topics", "topics", "path", SOME + 1),
        ("topics/t/subscriptions", "subscriptions", "name", SOME + 1),
        ("topics/t/subscriptions/s/rules", "rules", "name", MANY),
    ] {
        let mut names: Vec<String> = Vec::new();
        loop {
            let head = format!("GET /$api/v1/{path}?skip={}", names.len());
            let answer = server.ask(&head, "").await;
            assert_eq!(answer.status, 200, "{head}: {}", answer.text());
            let bytes = answer.text().len();
            assert!(bytes <= PAGE_BYTES, "{head}: {bytes}");
            let page = answer.json();
            let page = page[list].as_array().unwrap();
            if page.is_empty() {
                break;
            }
            names.extend(page.iter().map(|one| one[name].as_str().unwrap().to_owned()));
        }
        assert_eq!(names.len(), count, "{path}");
        assert!(names.is_sorted(), "{path}: {names:?}");
        names.dedup();
        assert_eq!(names.len(), count, "{path}");
    }
    server.stop().await;
}

/// ENT-30, ADM-23, DESIGN D6: a page of the Atom API is complete, since clients take a short page
/// for the last. A page above 8 MiB is refused with a remedy.
#[tokio::test]
async fn a_page_of_the_atom_api_is_whole_or_refused() {
    let server = with_large_descriptions().await;
    for (address, top, expected, has_more) in [
        ("$Resources/queues", 30, 30, true),
        ("$Resources/topics", 100, SOME + 1, false),
        ("$Resources/topics", SOME, SOME, true),
        ("t/subscriptions", 100, SOME + 1, false),
        ("t/subscriptions/s/rules", 30, 30, true),
    ] {
        let head = format!("GET /{address}?api-version=2021-05&$skip=0&$top={top}");
        let answer = server.ask(&head, "").await;
        assert_eq!(answer.status, 200, "{head}");
        let text = answer.text();
        assert_eq!(text.matches("<entry").count(), expected, "{head}");
        assert_eq!(text.contains("rel=\"next\""), has_more, "{head}");
    }
    for address in ["$Resources/queues", "t/subscriptions/s/rules"] {
        let head = format!("GET /{address}?api-version=2021-05");
        let answer = server.ask(&head, "").await;
        assert_eq!(answer.status, 400, "{head}");
        assert!(answer.text().contains("entries with `$top`"), "{head}: {}", answer.text());
    }
    server.stop().await;
}
