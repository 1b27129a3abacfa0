//! Journeys of messages, through the questions of operators (CON-29, CON-30).

use std::sync::Arc;

use peeklock_core::clients::ClientGuard;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{
    Act, Command, Deed, JobStep, OperatorCommand, Outcome, ReceiveMode, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{JobId, LockToken, SequenceNumber};
use peeklock_core::inspect::{
    Found, Journey, JourneyQuery, MessagePlace, Question, Station, StationKind,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity, JourneysConfig};

const START: Timestamp = Timestamp::from_unix_ms(1_700_000_100_000);
const JOB: JobId = JobId(0xb0b);

struct World {
    broker: Broker,
    clock: Arc<ManualClock>,
    client: ClientGuard,
}

impl World {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let shown = Arc::clone(&clock) as Arc<dyn Clock>;
        let builder = Broker::builder().arbiters(1).clock(shown).count_internal_work();
        let broker = builder.journeys(JourneysConfig::default()).start().await.unwrap();
        let client = broker.client("test", None);
        client.set_name("worker");
        Self { broker, clock, client }
    }

    async fn queue(&self, path: &str, update: QueueUpdate) -> Entity {
        self.broker.create_queue(path, update).await.unwrap();
        self.broker.entity(path).unwrap()
    }

    async fn send(&self, entity: &Entity, message: Message) {
        let message = self.broker.inbound(message);
        entity.call(Command::Send { message }).await.unwrap();
        self.broker.idle().await;
    }

    async fn receive(&self, entity: &Entity, mode: ReceiveMode) -> Option<LockToken> {
        let (bytes_max, wait) = (u64::MAX, TimeSpan::ZERO);
        let holder = Some(self.client.receiver());
        let receive = Command::Receive { mode, count_max: 1, bytes_max, wait, holder };
        let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
        messages[0].facts.lock.map(|lock| lock.token)
    }

    async fn settle(&self, entity: &Entity, settlement: Settlement) {
        let token = self.receive(entity, ReceiveMode::PeekLock).await.unwrap();
        entity.call(Command::Settle { token, settlement }).await.unwrap();
        self.broker.idle().await;
    }

    /// Lets time pass; the work that is due is done.
    async fn pass(&self, span: TimeSpan) {
        self.clock.advance(span);
        self.broker.idle().await;
    }

    /// Acts on a message in a step of a job.
    async fn act(&self, (path, number): (&str, u64), step: u64, deed: Deed) {
        let step = Some(JobStep { job: JOB, number: step });
        let sequences = vec![SequenceNumber(number)];
        let act = Act { step, sequences, deed, breaks_locks: false, kept: None };
        let command = Command::OfOperator(OperatorCommand::Act(Box::new(act)));
        self.broker.entity(path).unwrap().call(command).await.unwrap();
        self.broker.idle().await;
    }

    async fn journey(&self, path: &str, number: u64) -> Journey {
        let query = JourneyQuery::Sequence(SequenceNumber(number));
        ask(&self.broker, path, query).await.unwrap()
    }
}

async fn ask(broker: &Broker, path: &str, query: JourneyQuery) -> Result<Journey, BrokerError> {
    let request = Management::Inspect(Box::new(Question::Journey(query)));
    match broker.full_access().manage(path, request).await? {
        Managed::Findings(findings) => match findings.found {
            Found::Journey(journey) => Ok(journey),
            other => panic!("{other:?}"),
        },
        _ => panic!("another answer"),
    }
}

/// Text of a station: place, kind, other place, and the facts that are set.
fn text(station: &Station) -> String {
    let place = |place: &MessagePlace| format!("{} {}", place.path, place.sequence.0);
    let mut text = format!("{} {:?}", place(&station.place), station.kind);
    let mut add = |part: Option<String>| {
        if let Some(part) = part {
            text.push(' ');
            text.push_str(&part);
        }
    };
    add(station.other.as_ref().map(place));
    add(station.hop.map(|hop| format!("hop {hop}")));
    add(station.rule.as_ref().map(|rule| format!("by {rule}")));
    add(station.count.map(|count| format!("x{count}")));
    add(station.cause.map(|cause| format!("{cause:?}")));
    add(station.lock_end.map(|end| format!("{end:?}")));
    add(station.job.map(|job| format!("{:x}", job.0)));
    add(station.client.as_ref().map(|client| client.name.as_deref().unwrap().to_owned()));
    text
}

fn texts(journey: &Journey) -> Vec<String> {
    assert_eq!((journey.is_cut, journey.hidden_count), (false, 0));
    assert_eq!(journey.complete_since, START);
    journey.stations.iter().map(text).collect()
}

/// CON-29: the journey of a published message is the same from each of its places, and by its id:
/// over a copy, a hop, a failed delivery, a lost lock, the dead-letter queue and a resubmit.
#[tokio::test]
async fn journey_follows_a_message_in_both_directions() {
    let world = World::start().await;
    let orders = world.queue("orders", QueueUpdate::default().with_max_delivery_count(2)).await;
    world.broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let to = SubscriptionUpdate::default().with_forward_to("orders");
    let rule = RuleDescription::new("eu", Filter::True, START);
    world.broker.create_subscription("events", "all", to, vec![rule]).await.unwrap();
    let events = world.broker.entity("events").unwrap();
    world.send(&events, Message::new("secret").with_message_id("a")).await;
    world.settle(&orders, Settlement::Abandon { properties: None, delay: None }).await;
    world.receive(&orders, ReceiveMode::PeekLock).await;
    world.pass(TimeSpan::from_minutes(2)).await;
    let dead = "orders/$deadletterqueue";
    let to = Some("orders".into());
    world.act((dead, 1), 1, Deed::Resubmit { to, edit: None }).await;
    world.settle(&orders, Settlement::Complete).await;
    let expected = [
        "events 1 Published",
        "events 1 CopiedTo events/Subscriptions/all 1 by eu",
        "events/Subscriptions/all 1 CopiedFrom events 1 by eu",
        "events/Subscriptions/all 1 ForwardedTo orders 1 hop 1",
        "orders 1 ForwardedFrom events/Subscriptions/all 1 hop 1",
        "orders 1 Delivered worker",
        "orders 1 Abandoned x1 worker",
        "orders 1 Delivered x1 worker",
        "orders 1 LockEnded x2 TimeOver worker",
        "orders 1 DeadLettered x2 DeliveryCount",
        "orders 1 Job b0b",
        "orders 1 ForwardedTo orders 2",
        "orders 2 ForwardedFrom orders 1",
        "orders 2 Delivered worker",
        "orders 2 Completed worker",
    ];
    for (path, number) in
        [("events", 1), ("events/Subscriptions/all", 1), ("orders", 1), ("orders", 2), (dead, 1)]
    {
        assert_eq!(texts(&world.journey(path, number).await), expected, "{path} {number}");
    }
    for path in ["", "events"] {
        let by_id = ask(&world.broker, path, JourneyQuery::MessageId("a".into())).await.unwrap();
        assert_eq!(texts(&by_id), expected, "{path}");
    }
    for path in ["", "orders"] {
        let other = ask(&world.broker, path, JourneyQuery::MessageId("b".into())).await.unwrap();
        assert!(texts(&other).is_empty(), "{path}");
    }
}

/// CON-29: scheduled and dropped messages, renewals, deferral, receiving without a lock, expiry.
#[tokio::test]
async fn journey_shows_how_messages_came_and_went() {
    let world = World::start().await;
    let update = QueueUpdate::default().with_duplicate_detection(TimeSpan::from_minutes(10));
    let orders = world.queue("orders", update).await;
    let later = Message::new("x")
        .with_message_id("later")
        .with_scheduled_enqueue_time(START.plus(TimeSpan::from_seconds(5)));
    world.send(&orders, later).await;
    world.pass(TimeSpan::from_seconds(6)).await;
    world.send(&orders, Message::new("y").with_message_id("later")).await;
    world.receive(&orders, ReceiveMode::ReceiveAndDelete).await;
    let expected = [
        "orders 1 Scheduled",
        "orders 1 MaterialisedTo orders 2",
        "orders 0 Duplicate",
        "orders 2 MaterialisedFrom orders 1",
        "orders 2 Delivered worker",
        "orders 2 Received",
    ];
    assert_eq!(texts(&world.journey("orders", 1).await), expected);
    world.send(&orders, Message::new("z")).await;
    let renewed = world.receive(&orders, ReceiveMode::PeekLock).await.unwrap();
    for _ in 0..3 {
        orders.call(Command::RenewLock { token: renewed }).await.unwrap();
    }
    let settlement = Settlement::Defer { properties: None };
    orders.call(Command::Settle { token: renewed, settlement }).await.unwrap();
    world.broker.idle().await;
    world.act(("orders", 3), 1, Deed::Undefer).await;
    world.settle(&orders, Settlement::Release).await;
    world.act(("orders", 3), 2, Deed::Delete).await;
    let expected = [
        "orders 3 Accepted",
        "orders 3 Delivered worker",
        "orders 3 Renewed x3 worker",
        "orders 3 Deferred x1 worker",
        "orders 3 Job b0b",
        "orders 3 Undeferred",
        "orders 3 Delivered x1 worker",
        "orders 3 Released worker",
        "orders 3 Job b0b",
        "orders 3 Deleted",
    ];
    assert_eq!(texts(&world.journey("orders", 3).await), expected);
    let short = Message::new("w").with_time_to_live(TimeSpan::from_seconds(1));
    world.send(&orders, short).await;
    world.pass(TimeSpan::from_seconds(2)).await;
    let call = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let outcome = orders.call(call).await.unwrap();
    assert!(matches!(outcome, Outcome::Received(messages) if messages.is_empty()));
    let kinds: Vec<_> =
        world.journey("orders", 4).await.stations.iter().map(|station| station.kind).collect();
    assert_eq!(kinds, [StationKind::Accepted, StationKind::Expired]);
}

/// CON-30: without journeys, the answer says so and how to switch them on.
#[tokio::test]
async fn journeys_that_are_switched_off_say_so() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let query = JourneyQuery::Sequence(SequenceNumber(1));
    let error = ask(&broker, "orders", query).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    assert!(error.to_string().contains("console.journeys"), "{error}");
}

/// CON-29: a journey by number needs an entity, which must exist.
#[tokio::test]
async fn journey_by_number_needs_an_entity() {
    let world = World::start().await;
    let query = || JourneyQuery::Sequence(SequenceNumber(1));
    let nowhere = ask(&world.broker, "", query()).await.unwrap_err();
    assert_eq!(nowhere.condition(), Condition::ArgumentError);
    let none = ask(&world.broker, "none", query()).await.unwrap_err();
    assert_eq!(none.condition(), Condition::EntityNotFound);
}

/// CON-57: a message of a deleted entity is still shown, also where others lead to it.
#[tokio::test]
async fn deleted_entity_keeps_its_stations() {
    let world = World::start().await;
    world.queue("archive", QueueUpdate::default()).await;
    let orders = world.queue("orders", QueueUpdate::default().with_forward_to("archive")).await;
    world.send(&orders, Message::new("a").with_message_id("a")).await;
    let archive = world.broker.entity("archive").unwrap();
    world.settle(&archive, Settlement::Complete).await;
    let before = texts(&world.journey("orders", 1).await);
    assert_eq!(before.len(), 5, "{before:?}");
    world.broker.delete("archive", EntityKind::Queue).await.unwrap();
    for (path, number) in [("orders", 1), ("Archive", 1), ("archive/$deadletterqueue", 1)] {
        assert_eq!(texts(&world.journey(path, number).await), before, "{path}");
    }
    // A new entity with the same path has messages of its own.
    world.queue("archive", QueueUpdate::default()).await;
    assert!(texts(&world.journey("archive", 1).await).is_empty());
}
