//! Searches and groups, through the questions of operators and as objects.

use std::sync::Arc;

use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    Found, GroupBy, HeadState, HeadStates, Hit, HitPlace, Question, SearchBound, SearchEnd,
    SearchOutput, SearchPage, SearchProgress, SearchQuery, SearchStep, Where,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};

const NOW: Timestamp = Timestamp::from_unix_ms(1_777_636_800_000);

async fn start(settings: Settings) -> (Broker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW));
    let shown = Arc::clone(&clock) as Arc<dyn Clock>;
    let builder = Broker::builder().arbiters(1).clock(shown).settings(settings);
    (builder.start().await.unwrap(), clock)
}

async fn queue(broker: &Broker, path: &str) -> Entity {
    broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    broker.entity(path).unwrap()
}

async fn send(entity: &Entity, message: Message) -> SequenceNumber {
    let message = entity.broker().inbound(message);
    match entity.call(Command::SendBatch { messages: vec![message] }).await.unwrap() {
        Outcome::AcceptedBatch(numbers) => numbers[0],
        other => panic!("{other:?}"),
    }
}

fn query(paths: &[&str], line: &str) -> SearchQuery {
    SearchQuery {
        paths: paths.iter().map(|path| (*path).into()).collect(),
        sub_queues: Vec::new(),
        states: HeadStates::ALL,
        is_descending: false,
        conditions: Where::parse(line, NOW).unwrap(),
        output: SearchOutput::Hits(None),
        after: None,
    }
}

/// Searches to the end.
async fn search(broker: &Broker, query: SearchQuery) -> (Vec<Hit>, SearchProgress, SearchEnd) {
    let mut search = broker.full_access().search(query).await.unwrap();
    let mut hits = Vec::new();
    loop {
        let SearchPage { hits: more, progress, end, .. } = search.next().await.unwrap();
        hits.extend(more);
        if let Some(end) = end {
            assert_eq!(progress.hits, hits.len() as u64);
            return (hits, progress, end);
        }
    }
}

fn numbers(hits: &[Hit]) -> Vec<(String, u64)> {
    hits.iter().map(|hit| (hit.path.to_string(), hit.head.facts.message.sequence.0)).collect()
}

async fn ask(broker: &Broker, step: SearchStep) -> Result<SearchPage, BrokerError> {
    let request = Management::Inspect(Box::new(Question::Search(step)));
    match broker.full_access().manage("", request).await? {
        Managed::Findings(findings) => match findings.found {
            Found::Search(page) => Ok(page),
            other => panic!("{other:?}"),
        },
        _ => panic!("another answer"),
    }
}

/// CON-05, CON-06: one, several or all entities, any sub-queue and state, in the order of paths and
/// numbers; a hit has its head and the place of the match.
#[tokio::test]
async fn search_finds_messages_of_entities_and_sub_queues() {
    let (broker, _) = start(Settings::default()).await;
    let orders = queue(&broker, "orders").await;
    let bills = queue(&broker, "Bills").await;
    queue(&broker, "empty").await;
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    send(&orders, Message::new(r#"{"order": {"id": 17}}"#).with_subject("placed")).await;
    send(&orders, Message::new(r#"{"order": {"id": 18}}"#)).await;
    send(
        &orders,
        Message::new("later").with_scheduled_enqueue_time(NOW.plus(TimeSpan::from_days(1))),
    )
    .await;
    send(&bills, Message::new(r#"{"order": {"id": 17}, "late": true}"#)).await;
    let (mode, wait) = (ReceiveMode::PeekLock, TimeSpan::ZERO);
    let receive = Command::Receive { mode, count_max: 1, bytes_max: u64::MAX, wait, holder: None };
    let Outcome::Received(received) = orders.call(receive).await.unwrap() else { panic!() };
    let token = received[0].facts.lock.as_ref().unwrap().token;
    let limits = &broker.settings().limits;
    let settlement =
        Settlement::dead_letter(Some("poison"), Some("cannot read"), &[], limits).unwrap();
    orders.call(Command::Settle { token, settlement }).await.unwrap();

    let line = "body.$.order.id=17";
    let (hits, progress, end) = search(&broker, query(&["orders"], "body.$.order.id")).await;
    assert_eq!(numbers(&hits), [("orders".to_owned(), 2)]);
    assert_eq!((progress.messages, progress.rest, end.bound), (2, 0, None));
    let dead = "orders/$deadletterqueue";
    let (hits, ..) = search(&broker, query(&[dead, "bills", "BILLS"], line)).await;
    assert_eq!(numbers(&hits), [("Bills".to_owned(), 1), (dead.to_owned(), 1)]);
    let head = hits[1].head.content.as_ref().unwrap();
    assert_eq!(head.message.subject.as_deref(), Some("placed"));
    let excerpt = r#"{"order": {"id": 17}}"#.to_owned();
    assert_eq!(hits[1].place, Some(HitPlace::Body { found: 17..19, excerpt }));
    let mut all = query(&[], "");
    all.sub_queues = SubQueue::ALL.to_vec();
    let (hits, progress, _) = search(&broker, all.clone()).await;
    let places = [("Bills", 1), ("orders", 2), ("orders", 3), (dead, 1)];
    assert_eq!(numbers(&hits), places.map(|(path, number)| (path.to_owned(), number)));
    assert_eq!(progress.messages, 4);
    assert_eq!(hits[0].place, None);
    all.states = HeadStates::default().with(HeadState::Scheduled);
    assert_eq!(numbers(&search(&broker, all).await.0), [("orders".to_owned(), 3)]);
    let mut dead = query(&["orders"], "reason=poison description:READ");
    dead.sub_queues = vec![SubQueue::DeadLetter];
    let (hits, ..) = search(&broker, dead).await;
    let (name, excerpt) = ("DeadLetterReason".to_owned(), "poison".to_owned());
    assert_eq!(hits[0].place, Some(HitPlace::Property { name, excerpt }));
    let missing = broker.full_access().search(query(&["missing"], "")).await.err().unwrap();
    assert_eq!(missing.condition(), Condition::EntityNotFound);
}

/// CON-07, CON-08: a search ends at its bounds, names the bound, and goes on from its position, in
/// either direction, so that each message is found once.
#[tokio::test]
async fn search_goes_on_from_the_bound_that_has_ended_it() {
    let (broker, _) = start(Settings::default()).await;
    for path in ["a", "b"] {
        let entity = queue(&broker, path).await;
        for number in 0..130 {
            send(&entity, Message::new(format!("{}", number % 2))).await;
        }
    }
    for (is_descending, line, count) in [(false, "", 260), (true, "", 260), (false, "body:1", 130)]
    {
        for hits_max in [1, 7, 50, 51, 130, 131, 1_000] {
            if hits_max == 1 && count > 200 {
                continue;
            }
            let mut query = query(&["b", "a"], line);
            query.is_descending = is_descending;
            query.output = SearchOutput::Hits(Some(hits_max));
            let mut all = Vec::new();
            loop {
                let (hits, progress, end) = search(&broker, query.clone()).await;
                assert!(hits.len() <= hits_max as usize);
                all.extend(numbers(&hits));
                match end.bound {
                    None => break,
                    Some(bound) => assert_eq!(bound, SearchBound::Hits),
                }
                query.after = progress.position;
            }
            let mut expected = all.clone();
            expected.sort_by_key(|(path, number)| {
                let number = i64::try_from(*number).unwrap();
                (path.clone(), if is_descending { -number } else { number })
            });
            expected.dedup();
            assert_eq!((all.len(), &all), (count, &expected), "{line} {hits_max} {is_descending}");
        }
    }
    for (hits, is_taken) in [(0, false), (1, true), (1_000, true), (1_001, false)] {
        let mut query = query(&["a"], "");
        query.output = SearchOutput::Hits(Some(hits));
        assert_eq!(broker.full_access().search(query).await.is_ok(), is_taken, "{hits}");
    }
    for (count, is_taken) in [(100, true), (101, false)] {
        let taken = broker.full_access().search(query(&vec!["a"; count], "")).await;
        assert_eq!(taken.is_ok(), is_taken, "{count}");
    }
}

/// CON-07, CON-80: the bounds of bytes and of time end a search at the limit and not before; a
/// clause that a part of a body does not decide does not hold, and its message is counted.
#[tokio::test]
async fn bytes_and_time_of_a_search_are_bounded() {
    let mut settings = Settings::default();
    settings.limits.search_body_bytes_max = 1_000;
    let (broker, _) = start(settings.clone()).await;
    let orders = queue(&broker, "orders").await;
    for length in [999, 1_000, 1_001] {
        send(&orders, Message::new(format!("{}x", "-".repeat(length - 1)))).await;
    }
    let (hits, progress, _) = search(&broker, query(&["orders"], "body:x")).await;
    assert_eq!((hits.len(), progress.undecided), (2, 1));
    let (hits, progress, _) = search(&broker, query(&["orders"], "not body:y")).await;
    assert_eq!((hits.len(), progress.undecided), (2, 1));
    let needed = progress.bytes;

    for (bytes_max, bound) in [(needed, Some(SearchBound::Bytes)), (needed + 1, None)] {
        settings.limits.search_bytes_max = bytes_max;
        let (broker, _) = start(settings.clone()).await;
        let orders = queue(&broker, "orders").await;
        for length in [999, 1_000, 1_001, 1] {
            send(&orders, Message::new(format!("{}x", "-".repeat(length - 1)))).await;
        }
        let (_, progress, end) = search(&broker, query(&["orders"], "not body:y")).await;
        assert_eq!(end.bound, bound, "{bytes_max}");
        assert_eq!(progress.messages, if bound.is_some() { 3 } else { 4 });
    }

    let (broker, clock) = start(Settings::default()).await;
    let orders = queue(&broker, "orders").await;
    for _ in 0..3 * 50 {
        send(&orders, Message::new("x")).await;
    }
    let mut search = broker.full_access().search(query(&["orders"], "")).await.unwrap();
    // Only the time of the work counts.
    clock.advance(TimeSpan::from_seconds(100));
    assert!(search.next().await.unwrap().end.is_none());
    clock.advance(TimeSpan::from_seconds(100));
    let page = search.next().await.unwrap();
    assert_eq!((page.hits.len(), page.end), (50, None));
}

/// CON-07: two searches are open at a time. One whose reader has not asked for 2 s gives its place
/// to another; one that its reader keeps does not.
#[tokio::test]
async fn two_searches_are_open_at_a_time() {
    let (broker, clock) = start(Settings::default()).await;
    let orders = queue(&broker, "orders").await;
    for _ in 0..120 {
        send(&orders, Message::new("x")).await;
    }
    let begin = || SearchStep::Begin(Box::new(query(&["orders"], "")));
    let kept = broker.full_access().search(query(&["orders"], "")).await.unwrap();
    let polled = ask(&broker, begin()).await.unwrap();
    assert_eq!((polled.hits.len(), &polled.end), (50, &None));
    let refused = ask(&broker, begin()).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::ServerBusy);
    assert!(refused.to_string().contains("limits.search_count_max"));
    let page = ask(&broker, SearchStep::Continue(polled.search)).await.unwrap();
    assert_eq!((page.hits[0].head.facts.message.sequence.0, page.hits.len()), (51, 50));
    clock.advance(TimeSpan::from_ms(1_999));
    assert!(ask(&broker, begin()).await.is_err());
    clock.advance(TimeSpan::from_ms(1));
    let other = ask(&broker, begin()).await.unwrap();
    let lost = ask(&broker, SearchStep::Continue(polled.search)).await.unwrap_err();
    assert_eq!(lost.condition(), Condition::InvalidOperation);
    assert!(ask(&broker, begin()).await.is_err());
    // The end of a search frees its place.
    let mut step = SearchStep::Continue(other.search);
    for count in [50, 20] {
        let page = ask(&broker, step).await.unwrap();
        assert_eq!((page.hits.len(), page.end.is_some()), (count, count == 20));
        step = SearchStep::Continue(page.search);
    }
    assert!(ask(&broker, begin()).await.is_ok());
    drop(kept);
    assert!(ask(&broker, begin()).await.is_ok());
    assert!(ask(&broker, begin()).await.is_err());
}

/// CON-11: the same scan counts messages by a property, a fingerprint, a JSON path or a time slot.
#[tokio::test]
async fn messages_are_grouped_by_a_property() {
    let (broker, clock) = start(Settings::default()).await;
    let orders = queue(&broker, "orders").await;
    for number in 0..5 {
        let body = format!(r#"{{"shop": "{}"}}"#, number % 2);
        send(&orders, Message::new(body).with_subject(format!("s{}", number / 4))).await;
        clock.advance(TimeSpan::from_seconds(60));
    }
    send(&orders, Message::new("no JSON")).await;
    let groups = async |by: GroupBy, line: &str| {
        let mut query = query(&["orders"], line);
        query.output = SearchOutput::Groups(by);
        let mut search = broker.full_access().search(query).await.unwrap();
        let page = search.next().await.unwrap();
        let groups = page.end.unwrap().groups.unwrap();
        assert!(page.hits.is_empty() && groups.other.is_none());
        let shown = groups.groups.into_iter().map(|group| {
            let samples: Vec<u64> = group.group.samples.iter().map(|it| it.sequence.0).collect();
            (group.value.unwrap_or_default().into_string(), group.group.count, samples)
        });
        shown.collect::<Vec<_>>()
    };
    let path = || peeklock_core::inspect::JsonPath::parse("$.shop").unwrap();
    let own = |value: &str, count, samples: &[u64]| (value.to_owned(), count, samples.to_vec());
    let expected = [own("0", 3, &[1, 3, 5]), own("1", 2, &[2, 4]), own("", 1, &[6])];
    assert_eq!(groups(GroupBy::Json(path()), "").await, expected);
    let expected = [own("1", 2, &[2, 4])];
    assert_eq!(groups(GroupBy::Json(path()), "body.$.shop=\"1\"").await, expected);
    let expected = [own("s0", 4, &[1, 2, 3]), own("", 1, &[6]), own("s1", 1, &[5])];
    assert_eq!(groups(GroupBy::Subject, "").await, expected);
    let slots = groups(GroupBy::Slot(TimeSpan::from_minutes(3)), "").await;
    let expected =
        [own("2026-05-01T12:00:00Z", 3, &[1, 2, 3]), own("2026-05-01T12:03:00Z", 3, &[4, 5, 6])];
    assert_eq!(slots, expected);
}

/// CON-01, CON-05: a search leaves a temporary entity idle, and no message locked or counted.
#[tokio::test]
async fn search_is_no_use_of_an_entity() {
    let (broker, clock) = start(Settings::default()).await;
    let update = QueueUpdate {
        auto_delete_on_idle: Some(TimeSpan::from_minutes(5)),
        ..QueueUpdate::default()
    };
    broker.create_queue("orders", update).await.unwrap();
    let orders = broker.entity("orders").unwrap();
    send(&orders, Message::new("x")).await;
    let before = orders.call(Command::Describe).await.unwrap();
    for _ in 0..4 {
        clock.advance(TimeSpan::from_minutes(1));
        assert_eq!(search(&broker, query(&[], "x")).await.0.len(), 1);
    }
    let after = orders.call(Command::Describe).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
}
