//! The actions that the trail records, through the interface of the broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_audit::MemoryTrail;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Act, Command, Deed, OperatorCommand, SessionFilter};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{
    Action, AuditEntry, AuditError, AuditPage, AuditQuery, AuditResult, Auditor, Authorizer, Grant,
    Principal, Recorded,
};
use peeklock_core::declaration::{Declaration, DeclaredQueue};
use peeklock_core::description::{
    Cleared, EntityKind, Patch, QueueUpdate, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    CheckKind, ClientId, ClientQuery, Found, HeadStates, MuteChange, Question, SearchOutput,
    SearchQuery, SearchStep, Where,
};
use peeklock_core::management::{Managed, Management, Page, SampleMessage};
use peeklock_core::message::Message;
use peeklock_core::policies::{KeyText, PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker, ChecksConfig};

const SECRET: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDEyMzQ=";

/// Grants everything to tokens that begin with `good`.
struct GoodTokens;

#[async_trait]
impl Authorizer for GoodTokens {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some(token) if token.starts_with("good") => {
                Ok(Grant::everything().with_policy(&"ops".into()))
            }
            _ => Err(Rejection::unauthorized("the token is not valid")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Refuses every entry.
struct Broken;

#[async_trait]
impl Auditor for Broken {
    fn record(&self, _: AuditEntry) -> Recorded {
        Box::pin(async { Err(AuditError::Failed("the disk is full".into())) })
    }

    async fn read(&self, _: AuditQuery) -> Result<AuditPage, AuditError> {
        Err(AuditError::Busy)
    }
}

async fn broker(auditor: Arc<dyn Auditor>) -> Broker {
    let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    Broker::builder()
        .authorizer(Arc::new(GoodTokens))
        .auditor(auditor)
        .clock(Arc::new(ManualClock::at(now)))
        .arbiters(1)
        .start()
        .await
        .unwrap()
}

fn trail(records_reads: bool) -> Arc<MemoryTrail> {
    Arc::new(MemoryTrail::new(MemoryTrail::BYTES_MAX, records_reads))
}

fn access(broker: &Broker) -> Access {
    let peer: std::net::SocketAddr = "192.0.2.1:5000".parse().unwrap();
    broker.access(Principal::anonymous().with_token("good-token").from_peer(peer))
}

async fn page(access: &Access) -> Vec<serde_json::Value> {
    let query = AuditQuery { is_ascending: true, count_max: 500, ..AuditQuery::default() };
    let question = Management::Inspect(Box::new(Question::Audit(query)));
    let Managed::Findings(findings) = access.manage("", question).await.unwrap() else {
        panic!("no findings")
    };
    let Found::Audit(page) = findings.found else { panic!("no page") };
    page.lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn stop(broker: Broker) {
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}

fn patch() -> Patch {
    Patch { cleared: Cleared::default(), expected_created_at: None }
}

fn rule(name: &str, filter: Filter) -> Box<RuleDescription> {
    Box::new(RuleDescription::new(name, filter, Timestamp::NONE))
}

/// Requests that change something, in an order in which each succeeds, with their operations.
fn changes() -> Vec<(&'static str, &'static str, Management)> {
    let queue = |lock| {
        let lock_duration = Some(TimeSpan::from_seconds(lock));
        Box::new(QueueUpdate { lock_duration, ..QueueUpdate::default() })
    };
    let key = || KeyText::parse(SECRET).unwrap();
    let policy = || PolicyUpdate {
        rights: Some(peeklock_core::contract::Rights::ALL),
        primary_key: Some(key()),
        ..PolicyUpdate::default()
    };
    let sessions =
        || Box::new(QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() });
    let sub = "news/Subscriptions/eu";
    let state = Some(b"a secret state".to_vec().into());
    vec![
        ("createEntity", "orders", Management::CreateQueue(queue(60))),
        ("createEntity", "steps", Management::CreateQueue(sessions())),
        ("updateEntity", "orders", Management::UpdateQueue(queue(120), patch())),
        ("createEntity", "news", Management::CreateTopic(Box::default())),
        (
            "createEntity",
            "news",
            Management::CreateSubscription {
                name: "eu".into(),
                properties: Box::new(SubscriptionUpdate::default()),
                rules: Vec::new(),
            },
        ),
        ("updateEntity", "news", Management::UpdateTopic(Box::default(), patch())),
        ("updateEntity", sub, Management::UpdateSubscription(Box::default(), patch())),
        ("createRule", sub, Management::CreateRule(rule("r", Filter::True))),
        ("createRule", sub, Management::CreateOwnRule(rule("own", Filter::True))),
        ("updateRule", sub, Management::UpdateRule(rule("r", Filter::False))),
        ("deleteRule", sub, Management::DeleteRule("r".into())),
        ("deleteRule", sub, Management::DeleteOwnRule("own".into())),
        ("createPolicy", "orders", Management::CreatePolicy("p".into(), policy())),
        (
            "updatePolicy",
            "orders",
            Management::UpdatePolicy(
                "p".into(),
                PolicyUpdate {
                    rights: Some(peeklock_core::contract::Rights::of(
                        peeklock_core::contract::Right::Send,
                    )),
                    ..PolicyUpdate::default()
                },
            ),
        ),
        ("readKeys", "orders", Management::PolicyKeys("p".into())),
        (
            "regenerateKey",
            "orders",
            Management::RegenerateKey("p".into(), WhichKey::Secondary, None),
        ),
        ("deletePolicy", "orders", Management::DeletePolicy("p".into())),
        ("replacePolicies", "orders", Management::ReplacePolicies(vec![("q".into(), policy())])),
        (
            "breakLocks",
            "orders",
            Management::Operate(OperatorCommand::BreakLocks {
                sequences: vec![SequenceNumber(1)],
                counts: false,
            }),
        ),
        (
            "breakSession",
            "steps",
            Management::Operate(OperatorCommand::BreakSession {
                session: "s".into(),
                counts: false,
            }),
        ),
        (
            "setSessionState",
            "steps",
            Management::Operate(OperatorCommand::SetSessionState { session: "s".into(), state }),
        ),
        (
            "act",
            "orders",
            Management::Operate(OperatorCommand::Act(Box::new(Act {
                step: None,
                sequences: vec![SequenceNumber(1)],
                deed: Deed::Delete,
                breaks_locks: true,
                kept: None,
            }))),
        ),
        (
            "deleteMessages",
            "steps",
            Management::DeleteUnlocked { count_max: None, enqueued_before: None },
        ),
        ("deleteEntity", "orders", Management::Delete(EntityKind::Queue)),
    ]
}

/// CON-23: each request that changes something has an entry before it begins and an entry with its
/// result, with the same tracking id, policy and address.
#[tokio::test]
async fn every_change_has_two_entries() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    let mut seen = 0;
    for (operation, path, request) in changes() {
        let text = format!("{request:?}");
        access.manage(path, request).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        let lines = page(&access).await;
        assert_eq!(lines.len(), seen + 2, "{text}");
        let [begin, end] = [&lines[seen], &lines[seen + 1]];
        seen += 2;
        assert_eq!((&begin["stage"], &end["stage"]), (&"begin".into(), &"end".into()));
        for line in [begin, end] {
            assert_eq!(line["operation"], operation, "{text}");
            assert_eq!(
                (&line["policy"], &line["address"]),
                (&"ops".into(), &"192.0.2.1:5000".into())
            );
            let resource = line["resource"].as_str().unwrap();
            assert!(resource.starts_with(path), "{text}: {resource}");
        }
        assert_eq!(begin["trackingId"], end["trackingId"], "{text}");
        assert_eq!(end["result"], "done", "{text}");
    }
    stop(broker).await;
}

/// CON-23: a search that fails after its entry has the error as its result.
#[tokio::test]
async fn a_search_that_fails_has_its_error() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    let paths: Vec<Box<str>> = vec!["absent".into(), "missing".into()];
    let query = SearchQuery { paths, ..search() };
    assert!(access.search(query).await.is_err());
    let lines = page(&access).await;
    assert_eq!((lines.len(), &lines[1]["result"]), (2, &"EntityNotFound".into()));
    assert_eq!(lines[0]["policy"], "ops");
    assert!(lines[0]["request"].as_str().unwrap().starts_with("in absent, missing"));
    stop(broker).await;
}

/// CON-23: a changed description has its values before and after.
#[tokio::test]
async fn a_change_has_the_values_before_and_after() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    for (_, path, request) in changes() {
        access.manage(path, request).await.unwrap();
    }
    let lines = page(&access).await;
    let changes = |operation: &str, place: usize| {
        let of = lines.iter().filter(|line| line["operation"] == operation);
        let ends: Vec<_> = of.filter(|line| line["stage"] == "end").collect();
        ends[place]["changes"].clone()
    };
    let value = |property: &str, before: Option<&str>, after: Option<&str>| {
        let mut change = serde_json::json!([{ "property": property }]);
        if let Some(before) = before {
            change[0]["before"] = before.into();
        }
        if let Some(after) = after {
            change[0]["after"] = after.into();
        }
        change
    };
    assert_eq!(changes("updateEntity", 0), value("lock_duration", Some("PT1M"), Some("PT2M")));
    assert_eq!(changes("updateRule", 0), value("rule r", Some("true"), Some("false")));
    assert_eq!(changes("deleteRule", 0), value("rule r", Some("false"), None));
    let [before, after] = ["Send, Listen, Manage", "Send"];
    let shown = changes("updatePolicy", 0);
    assert_eq!((&shown[0]["property"], &shown[0]["after"]), (&"policy p".into(), &after.into()));
    assert_eq!(shown[0]["before"].as_str().unwrap().len(), before.len(), "{shown}");
    stop(broker).await;
}

/// CON-23, CON-75: entries have no key, token, state or body.
#[tokio::test]
async fn entries_have_no_secrets() {
    let broker = broker(trail(true)).await;
    let access = access(&broker);
    for destination in [
        "https://user:pass@hooks.example/hidden?sig=hidden",
        "https://user:pa/ss+hidden=@hooks.example/q",
        "Endpoint=sb://hooks.example/;SharedAccessKeyName=r;SharedAccessKey=hidden",
    ] {
        let forward_to = Some(destination.into());
        let hook = QueueUpdate { forward_to, ..QueueUpdate::default() };
        let refused = access.manage("hooked", Management::CreateQueue(Box::new(hook))).await;
        assert!(refused.is_err(), "no forwarder serves {destination}");
    }
    let metadata = "SharedAccessSignature sr=x&sig=hidden&se=1".into();
    let described = QueueUpdate { user_metadata: Some(metadata), ..QueueUpdate::default() };
    access.manage("described", Management::CreateQueue(Box::new(described))).await.unwrap();
    for (_, path, request) in changes() {
        access.manage(path, request).await.unwrap();
    }
    access.sign_in("", None).await.unwrap();
    let text = serde_json::to_string(&page(&access).await).unwrap();
    for secret in [SECRET, "good-token", "a secret state", "user:pa", "=hidden", "Console "] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert!(text.contains("https://hooks.example"), "the host of an address is shown");
    stop(broker).await;
}

/// CON-23: reading has no entry; with `console.audit_reads`, opening a body has one.
#[tokio::test]
async fn reading_has_no_entry() {
    for records_reads in [false, true] {
        let broker = broker(trail(records_reads)).await;
        broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
        broker.create_topic("news", TopicUpdate::default()).await.unwrap();
        broker
            .create_subscription("news", "eu", SubscriptionUpdate::default(), Vec::new())
            .await
            .unwrap();
        let access = access(&broker);
        let page_of = Page { skip: 0, top: None };
        let clients =
            ClientQuery { transport: None, path: None, name: None, after: None, count_max: 10 };
        let sub = "news/Subscriptions/eu";
        let declaration = Declaration {
            queues: vec![DeclaredQueue { path: "x".into(), ..DeclaredQueue::default() }],
            ..Declaration::default()
        };
        let sample = SampleMessage::Plain(Message::new("a"));
        for (path, request) in [
            ("", Management::Namespace),
            ("orders", Management::Queue),
            ("", Management::Queues(page_of)),
            ("news", Management::Topic),
            ("", Management::Topics(page_of)),
            (sub, Management::Subscription),
            ("news", Management::Subscriptions(page_of)),
            ("", Management::Paths(EntityKind::Queue, page_of)),
            (sub, Management::Rules(page_of)),
            (sub, Management::Rule("$Default".into())),
            (sub, Management::Explain(Box::new(sample))),
            ("orders", Management::Policies),
            ("", Management::Plan(Box::new(declaration))),
            ("", Management::Inspect(Box::new(Question::Clients(clients)))),
        ] {
            let text = format!("{request:?}");
            access.manage(path, request).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let update = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        broker.create_queue("steps", update).await.unwrap();
        let sessions = Management::Sessions(SessionFilter::All, page_of);
        assert!(access.manage("steps", sessions).await.is_ok());
        let message = broker.inbound(Message::new("a body"));
        let entity = access.entity("orders", Action::Send).await.unwrap();
        entity.call(Command::Send { message }).await.unwrap();
        assert_eq!(page(&access).await.len(), 0);

        access.body("orders", SequenceNumber(1)).await.unwrap();
        let body = Question::Body { sequence: SequenceNumber(1), from: 0, length: 10 };
        access.manage("orders", Management::Inspect(Box::new(body))).await.unwrap();
        let lines = page(&access).await;
        let expected = if records_reads { 4 } else { 0 };
        assert_eq!(lines.len(), expected);
        assert!(lines.iter().all(|line| line["operation"] == "readBody"));
        assert!(!serde_json::to_string(&lines).unwrap().contains("a body"));
        stop(broker).await;
    }
}

/// CON-23: an action whose entry cannot be written is refused with an error that may be retried,
/// and nothing changes. Reading, and sends of clients, go on.
#[tokio::test]
async fn an_action_without_an_entry_is_refused() {
    let broker = broker(Arc::new(Broken)).await;
    let access = access(&broker);
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let refused = |error: peeklock_core::error::BrokerError| {
        assert_eq!(error.condition(), Condition::ServerBusy);
        assert!(error.condition().retryable() && error.detail().contains("nothing was changed"));
    };
    let delete = Management::Delete(EntityKind::Queue);
    refused(access.manage("orders", delete).await.unwrap_err());
    assert!(access.manage("orders", Management::Queue).await.is_ok());
    refused(access.sign_in("", None).await.unwrap_err());
    refused(access.search(search()).await.err().unwrap());
    let message = broker.inbound(Message::new("a"));
    let entity = access.entity("orders", Action::Send).await.unwrap();
    let send = Command::Send { message };
    let purge = Command::DeleteBatch { count_max: 10, enqueued_before: None };
    refused(access.audit_command("orders", &purge, true).await.unwrap_err());
    entity.call(send).await.unwrap();
    stop(broker).await;
}

fn search() -> SearchQuery {
    SearchQuery {
        paths: vec!["orders".into()],
        sub_queues: Vec::new(),
        states: HeadStates::ALL,
        is_descending: false,
        conditions: Where::default(),
        output: SearchOutput::Hits(None),
        after: None,
    }
}

/// CON-23: a search has an entry, whose result has the number of hits. A search whose reader leaves
/// has an unknown result.
#[tokio::test]
async fn searches_have_entries() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let message = broker.inbound(Message::new("a"));
    broker.entity("orders").unwrap().call(Command::Send { message }).await.unwrap();
    let mut open = access.search(search()).await.unwrap();
    while open.next().await.unwrap().end.is_none() {}
    drop(open);
    drop(access.search(search()).await.unwrap());
    let step = Question::Search(SearchStep::Begin(Box::new(SearchQuery {
        paths: Vec::new(),
        ..search()
    })));
    access.manage("orders", Management::Inspect(Box::new(step))).await.unwrap();
    let lines = page(&access).await;
    assert!(lines.iter().all(|line| line["operation"] == "search"));
    let ends: Vec<_> = lines.iter().filter(|line| line["stage"] == "end").collect();
    let results: Vec<_> = ends.iter().map(|line| line["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["done", "unknown", "done"]);
    assert_eq!(ends[0]["count"], 1);
    assert!(lines.iter().all(|line| line["resource"] == "orders"));
    stop(broker).await;
}

/// CON-23, CON-71, CON-73: sign-ins, unlocks and sign-outs have entries with the role; failed
/// sign-ins have one each, within a bound.
#[tokio::test]
async fn sign_ins_have_entries() {
    let broker = broker(trail(false)).await;
    let signed_in = access(&broker).sign_in("", None).await.unwrap();
    let with_token = broker.access(Principal::anonymous().with_token(&*signed_in.token));
    let with_token = with_token.with_console_token();
    with_token.manage("orders", Management::CreateQueue(Box::default())).await.unwrap();
    with_token.with_locked_tokens().unlock().await.unwrap();
    with_token.sign_out().await.unwrap();
    let lines = page(&access(&broker)).await;
    let facts = |line: &serde_json::Value| {
        ["operation", "stage", "role", "policy"].map(|name| line[name].as_str().unwrap().to_owned())
    };
    let expected =
        ["signIn", "createEntity", "unlock", "signOut"].into_iter().flat_map(|operation| {
            ["begin", "end"].map(|stage| [operation, stage, "admin", "ops"].map(str::to_owned))
        });
    assert_eq!(lines.iter().map(facts).collect::<Vec<_>>(), expected.collect::<Vec<_>>());

    let stranger = broker.access(Principal::anonymous().with_token("bad"));
    for _ in 0..30 {
        assert!(stranger.allow_sign_in().await.is_err());
    }
    let failed: Vec<_> = page(&access(&broker)).await.split_off(8);
    assert_eq!(failed.len(), 10);
    assert!(failed.iter().all(|line| line["result"] == "Unauthorized" && line["stage"] == "end"));
    stop(broker).await;
}

/// CON-23: sends and deletions over the API of the console have entries if an operator makes them;
/// programs have none, except for deletions.
#[tokio::test]
async fn commands_of_operators_have_entries() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let send = Command::Send { message: broker.inbound(Message::new("a")) };
    let delete = Command::DeleteBatch { count_max: 10, enqueued_before: None };
    for (is_page, command) in [(false, &send), (true, &send), (false, &delete), (true, &delete)] {
        let audited = access.audit_command("orders", command, is_page).await.unwrap();
        audited.end(AuditResult::Done, Some(3)).await;
    }
    let lines = page(&access).await;
    let operations: Vec<_> = lines.iter().map(|line| line["operation"].as_str().unwrap()).collect();
    let deleted = "deleteMessages";
    // A program with credentials may set the mark of the page; its sends have no entries.
    assert_eq!(operations, [deleted; 4]);
    assert_eq!(lines[1]["count"], 3);
    stop(broker).await;
}

/// CON-23: closing a client and applying a declaration have entries, and so have the steps.
#[tokio::test]
async fn declarations_and_closed_clients_have_entries() {
    let broker = broker(trail(false)).await;
    let access = access(&broker);
    let close = Management::CloseClient(ClientId(u64::MAX));
    assert!(access.manage("", close).await.is_err());
    let declaration = Declaration {
        queues: vec![DeclaredQueue { path: "x".into(), ..DeclaredQueue::default() }],
        ..Declaration::default()
    };
    let digest = access.plan(&declaration).await.unwrap().digest();
    let declaration = Box::new(declaration);
    let request = Management::CarryOut { declaration, digest, steps_max: None };
    access.turn_at("", request).await.unwrap().carry_out().await.unwrap();
    let lines = page(&access).await;
    let facts: Vec<_> = lines
        .iter()
        .map(|line| (line["operation"].as_str().unwrap(), line["result"].as_str()))
        .collect();
    assert_eq!(facts[0], ("closeClient", None));
    assert!(facts[1].1.is_some_and(|result| result != "done"), "{facts:?}");
    assert!(lines[1]["errorTrackingId"].is_string());
    assert_eq!(
        facts[2..],
        [
            ("apply", None),
            ("createEntity", None),
            ("createEntity", Some("done")),
            ("apply", Some("done")),
        ]
    );
    assert_eq!(lines[5]["count"], 1);
    stop(broker).await;
}

/// CON-23: without an auditor there is no trail to read.
#[tokio::test]
async fn a_broker_without_an_auditor_has_no_trail() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let question = Management::Inspect(Box::new(Question::Audit(AuditQuery::default())));
    let refused = broker.full_access().manage("", question).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidOperation);
    stop(broker).await;
}

/// CON-23, CON-39: a muted finding has entries with its kind and reason, without keys.
#[tokio::test]
async fn muted_findings_have_entries() {
    let builder = Broker::builder().authorizer(Arc::new(GoodTokens)).auditor(trail(false));
    let broker = builder.checks(ChecksConfig::default()).arbiters(1).start().await.unwrap();
    let access = access(&broker);
    access.manage("q", Management::CreateQueue(Box::default())).await.unwrap();
    let kind = CheckKind::NearlyFull;
    let mute = |reason: &str| Management::Mute(MuteChange::Mute { kind, reason: reason.into() });
    access.manage("q", mute("known")).await.unwrap();
    assert!(access.manage("q", mute("")).await.is_err());
    access.manage("q", mute("SharedAccessKey=hidden")).await.unwrap();
    access.manage("q", Management::Mute(MuteChange::Unmute { kind })).await.unwrap();
    let lines = page(&access).await;
    let of = |line: &serde_json::Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        [text("operation"), text("request") + &text("result")]
    };
    let found: Vec<[String; 2]> = lines.iter().skip(2).map(of).collect();
    let expected = [
        ["muteFinding", "nearlyFull: known"],
        ["muteFinding", "done"],
        ["muteFinding", "nearlyFull: "],
        ["muteFinding", "ArgumentOutOfRange"],
        ["muteFinding", "nearlyFull: SharedAccessKey(hidden)"],
        ["muteFinding", "done"],
        ["unmuteFinding", "nearlyFull"],
        ["unmuteFinding", "done"],
    ];
    assert_eq!(found, expected);
    assert_eq!(lines[2]["resource"], "q");
    stop(broker).await;
}
