//! Sends that wait because the store has no room now: their answers, and the capacity that they
//! leave to other commands (SND-19, DESIGN D6 and D11).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{
    EntityStatus, QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::rule::Filter;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use peeklock_store_testing::{FaultStore, Room};

/// Number of small commands that the broker of these tests accepts at the same time.
const COMMANDS: u64 = 16;

struct World {
    store: Arc<FaultStore>,
    clock: Arc<ManualClock>,
    broker: Broker,
    queue: Entity,
}

impl World {
    /// A broker with a small budget and a queue, whose store now answers Busy.
    async fn busy() -> Self {
        let store = FaultStore::at_once(1, u64::MAX);
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let mut settings = Settings::default();
        settings.limits.broker_inbound_bytes_max = COMMANDS * COMMAND_BYTES;
        let broker = Broker::builder()
            .settings(settings)
            .store(Arc::clone(&store) as _)
            .clock(Arc::clone(&clock) as _)
            .arbiters(1)
            .start()
            .await
            .unwrap();
        broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
        broker.create_queue("other", QueueUpdate::default()).await.unwrap();
        let queue = broker.entity("orders").unwrap();
        let other = broker.entity("other").unwrap();
        send(&other, "x").await.unwrap();
        store.set_room(Room::Busy);
        Self { store, clock, broker, queue }
    }

    /// Waits until all earlier commands have reached the queue.
    async fn settle_down(&self) {
        self.broker.describe_queue("orders").await.unwrap();
    }

    /// Receives the message of the other queue and abandons it.
    async fn others_work(&self) {
        let other = self.broker.entity("other").unwrap();
        let command = crate::receive::under_lock(1, TimeSpan::ZERO);
        let Outcome::Received(received) = other.call(command).await.unwrap() else { panic!() };
        let token = received[0].facts.lock.unwrap().token;
        let settlement = Settlement::Abandon { properties: None, delay: None };
        other.call(Command::Settle { token, settlement }).await.unwrap();
    }

    async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

async fn send(queue: &Entity, body: &str) -> Result<u64, BrokerError> {
    let message = queue.broker().inbound(Message::new(body.to_owned()));
    match queue.call(Command::Send { message }).await? {
        Outcome::Accepted(sequence) => Ok(sequence.0),
        other => panic!("{other:?}"),
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<u64, BrokerError>> + 'a>>;

/// Polls a send once; `None` while it waits.
async fn look(sending: &mut Sending<'_>) -> Option<Result<u64, BrokerError>> {
    poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// SND-19: a send that would be refused in any case does not wait for room.
#[tokio::test]
async fn an_invalid_send_is_refused_without_waiting_for_room() {
    let world = World::busy().await;
    let mut waiting: Vec<Sending> = Vec::new();
    for _ in 0..2 {
        let large = "x".repeat(usize::try_from(2 << 20).unwrap());
        let refused = send(&world.queue, &large).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::MessageSizeExceeded);
        let message = Message::new("a").with_message_id("x".repeat(129));
        let message = world.broker.inbound(message);
        let refused = world.queue.call(Command::Send { message }).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ArgumentOutOfRange);
        let empty = world.queue.call(Command::SendBatch { messages: Vec::new() }).await.unwrap();
        assert!(matches!(empty, Outcome::AcceptedBatch(numbers) if numbers.is_empty()), "SND-34");
        // Again after a send that waits.
        let mut sending: Sending = Box::pin(send(&world.queue, "a"));
        assert!(look(&mut sending).await.is_none());
        world.settle_down().await;
        waiting.push(sending);
    }
    drop(waiting);
    world.stop().await;
}

/// SND-19: a send that has waited in vain meets all checks before the check of room. ServerBusy
/// comes after exactly 5 s.
#[tokio::test]
async fn a_parked_send_meets_all_checks_in_order_at_its_timeout() {
    let world = World::busy().await;
    let mut first: Sending = Box::pin(send(&world.queue, "a"));
    assert!(look(&mut first).await.is_none());
    world.settle_down().await;
    world.clock.advance(TimeSpan::from_ms(4_999));
    world.settle_down().await;
    assert!(look(&mut first).await.is_none(), "refused before 5 s are over");
    let mut second: Sending = Box::pin(send(&world.queue, "b"));
    assert!(look(&mut second).await.is_none());
    world.settle_down().await;
    world.clock.advance(TimeSpan::from_ms(1));
    assert_eq!(first.await.unwrap_err().condition(), Condition::ServerBusy);
    assert!(look(&mut second).await.is_none());
    let update = QueueUpdate { status: Some(EntityStatus::SendDisabled), ..QueueUpdate::default() };
    world.broker.update_queue("orders", update, None).await.unwrap();
    world.clock.advance(TimeSpan::from_seconds(5));
    assert_eq!(second.await.unwrap_err().condition(), Condition::EntityDisabled);
    world.stop().await;
}

/// DESIGN D6, D11: sends that wait for room use at most half of the broker's capacity, so that
/// receives and settlements go on. A send that finds no place to wait is refused.
#[tokio::test]
async fn parked_sends_leave_room_for_everything_else() {
    let world = World::busy().await;
    let mut waiting: Vec<Sending> = Vec::new();
    for _ in 0..COMMANDS / 2 {
        let mut sending: Sending = Box::pin(send(&world.queue, "a"));
        assert!(look(&mut sending).await.is_none());
        world.settle_down().await;
        waiting.push(sending);
    }
    for _ in 0..2 * COMMANDS {
        let refused = send(&world.queue, "a").await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("wait for space"), "{refused}");
    }
    world.others_work().await;
    world.store.set_room(Room::Open);
    for (sending, number) in waiting.into_iter().zip(1..) {
        assert_eq!(sending.await.unwrap(), number);
    }
    world.stop().await;
}

/// DESIGN D6: a list of sends that exceeds the budget leaves a part of it too.
#[tokio::test]
async fn a_parked_list_leaves_room_for_everything_else() {
    let world = World::busy().await;
    let commands = (0..10 * COMMANDS)
        .map(|_| Command::Send { message: world.broker.inbound(Message::new("a")) })
        .collect();
    let mut list = Box::pin(world.queue.call_many(commands));
    let pending = poll_fn(|context| Poll::Ready(list.as_mut().poll(context).is_pending())).await;
    assert!(pending);
    world.others_work().await;
    world.settle_down().await;
    world.store.set_room(Room::Open);
    let results = list.await;
    let accepted = results.iter().filter(|result| result.is_ok()).count() as u64;
    assert_eq!((accepted, results.len() as u64), (COMMANDS / 2, 10 * COMMANDS));
    world.stop().await;
}

/// DESIGN D11: a queue has at most one waker in the store, regardless of the number of waiting
/// sends and other commands.
#[tokio::test]
async fn a_queue_has_one_waker_in_a_busy_store() {
    let world = World::busy().await;
    let mut waiting: Vec<Sending> = Vec::new();
    for _ in 0..5 {
        let mut sending: Sending = Box::pin(send(&world.queue, "a"));
        assert!(look(&mut sending).await.is_none());
        for _ in 0..5 {
            world.settle_down().await;
        }
        assert_eq!(world.store.waiting_count(), 1);
        waiting.push(sending);
    }
    world.store.set_room(Room::Open);
    for (sending, number) in waiting.into_iter().zip(1..) {
        assert_eq!(sending.await.unwrap(), number);
    }
    assert_eq!(world.store.waiting_count(), 0);
    world.stop().await;
}

/// QUO-10, DESIGN D11: a topic accepts a transfer with slow rules only if the store has room for
/// the properties that the rules set on the copies. Until then the messages stay in their source.
#[tokio::test]
async fn a_transfer_waits_for_room_for_properties_set_by_rules() {
    let world = World::busy().await;
    world.store.set_room(Room::Open);
    world.broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let rule = |number| {
        let text = format!("p LIKE '%{}_b%'", "a".repeat(950));
        let filter = Filter::sql(format!("{text} OR {number} = {number}"));
        filter.named(format!("r{number}")).with_action("SET x = p")
    };
    let rules: Vec<_> = (0..3).map(rule).collect();
    let none = SubscriptionUpdate::default();
    world.broker.create_subscription("events", "all", none, rules).await.unwrap();
    let message = Message::new("x").with_application_property("p", "a".repeat(20_000));
    let message = world.broker.inbound(message);
    world.queue.call(Command::Send { message }).await.unwrap();
    world.store.set_room(Room::Busy);
    let update = QueueUpdate { forward_to: Some("events".into()), ..QueueUpdate::default() };
    world.broker.update_queue("orders", update, None).await.unwrap();
    for _ in 0..5 {
        assert_eq!(world.copies_after_a_second().await, 0);
    }
    let left = world.broker.describe_queue("orders").await.unwrap();
    assert_eq!(left.counts.total(), 1);
    world.store.set_room(Room::Open);
    let mut copies = 0;
    for _ in 0..20 {
        copies = copies.max(world.copies_after_a_second().await);
    }
    assert_eq!(copies, 3);
    assert_eq!(world.store.reserved_bytes(), 0);
    world.stop().await;
}

impl World {
    /// Number of copies after a second, once all due work is done.
    async fn copies_after_a_second(&self) -> u64 {
        self.clock.advance(TimeSpan::from_seconds(1));
        let mut copies = 0;
        for _ in 0..100 {
            let path = "events/Subscriptions/all";
            copies = self.broker.describe_subscription(path).await.unwrap().counts.total();
            self.settle_down().await;
        }
        copies
    }
}
