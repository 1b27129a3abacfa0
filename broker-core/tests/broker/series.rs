//! Series of counts, gauges and times, through the questions of operators (CON-31, CON-32).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::inspect::{Found, Question, Resolution, Series, SeriesColumn, SeriesQuery};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::store::{MemoryStore, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity, SeriesConfig};

/// A full quarter of an hour.
const START: Timestamp = Timestamp::from_unix_ms(1_700_000_100_000);

async fn start() -> (Broker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let shown = Arc::clone(&clock) as Arc<dyn Clock>;
    let series = SeriesConfig::default();
    let builder = Broker::builder().arbiters(1).clock(shown).count_internal_work();
    let broker = builder.series(series).start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    (broker, clock)
}

async fn ask(broker: &Broker, path: &str, query: SeriesQuery) -> Result<Series, BrokerError> {
    let request = Management::Inspect(Box::new(Question::Series(query)));
    match broker.full_access().manage(path, request).await? {
        Managed::Findings(findings) => match findings.found {
            Found::Series(series) => Ok(series),
            other => panic!("{other:?}"),
        },
        _ => panic!("another answer"),
    }
}

/// Returns the values of a column, from the start of the test on.
async fn values(
    broker: &Broker,
    path: &str,
    (resolution, column): (Resolution, SeriesColumn),
) -> Vec<Option<u64>> {
    let query = SeriesQuery {
        from: Some(START),
        until: None,
        resolution: Some(resolution),
        columns: vec![column],
    };
    let series = ask(broker, path, query).await.unwrap();
    assert_eq!((series.from, series.resolution), (START, resolution));
    let [column] = &series.columns[..] else { panic!("{series:?}") };
    column.values.clone()
}

/// Takes the sample of this second, as soon as the broker has read its files.
async fn sampled(broker: &Broker) {
    while ask(broker, "", SeriesQuery::default()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Lets a second pass, and takes its sample.
async fn tick(broker: &Broker, clock: &ManualClock) {
    clock.advance_silently(TimeSpan::from_seconds(1));
    sampled(broker).await;
}

async fn send(entity: &Entity, count: usize) {
    let message = || entity.broker().inbound(Message::new("a body"));
    let messages = (0..count).map(|_| message()).collect();
    entity.call(Command::SendBatch { messages }).await.unwrap();
}

async fn receive(entity: &Entity, count_max: u32) -> Vec<LockToken> {
    let (mode, bytes_max, wait) = (ReceiveMode::PeekLock, u64::MAX, TimeSpan::ZERO);
    let receive = Command::Receive { mode, count_max, bytes_max, wait, holder: None };
    let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
    messages.iter().map(|message| message.facts.lock.unwrap().token).collect()
}

async fn settle(entity: &Entity, token: LockToken, settlement: Settlement) {
    entity.call(Command::Settle { token, settlement }).await.unwrap();
}

/// CON-31, CON-32: seconds with their counts, gauges and times; the namespace has the sums.
#[tokio::test]
async fn series_count_each_second() {
    let (broker, clock) = start().await;
    sampled(&broker).await;
    let orders = broker.entity("orders").unwrap();
    send(&orders, 5).await;
    // The messages are available when the broker has noted that they are durable.
    broker.idle().await;
    tick(&broker, &clock).await;
    let tokens = receive(&orders, 3).await;
    tick(&broker, &clock).await;
    settle(&orders, tokens[0], Settlement::Complete).await;
    settle(&orders, tokens[1], Settlement::Abandon { properties: None, delay: None }).await;
    settle(&orders, tokens[2], Settlement::DeadLetter { properties: None }).await;
    tick(&broker, &clock).await;
    tick(&broker, &clock).await;
    for path in ["orders", "", "ORDERS"] {
        for (column, expected) in [
            (SeriesColumn::Accepted, [5, 0, 0, 0]),
            (SeriesColumn::Delivered, [0, 3, 0, 0]),
            (SeriesColumn::Completed, [0, 0, 1, 0]),
            (SeriesColumn::Failed, [0, 0, 1, 0]),
            (SeriesColumn::DeadLetteredApplication, [0, 0, 1, 0]),
            (SeriesColumn::DeadLetteredRule, [0, 0, 0, 0]),
            (SeriesColumn::Active, [5, 5, 3, 3]),
            (SeriesColumn::Locked, [0, 3, 0, 0]),
            (SeriesColumn::DeadLetters, [0, 0, 1, 1]),
            (SeriesColumn::OldestAge, [1_000, 2_000, 3_000, 4_000]),
        ] {
            let shown = values(&broker, path, (Resolution::Second, column)).await;
            assert_eq!(shown, expected.map(Some), "{path} {column:?}");
        }
        // Each waited for one second, and was locked for one second.
        for (column, place) in [
            (SeriesColumn::WaitP50, 1),
            (SeriesColumn::WaitP99, 1),
            (SeriesColumn::LockP50, 2),
            (SeriesColumn::LockP95, 2),
        ] {
            let shown = values(&broker, path, (Resolution::Second, column)).await;
            let time = shown[place].unwrap();
            assert!((1_000_000..1_420_000).contains(&time), "{path} {column:?} {shown:?}");
            assert_eq!(shown.iter().flatten().count(), 1, "{path} {column:?} {shown:?}");
        }
    }
}

/// CON-32: an answer marks gaps, and has no zero for an unknown value.
#[tokio::test]
async fn series_mark_gaps() {
    let (broker, clock) = start().await;
    broker.create_queue("idle", QueueUpdate::default()).await.unwrap();
    sampled(&broker).await;
    let orders = broker.entity("orders").unwrap();
    send(&orders, 1).await;
    tick(&broker, &clock).await;
    // No sample for three seconds: they have no counts.
    clock.advance_silently(TimeSpan::from_seconds(2));
    send(&orders, 7).await;
    send(&broker.entity("idle").unwrap(), 1).await;
    tick(&broker, &clock).await;
    tick(&broker, &clock).await;
    let second = (Resolution::Second, SeriesColumn::Accepted);
    let expected = [Some(1), None, None, None, Some(0)];
    assert_eq!(values(&broker, "orders", second).await, expected);
    let expected = [Some(0), None, None, None, Some(0)];
    assert_eq!(values(&broker, "idle", second).await, expected);
    // A minute has them.
    clock.advance_silently(TimeSpan::from_seconds(54));
    tick(&broker, &clock).await;
    let minute = (Resolution::Minute, SeriesColumn::Accepted);
    assert_eq!(values(&broker, "orders", minute).await, [Some(8)]);
    // A pause of several minutes is a gap, and its first whole minute is known again.
    clock.advance_silently(TimeSpan::from_seconds(179));
    tick(&broker, &clock).await;
    clock.advance_silently(TimeSpan::from_seconds(59));
    tick(&broker, &clock).await;
    assert_eq!(values(&broker, "", minute).await, [Some(9), None, None, None, Some(0)]);
    // Before the start nothing is known.
    let before = SeriesQuery {
        from: Some(START.minus(TimeSpan::from_minutes(2))),
        until: Some(START),
        resolution: Some(Resolution::Minute),
        columns: vec![SeriesColumn::Active],
    };
    for path in ["orders", ""] {
        let series = ask(&broker, path, before.clone()).await.unwrap();
        assert_eq!(series.columns[0].values, [None, None], "{path}");
    }
}

/// CON-31: copies count at the topic and at their subscriptions; messages that expire, and
/// messages that are forwarded, count at both ends.
#[tokio::test]
async fn series_count_copies_expiry_and_forwarding() {
    let (broker, clock) = start().await;
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let update = SubscriptionUpdate::default();
    broker.create_subscription("events", "audit", update.clone(), Vec::new()).await.unwrap();
    let update = update.with_forward_to("orders");
    broker.create_subscription("events", "copy", update, Vec::new()).await.unwrap();
    sampled(&broker).await;
    let lives = TimeSpan::from_ms(500);
    let message = Message::new("x").with_time_to_live(lives);
    let message = broker.inbound(message);
    broker.entity("events").unwrap().call(Command::Send { message }).await.unwrap();
    // The subscription has taken its copy when it answers.
    let audit = broker.entity("events/subscriptions/audit").unwrap();
    audit.call(Command::Describe).await.unwrap();
    broker.idle().await;
    tick(&broker, &clock).await;
    // Both expire, and are removed when a receiver asks.
    for entity in [&audit, &broker.entity("orders").unwrap()] {
        assert!(receive(entity, 1).await.is_empty());
    }
    broker.idle().await;
    tick(&broker, &clock).await;
    for (path, column, expected) in [
        ("events", SeriesColumn::Accepted, 1),
        ("events/Subscriptions/audit", SeriesColumn::Accepted, 1),
        ("events/Subscriptions/audit", SeriesColumn::Expired, 1),
        ("events/Subscriptions/copy", SeriesColumn::ForwardedOut, 1),
        ("orders", SeriesColumn::ForwardedIn, 1),
        ("orders", SeriesColumn::Accepted, 1),
        ("orders", SeriesColumn::Expired, 1),
        ("", SeriesColumn::Expired, 2),
        ("", SeriesColumn::Accepted, 4),
    ] {
        let shown = values(&broker, path, (Resolution::Second, column)).await;
        assert_eq!(shown.into_iter().flatten().sum::<u64>(), expected, "{path} {column:?}");
    }
}

/// CON-31, DUP-02, DUP-10: a duplicate counts where it is dropped, also after it was forwarded.
#[tokio::test]
async fn series_count_dropped_duplicates() {
    let (broker, clock) = start().await;
    let window = TimeSpan::from_minutes(10);
    let once = QueueUpdate::default().with_duplicate_detection(window);
    broker.create_queue("once", once).await.unwrap();
    let topic = TopicUpdate::default().with_duplicate_detection(window);
    broker.create_topic("events", topic).await.unwrap();
    for (path, to) in [("inbox", "once"), ("outbox", "events")] {
        broker.create_queue(path, QueueUpdate::default().with_forward_to(to)).await.unwrap();
    }
    sampled(&broker).await;
    for path in ["once", "once", "inbox", "inbox", "events", "events", "events", "outbox"] {
        let message = broker.inbound(Message::new("x").with_message_id("order-1"));
        broker.entity(path).unwrap().call(Command::Send { message }).await.unwrap();
    }
    broker.idle().await;
    tick(&broker, &clock).await;
    for (path, accepted, dropped) in
        [("once", 1, 3), ("inbox", 2, 0), ("events", 1, 3), ("outbox", 1, 0), ("", 5, 6)]
    {
        let sum = async |column| {
            let shown = values(&broker, path, (Resolution::Second, column)).await;
            shown.into_iter().flatten().sum::<u64>()
        };
        let found = (sum(SeriesColumn::Accepted).await, sum(SeriesColumn::Duplicates).await);
        assert_eq!(found, (accepted, dropped), "{path}");
    }
}

/// CON-32: the resolution follows the span, an answer has at most 3,600 slots, and an unknown
/// entity is refused.
#[tokio::test]
async fn answers_state_their_resolution() {
    let (broker, clock) = start().await;
    sampled(&broker).await;
    tick(&broker, &clock).await;
    let now = clock.now();
    let query = |seconds, resolution| SeriesQuery {
        from: Some(now.minus(TimeSpan::from_seconds(seconds))),
        resolution,
        ..SeriesQuery::default()
    };
    for (seconds, resolution, count) in [
        (720, Resolution::Second, 720),
        (721, Resolution::Minute, 13),
        (86_400, Resolution::QuarterHour, 97),
    ] {
        let series = ask(&broker, "", query(seconds, None)).await.unwrap();
        assert_eq!(series.resolution, resolution, "{seconds}");
        assert!(series.columns.iter().all(|column| column.values.len().abs_diff(count) <= 1));
        assert_eq!(series.columns.len(), SeriesColumn::ALL.len());
    }
    let most = ask(&broker, "", query(3_600, Some(Resolution::Second))).await.unwrap();
    assert_eq!(most.columns[0].values.len(), 3_600);
    let error = ask(&broker, "", query(3_601, Some(Resolution::Second))).await.unwrap_err();
    assert_eq!(error.condition(), Condition::ArgumentOutOfRange);
    let error = ask(&broker, "none", SeriesQuery::default()).await.unwrap_err();
    assert_eq!(error.condition(), Condition::EntityNotFound);
    let future = SeriesQuery { from: Some(now.plus(TimeSpan::from_days(1))), ..query(0, None) };
    assert!(ask(&broker, "", future).await.unwrap().columns[0].values.is_empty());
}

/// CON-31: a broker without series refuses the question and names the setting.
#[tokio::test]
async fn broker_without_series_names_the_setting() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let error = ask(&broker, "", SeriesQuery::default()).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    assert!(error.detail().contains("console.series"), "{}", error.detail());
}

/// CON-32: without room an entity has no rows, which is not known, never zero; the namespace counts
/// its messages.
#[tokio::test]
async fn entity_without_room_is_unknown() {
    let clock = Arc::new(ManualClock::at(START));
    let shown = Arc::clone(&clock) as Arc<dyn Clock>;
    let series = SeriesConfig { bytes_max: 0, ..SeriesConfig::default() };
    let builder = Broker::builder().arbiters(1).clock(shown).series(series);
    let broker = builder.start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    sampled(&broker).await;
    let orders = broker.entity("orders").unwrap();
    for count in 1..=3 {
        send(&orders, count).await;
        tick(&broker, &clock).await;
    }
    tick(&broker, &clock).await;
    let second = (Resolution::Second, SeriesColumn::Accepted);
    assert_eq!(values(&broker, "", second).await, [1, 2, 3, 0].map(Some));
    assert_eq!(values(&broker, "orders", second).await, [None, None, None, Some(0)]);
}

/// Series with files, for a broker that is started again.
struct Restarts {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    folder: PathBuf,
}

impl Restarts {
    fn new(name: &str) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let store = Arc::new(MemoryStore::new(1, u64::MAX));
        let folder = format!("peeklock-series-{name}-{}", std::process::id());
        Self { clock, store, folder: std::env::temp_dir().join(folder) }
    }

    async fn start(&self, folder: &Path) -> Broker {
        let directory = Some(folder.to_owned());
        let series = SeriesConfig { directory, ..SeriesConfig::default() };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let builder = Broker::builder().arbiters(1).clock(clock).series(series);
        let broker = builder.store(Arc::clone(&self.store)).start().await.unwrap();
        sampled(&broker).await;
        broker
    }

    /// Lets seconds pass, without samples but the last.
    async fn pass(&self, broker: &Broker, seconds: i64) {
        self.clock.advance_silently(TimeSpan::from_seconds(seconds - 1));
        tick(broker, &self.clock).await;
    }
}

/// CON-32: rows of a minute survive a stop; the time without a broker is a gap. A damaged file is
/// put aside, and the broker starts without it.
#[tokio::test]
async fn minutes_survive_a_restart() {
    let restarts = Restarts::new("stop");
    let broker = restarts.start(&restarts.folder).await;
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    send(&broker.entity("orders").unwrap(), 3).await;
    restarts.pass(&broker, 60).await;
    broker.stop(Duration::ZERO).await.unwrap();
    restarts.clock.advance(TimeSpan::from_seconds(90));
    let broker = restarts.start(&restarts.folder).await;
    restarts.pass(&broker, 30).await;
    restarts.pass(&broker, 60).await;
    for path in ["orders", ""] {
        for (column, expected) in [
            (SeriesColumn::Accepted, [Some(3), None, None, Some(0)]),
            (SeriesColumn::Active, [Some(3), None, None, Some(3)]),
        ] {
            let shown = values(&broker, path, (Resolution::Minute, column)).await;
            assert_eq!(shown, expected, "{path} {column:?}");
        }
    }
    send(&broker.entity("orders").unwrap(), 2).await;
    restarts.pass(&broker, 60).await;
    let minute = (Resolution::Minute, SeriesColumn::Accepted);
    let expected = [Some(3), None, None, Some(0), Some(2)];
    assert_eq!(values(&broker, "orders", minute).await, expected);
    broker.stop(Duration::ZERO).await.unwrap();
    for entry in std::fs::read_dir(&restarts.folder).unwrap() {
        let path = entry.unwrap().path();
        let mut content = std::fs::read(&path).unwrap();
        content[9] ^= 1;
        std::fs::write(&path, content).unwrap();
    }
    let broker = restarts.start(&restarts.folder).await;
    assert_eq!(values(&broker, "orders", minute).await, [None; 5]);
    assert!(restarts.folder.join("00.series.damaged").exists());
    broker.stop(Duration::ZERO).await.unwrap();
    std::fs::remove_dir_all(&restarts.folder).unwrap();
}
