//! Topology and checks of a running broker (CON-38, CON-39).

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{
    EntityKind, EntityStatus, QueueUpdate, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::inspect::{
    CheckFinding, CheckKind, ChecksPage, ChecksQuery, Found, MUTE_COUNT_MAX, MuteChange, NodeKind,
    Question, Topology, TopologyQuery,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, ChecksConfig, Entity};

const START: Timestamp = Timestamp::from_unix_ms(1_700_000_100_000);
const MINUTE: TimeSpan = TimeSpan::from_minutes(1);

async fn start(config: ChecksConfig) -> (Broker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let shown = Arc::clone(&clock) as Arc<dyn Clock>;
    let builder = Broker::builder().arbiters(1).clock(shown).count_internal_work();
    (builder.checks(config).start().await.unwrap(), clock)
}

async fn ask(broker: &Broker, question: Question) -> Result<Found, BrokerError> {
    let request = Management::Inspect(Box::new(question));
    match broker.full_access().manage("", request).await? {
        Managed::Findings(findings) => Ok(findings.found),
        _ => panic!("another answer"),
    }
}

async fn checks(broker: &Broker, query: ChecksQuery) -> ChecksPage {
    match ask(broker, Question::Checks(query)).await.unwrap() {
        Found::Checks(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Returns the findings after a minute, as `kind path`.
async fn found(broker: &Broker, clock: &ManualClock) -> Vec<String> {
    broker.idle().await;
    clock.advance_silently(MINUTE);
    let page = checks(broker, ChecksQuery::default()).await;
    assert_eq!(page.checked_at, clock.now());
    page.findings.iter().map(|it| format!("{} {}", it.kind.name(), it.path)).collect()
}

async fn one(broker: &Broker, kind: CheckKind) -> CheckFinding {
    let query = ChecksQuery { kind: Some(kind), ..ChecksQuery::default() };
    checks(broker, query).await.findings.remove(0)
}

async fn topology(broker: &Broker, query: TopologyQuery) -> Topology {
    match ask(broker, Question::Topology(query)).await.unwrap() {
        Found::Topology(topology) => topology,
        other => panic!("{other:?}"),
    }
}

async fn queue(broker: &Broker, path: &str, update: QueueUpdate) {
    broker.create_queue(path, update).await.unwrap();
}

async fn send(entity: &Entity, count: usize) {
    let message = || entity.broker().inbound(Message::new("a body"));
    let messages = (0..count).map(|_| message()).collect();
    entity.call(Command::SendBatch { messages }).await.unwrap();
}

async fn receive(entity: &Entity, settlement: Option<Settlement>) {
    let (mode, bytes_max, wait) = (ReceiveMode::PeekLock, u64::MAX, TimeSpan::ZERO);
    let receive = Command::Receive { mode, count_max: 1, bytes_max, wait, holder: None };
    let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
    let token = messages[0].facts.lock.unwrap().token;
    if let Some(settlement) = settlement {
        entity.call(Command::Settle { token, settlement }).await.unwrap();
    }
}

fn mute(kind: CheckKind, reason: &str) -> Management {
    Management::Mute(MuteChange::Mute { kind, reason: reason.into() })
}

/// CON-38: the topology follows changes of the entities, with waiting and forwarded messages.
#[tokio::test]
async fn topology_follows_the_entities() {
    let (broker, clock) = start(ChecksConfig::default()).await;
    queue(&broker, "archive", QueueUpdate::default()).await;
    queue(&broker, "orders", QueueUpdate::default()).await;
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let to = SubscriptionUpdate::default().with_forward_to("orders");
    broker.create_subscription("events", "all", to, Vec::new()).await.unwrap();
    clock.advance_silently(TimeSpan::from_seconds(2));
    let shown = topology(&broker, TopologyQuery::default()).await;
    assert_eq!((shown.nodes.len(), shown.edges.len()), (4, 2));
    assert_eq!(shown.longest_chain.unwrap().hops, 1);
    let update = QueueUpdate::default().with_forward_to("archive");
    broker.update_queue("orders", update, None).await.unwrap();
    send(&broker.entity("events").unwrap(), 4).await;
    broker.idle().await;
    clock.advance_silently(TimeSpan::from_seconds(2));
    let shown = topology(&broker, TopologyQuery::default()).await;
    let chain = shown.longest_chain.unwrap();
    assert_eq!(chain.names.join(" "), "events events/Subscriptions/all orders archive");
    let edge = &shown.edges[1];
    assert_eq!(edge.rate, Some(2.0), "4 messages in 2 s: {:?}", shown.edges);
    assert_eq!((edge.waiting, edge.failed), (Some(0), Some(0)));
    let NodeKind::Entity(archive) = &shown.nodes[0].kind else { panic!("{:?}", shown.nodes) };
    assert_eq!(archive.readings.counts.active, 4);
    let around = TopologyQuery { around: Some("none".into()), ..TopologyQuery::default() };
    let absent = ask(&broker, Question::Topology(around)).await.unwrap_err();
    assert_eq!(absent.condition(), Condition::EntityNotFound);
    broker.delete("orders", EntityKind::Queue).await.unwrap();
    clock.advance_silently(TimeSpan::from_seconds(2));
    let shown = topology(&broker, TopologyQuery::default()).await;
    assert_eq!(shown.nodes[3].kind, NodeKind::Unknown, "{:?}", shown.nodes);
}

/// CON-39: missing and disabled destinations, circles, and chains over the limit of hops.
#[tokio::test]
async fn checks_find_faults_of_forwarding() {
    let (broker, clock) = start(ChecksConfig::default()).await;
    for number in 0..6 {
        queue(&broker, &format!("q{number}"), QueueUpdate::default()).await;
    }
    assert_eq!(found(&broker, &clock).await, [""; 0]);
    let to = |path: &str| QueueUpdate::default().with_forward_to(path);
    for number in 0..5 {
        let (from, next) = (format!("q{number}"), format!("q{}", number + 1));
        broker.update_queue(&from, to(&next), None).await.unwrap();
    }
    assert_eq!(found(&broker, &clock).await, ["chainTooLong q0"]);
    let since = clock.now();
    let chain = one(&broker, CheckKind::ChainTooLong).await;
    assert_eq!(&*chain.detail, "a chain of 5 hops; a message may make 4");
    assert_eq!(chain.others.join(" "), "q1 q2 q3 q4 q5");
    assert_eq!(found(&broker, &clock).await, ["chainTooLong q0"]);
    assert_eq!(one(&broker, CheckKind::ChainTooLong).await.since, since, "the first check");
    broker.update_queue("q5", to("q3"), None).await.unwrap();
    assert_eq!(found(&broker, &clock).await, ["forwardCircle q3"]);
    assert_eq!(one(&broker, CheckKind::ForwardCircle).await.others.join(" "), "q4 q5");
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..to("q5") };
    broker.update_queue("q4", disabled, None).await.unwrap();
    broker.delete("q5", EntityKind::Queue).await.unwrap();
    let expected = ["chainTooLong q0", "destinationDisabled q3", "destinationMissing q4"];
    assert_eq!(found(&broker, &clock).await, expected);
    assert_eq!(one(&broker, CheckKind::DestinationMissing).await.others.join(" "), "q5");
}

/// CON-39: dead letters and backlogs that grow in two checks, until somebody takes from them.
#[tokio::test]
async fn checks_find_messages_that_nobody_takes() {
    let (broker, clock) = start(ChecksConfig::default()).await;
    queue(&broker, "orders", QueueUpdate::default()).await;
    let orders = broker.entity("orders").unwrap();
    assert_eq!(found(&broker, &clock).await, [""; 0]);
    send(&orders, 1).await;
    assert_eq!(found(&broker, &clock).await, [""; 0], "it grew once");
    let since = clock.now();
    send(&orders, 1).await;
    assert_eq!(found(&broker, &clock).await, ["backlogWithoutReceiver orders"]);
    assert_eq!(one(&broker, CheckKind::BacklogWithoutReceiver).await.since, since);
    receive(&orders, Some(Settlement::DeadLetter { properties: None })).await;
    assert_eq!(found(&broker, &clock).await, [""; 0], "somebody receives");
    receive(&orders, Some(Settlement::DeadLetter { properties: None })).await;
    assert_eq!(found(&broker, &clock).await, ["deadLettersUnread orders"]);
    let dead = broker.entity("orders/$DeadLetterQueue").unwrap();
    receive(&dead, Some(Settlement::Complete)).await;
    assert_eq!(found(&broker, &clock).await, [""; 0], "somebody reads them");
    // More come than somebody takes.
    for _ in 0..3 {
        send(&orders, 2).await;
        for _ in 0..2 {
            receive(&orders, Some(Settlement::DeadLetter { properties: None })).await;
        }
        receive(&dead, Some(Settlement::Complete)).await;
        assert_eq!(found(&broker, &clock).await, [""; 0], "somebody reads them");
    }
}

/// CON-39: an entity with two faulty destinations has one finding for both.
#[tokio::test]
async fn two_missing_destinations_are_one_finding() {
    let (broker, clock) = start(ChecksConfig::default()).await;
    queue(&broker, "a", QueueUpdate::default()).await;
    queue(&broker, "b", QueueUpdate::default()).await;
    let both = QueueUpdate::default().with_forward_to("a").with_forward_dead_letters_to("b");
    queue(&broker, "from", both).await;
    broker.delete("a", EntityKind::Queue).await.unwrap();
    assert_eq!(found(&broker, &clock).await, ["destinationMissing from"]);
    let since = one(&broker, CheckKind::DestinationMissing).await.since;
    broker.delete("b", EntityKind::Queue).await.unwrap();
    assert_eq!(found(&broker, &clock).await, ["destinationMissing from"]);
    let finding = one(&broker, CheckKind::DestinationMissing).await;
    assert_eq!((finding.since, finding.others.join(" ")), (since, "a b".to_owned()));
    assert!(finding.detail.contains("; ForwardDeadLetteredMessagesTo names `b`"), "{finding:?}");
    let page = checks(&broker, ChecksQuery::default()).await;
    assert_eq!((page.total, page.left_out_count), (1, 0));
}

/// CON-39: a consumer that renews its locks in time is not reported, however long it works.
#[tokio::test]
async fn renewed_locks_are_long_enough() {
    let (broker, clock) = start(ChecksConfig::default()).await;
    let short = QueueUpdate::default().with_lock_duration(TimeSpan::from_seconds(10));
    queue(&broker, "slow", short).await;
    let slow = broker.entity("slow").unwrap();
    send(&slow, 100).await;
    let (mode, bytes_max, wait) = (ReceiveMode::PeekLock, u64::MAX, TimeSpan::ZERO);
    let receive = Command::Receive { mode, count_max: 100, bytes_max, wait, holder: None };
    let Outcome::Received(messages) = slow.call(receive).await.unwrap() else { panic!() };
    let tokens: Vec<_> = messages.iter().map(|it| it.facts.lock.unwrap().token).collect();
    assert_eq!(tokens.len(), 100);
    for _ in 0..3 {
        clock.advance_silently(TimeSpan::from_seconds(8));
        for token in &tokens {
            slow.call(Command::RenewLock { token: *token }).await.unwrap();
        }
    }
    for token in tokens {
        let settlement = Settlement::Complete;
        slow.call(Command::Settle { token, settlement }).await.unwrap();
    }
    assert_eq!(found(&broker, &clock).await, [""; 0]);
}

/// CON-39: a rule `$Default` next to others, sizes, receivers and times under lock.
#[tokio::test]
async fn checks_find_settings_that_do_not_fit() {
    let clock = Arc::new(ManualClock::at(START));
    let mut settings = peeklock_core::description::Settings::default();
    settings.limits.receiver_count_max = 4;
    let builder = Broker::builder().settings(settings).arbiters(1).count_internal_work();
    let builder = builder.clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let broker = builder.checks(ChecksConfig::default()).start().await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let rule = |name: &str, filter| RuleDescription::new(name, filter, START);
    let rules = vec![rule("$default", Filter::True), rule("other", Filter::False)];
    let none = SubscriptionUpdate::default;
    broker.create_subscription("events", "both", none(), rules).await.unwrap();
    let rules = vec![rule("$Default", Filter::False), rule("other", Filter::True)];
    broker.create_subscription("events", "fine", none(), rules).await.unwrap();
    broker.create_subscription("events", "plain", none(), Vec::new()).await.unwrap();
    let expected = ["defaultRuleAmongOthers events/Subscriptions/both"];
    assert_eq!(found(&broker, &clock).await, expected);
    broker.delete_rule("events/Subscriptions/both", "other").await.unwrap();
    assert_eq!(found(&broker, &clock).await, [""; 0]);
    broker.create_rule("events/Subscriptions/both", rule("other", Filter::False)).await.unwrap();
    assert_eq!(found(&broker, &clock).await, expected);
    broker.delete_rule("events/Subscriptions/both", "$Default").await.unwrap();
    assert_eq!(found(&broker, &clock).await, [""; 0]);
    // Each lock of 100 lasts to its end.
    let short = QueueUpdate::default().with_lock_duration(TimeSpan::from_seconds(10));
    queue(&broker, "slow", short).await;
    let slow = broker.entity("slow").unwrap();
    send(&slow, 100).await;
    for _ in 0..100 {
        receive(&slow, None).await;
    }
    clock.advance_silently(TimeSpan::from_seconds(11));
    // The next turn ends the locks.
    send(&slow, 1).await;
    assert_eq!(found(&broker, &clock).await, ["lockTooShort slow"]);
    let longer = QueueUpdate::default().with_lock_duration(MINUTE);
    broker.update_queue("slow", longer, None).await.unwrap();
    assert_eq!(found(&broker, &clock).await, [""; 0]);
    // Four of at most four receivers.
    queue(&broker, "busy", QueueUpdate::default()).await;
    let busy = broker.entity("busy").unwrap();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let (mode, bytes_max, wait) = (ReceiveMode::PeekLock, u64::MAX, TimeSpan::from_minutes(2));
        let receive = Command::Receive { mode, count_max: 1, bytes_max, wait, holder: None };
        let mut call = Box::pin(busy.call(receive));
        tokio::select! {
            biased;
            _ = &mut call => panic!("there is no message"),
            () = std::future::ready(()) => {}
        }
        waiting.push(call);
    }
    assert_eq!(found(&broker, &clock).await, ["manyReceivers busy"]);
}

/// A clock that is 5 s before the clock of its machine.
struct LateClock(ManualClock);

#[async_trait]
impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.sleep_until(at).await;
    }

    fn offset(&self) -> TimeSpan {
        TimeSpan::from_seconds(5)
    }
}

/// CON-39: findings about the broker: store, clock, connections, access.
#[tokio::test]
async fn checks_find_faults_of_the_broker() {
    let config = ChecksConfig {
        directory: None,
        connection_count_max: vec![("amqp", 5), ("http", 5)],
        admits_anonymous_machines: true,
    };
    let store = MemoryStore::new(1, 1 << 20);
    let clock = Arc::new(LateClock(ManualClock::at(START)));
    let builder = Broker::builder().arbiters(1).clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let builder = builder.store(Arc::new(store)).count_internal_work().checks(config);
    let broker = builder.start().await.unwrap();
    queue(&broker, "q", QueueUpdate::default()).await;
    let clients: Vec<_> = (0..5).map(|_| broker.client("amqp", None)).collect();
    let message = || broker.inbound(Message::new(vec![b'x'; 150 << 10]));
    for _ in 0..6 {
        let send = Command::Send { message: message() };
        broker.entity("q").unwrap().call(send).await.ok();
    }
    broker.idle().await;
    clock.0.advance_silently(MINUTE);
    let page = checks(&broker, ChecksQuery::default()).await;
    let kinds: Vec<CheckKind> = page.findings.iter().map(|it| it.kind).collect();
    let expected = [
        CheckKind::DiskNearlyFull,
        CheckKind::AnonymousBeyondLoopback,
        CheckKind::ManyConnections,
        CheckKind::ClockStep,
    ];
    assert_eq!(kinds, expected, "{:?}", page.findings);
    assert!(page.findings.iter().all(|it| it.path.is_empty()));
    assert_eq!(&*page.findings[2].detail, "amqp has 5 of 5 connections");
    drop(clients);
    clock.0.advance_silently(MINUTE);
    let page = checks(&broker, ChecksQuery::default()).await;
    assert!(page.findings.iter().all(|it| it.kind != CheckKind::ManyConnections));
}

/// CON-39: a finding is muted with a reason, also over a restart, until it is unmuted or its entity
/// is deleted.
#[tokio::test]
async fn findings_are_muted_durably() {
    let folder = std::env::temp_dir().join(format!("peeklock-checks-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let config = || ChecksConfig {
        directory: Some(folder.clone()),
        admits_anonymous_machines: true,
        ..ChecksConfig::default()
    };
    let (kind, broker_kind) = (CheckKind::NearlyFull, CheckKind::AnonymousBeyondLoopback);
    {
        let (broker, clock) = start(config()).await;
        queue(&broker, "orders", QueueUpdate::default()).await;
        let access = broker.full_access();
        access.manage("", mute(broker_kind, "a test")).await.unwrap();
        access.manage("Orders", mute(kind, "known")).await.unwrap();
        let refused = [
            ("none", mute(kind, "x"), Condition::EntityNotFound),
            ("orders", mute(kind, ""), Condition::ArgumentOutOfRange),
            ("orders", mute(kind, "a\nb"), Condition::ArgumentError),
        ];
        for (path, request, condition) in refused {
            let refusal = access.manage(path, request).await.unwrap_err();
            assert_eq!(refusal.condition(), condition);
        }
        clock.advance_silently(MINUTE);
        let page = checks(&broker, ChecksQuery::default()).await;
        assert_eq!((page.total, page.muted_count), (1, 1));
        let muted = page.findings[0].muted.as_ref().unwrap();
        assert_eq!((&*muted.reason, muted.at), ("a test", START));
        let others = ChecksQuery { is_muted: Some(false), ..ChecksQuery::default() };
        assert_eq!(checks(&broker, others).await.total, 0);
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
    let file = folder.join("muted");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("anonymousBeyondLoopback\t"), "{text}");
    assert!(text.contains("\torders\tknown\n"), "{text}");
    let (broker, clock) = start(config()).await;
    assert_eq!(checks(&broker, ChecksQuery::default()).await.muted_count, 1);
    let unmute = Management::Mute(MuteChange::Unmute { kind: broker_kind });
    broker.full_access().manage("", unmute.clone()).await.unwrap();
    broker.full_access().manage("", unmute).await.unwrap();
    assert_eq!(checks(&broker, ChecksQuery::default()).await.muted_count, 0);
    // The entity is gone in this store, so its mute is forgotten with the next change.
    clock.advance_silently(MINUTE);
    checks(&broker, ChecksQuery::default()).await;
    broker.full_access().manage("", mute(broker_kind, "again")).await.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("orders") && text.contains("\tagain\n"), "{text}");
    broker.stop(std::time::Duration::ZERO).await.unwrap();
    std::fs::write(&file, text.replace("again", "other")).unwrap();
    let (broker, _) = start(config()).await;
    assert_eq!(checks(&broker, ChecksQuery::default()).await.muted_count, 0);
    assert!(file.with_extension("damaged").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// CON-39, CON-80: at most 1,000 findings are muted; a reason can be replaced at the limit.
#[tokio::test]
async fn muted_findings_are_bounded() {
    let (broker, _) = start(ChecksConfig::default()).await;
    let access = broker.full_access();
    let kinds = CheckKind::ALL;
    let queue_count = MUTE_COUNT_MAX.div_ceil(kinds.len());
    for number in 0..queue_count {
        queue(&broker, &format!("q{number}"), QueueUpdate::default()).await;
    }
    for count in 0..=MUTE_COUNT_MAX {
        let (path, kind) = (format!("q{}", count / kinds.len()), kinds[count % kinds.len()]);
        let result = access.manage(&path, mute(kind, "x")).await;
        match result {
            Ok(_) => assert!(count < MUTE_COUNT_MAX),
            Err(error) => {
                assert_eq!(count, MUTE_COUNT_MAX);
                assert_eq!(error.condition(), Condition::QuotaExceeded);
            }
        }
    }
    access.manage("q0", mute(kinds[0], "another")).await.unwrap();
}

/// CON-39: a broker without checks refuses the question.
#[tokio::test]
async fn checks_are_off_by_default() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let refusal = ask(&broker, Question::Checks(ChecksQuery::default())).await.unwrap_err();
    assert_eq!(refusal.condition(), Condition::InvalidOperation);
    let muted = broker.full_access().manage("", mute(CheckKind::ClockStep, "x")).await;
    assert_eq!(muted.unwrap_err().condition(), Condition::InvalidOperation);
}
