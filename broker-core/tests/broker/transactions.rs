//! Open transactions of connections: their ids, lifetime and memory.

use std::sync::Arc;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Overlay, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartCheck, Reach, TransactionId, Transactions};
use peeklock_core::{Broker, Entity};

struct World {
    clock: Arc<ManualClock>,
    broker: Broker,
    queue: Entity,
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let mut settings = Settings::default();
        change(&mut settings);
        let broker = Broker::builder()
            .settings(settings)
            .clock(Arc::clone(&clock) as _)
            .arbiters(1)
            .start()
            .await
            .unwrap();
        broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
        let queue = broker.entity("orders").unwrap();
        Self { clock, broker, queue }
    }

    fn send(&self, bytes: usize) -> Command {
        Command::Send { message: self.broker.inbound(Message::new(vec![b'x'; bytes])) }
    }

    /// Adds a send of this size to a transaction.
    async fn add(
        &self,
        transactions: &Transactions,
        id: TransactionId,
        bytes: usize,
    ) -> Result<(), Rejection> {
        let question = transactions.issue(id, &self.queue, self.send(bytes)).await?;
        let PartCheck { entity, command, issued } = question;
        let outcome = entity.call(command).await.unwrap();
        issued.confirm(&outcome);
        Ok(())
    }

    async fn active(&self) -> u64 {
        self.broker.describe_queue("orders").await.unwrap().counts.active
    }
}

async fn commit(transactions: &Transactions, id: TransactionId) -> Result<usize, Condition> {
    let ending = transactions.commit(id).map_err(|rejection| rejection.condition())?;
    let Some(ending) = ending else { return Ok(0) };
    match ending.entity.call(ending.command).await {
        Ok(Outcome::Committed(parts)) => Ok(parts.len()),
        Ok(other) => panic!("a commit was answered with {other:?}"),
        Err(error) => Err(error.condition()),
    }
}

fn condition<T>(result: Result<T, Rejection>) -> Option<Condition> {
    result.err().map(|rejection| rejection.condition())
}

/// TXN-01: an id names an open transaction of its connection until it ends.
#[tokio::test]
async fn an_ended_transaction_is_unknown() {
    let world = World::new().await;
    let transactions = Transactions::new(&world.broker);
    let (committed, rolled_back) = (
        transactions.begin(Reach::OneEntity).unwrap(),
        transactions.begin(Reach::OneEntity).unwrap(),
    );
    world.add(&transactions, committed, 1).await.unwrap();
    world.add(&transactions, rolled_back, 1).await.unwrap();
    assert_eq!(commit(&transactions, committed).await, Ok(1));
    transactions.roll_back(rolled_back).unwrap();
    let others = Transactions::new(&world.broker);
    others.begin(Reach::OneEntity).unwrap();
    for (transactions, id) in [
        (&transactions, committed),
        (&transactions, rolled_back),
        (&transactions, TransactionId(9)),
        (&others, rolled_back),
    ] {
        let unknown = Some(Condition::TransactionUnknown);
        assert_eq!(condition(world.add(transactions, id, 1).await), unknown);
        assert_eq!(condition(transactions.roll_back(id)), unknown);
        assert_eq!(commit(transactions, id).await, Err(Condition::TransactionUnknown));
    }
    assert_eq!(world.active().await, 1);
}

/// TXN-06: every later use of the id reports the timeout, also if another call detected it.
#[tokio::test]
async fn a_timed_out_transaction_reports_the_timeout_on_each_use() {
    let world = World::with(|settings| settings.limits.transaction_open_count_max = 2).await;
    let transactions = Transactions::new(&world.broker);
    let ids = [
        transactions.begin(Reach::OneEntity).unwrap(),
        transactions.begin(Reach::OneEntity).unwrap(),
    ];
    for id in ids {
        world.add(&transactions, id, 1).await.unwrap();
    }
    world.clock.advance(TimeSpan::from_ticks(TimeSpan::from_minutes(2).ticks() - 1));
    assert_eq!(condition(transactions.begin(Reach::OneEntity)), Some(Condition::QuotaExceeded));
    world.clock.advance(TimeSpan::from_ticks(1));
    let third = transactions.begin(Reach::OneEntity).unwrap();
    assert_eq!(transactions.open_count(), 1);
    for id in ids {
        for _ in 0..2 {
            let timed_out = Some(Condition::TransactionTimedOut);
            assert_eq!(condition(world.add(&transactions, id, 1).await), timed_out);
            assert_eq!(condition(transactions.roll_back(id)), timed_out);
            let committed = commit(&transactions, id).await;
            assert_eq!(committed, Err(Condition::TransactionTimedOut));
        }
    }
    assert_eq!(commit(&transactions, third).await, Ok(0));
    assert_eq!(world.active().await, 0);
    // The number of remembered timeouts is bounded, too.
    for _ in 0..3 {
        let id = transactions.begin(Reach::OneEntity).unwrap();
        world.add(&transactions, id, 1).await.unwrap();
        world.clock.advance(TimeSpan::from_minutes(2));
        transactions.expire();
    }
    let forgotten = condition(transactions.roll_back(ids[0]));
    assert_eq!(forgotten, Some(Condition::TransactionUnknown));
}

/// TXN-07: a transaction with an unanswered operation cannot be committed. An operation that never
/// got an answer is left out.
#[tokio::test]
async fn a_transaction_with_unanswered_operations_is_not_committed() {
    let world = World::new().await;
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    let PartCheck { command: check, issued, .. } =
        transactions.issue(id, &world.queue, world.send(1)).await.unwrap();
    assert!(transactions.has_unanswered(id));
    assert_eq!(commit(&transactions, id).await, Err(Condition::InvalidOperation));
    let outcome = world.queue.call(check).await.unwrap();
    issued.confirm(&outcome);
    let PartCheck { issued: never_asked, .. } =
        transactions.issue(id, &world.queue, world.send(1)).await.unwrap();
    drop(never_asked);
    assert!(!transactions.has_unanswered(id));
    assert_eq!(commit(&transactions, id).await, Ok(1));
    assert_eq!(world.active().await, 1);
}

/// TXN-08, SET-13: an operation that is left out has no effect on the transaction.
#[tokio::test]
async fn an_operation_left_out_does_not_affect_its_transaction() {
    let world = World::new().await;
    world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    let other = world.broker.entity("other").unwrap();
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    let token = LockToken::new(SequenceNumber(1), 1);
    let complete = || Command::Settle { token, settlement: Settlement::Complete };
    let PartCheck { command: check, issued, .. } =
        transactions.issue(id, &other, complete()).await.unwrap();
    let lost = other.call(check).await.unwrap_err();
    assert_eq!(lost.condition(), Condition::MessageLockLost);
    let again = condition(transactions.issue(id, &other, complete()).await);
    assert_eq!(again, Some(Condition::MessageLockLost));
    assert_eq!(condition(world.add(&transactions, id, 1).await), Some(Condition::InvalidOperation));
    drop(issued);
    world.add(&transactions, id, 1).await.unwrap();
    let release = Command::Settle { token, settlement: Settlement::Release };
    let refused = condition(transactions.issue(id, &world.queue, release).await);
    assert_eq!(refused, Some(Condition::InvalidOperation), "TXN-02");
    assert_eq!(commit(&transactions, id).await, Ok(1));
}

/// TXN-12: the end of a connection ends its transactions.
#[tokio::test]
async fn transactions_end_with_their_connection() {
    let world = World::new().await;
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    world.add(&transactions, id, 1).await.unwrap();
    drop(transactions);
    let next = Transactions::new(&world.broker);
    next.begin(Reach::OneEntity).unwrap();
    assert_eq!(commit(&next, id).await, Err(Condition::TransactionUnknown));
    assert_eq!(world.active().await, 0);
}

/// QUO-03: the memory of the open transactions of a connection is bounded. One operation is always
/// accepted, and an ended transaction returns its bytes.
#[tokio::test]
async fn transactions_of_a_connection_have_bounded_memory() {
    let bytes_max = 10_000;
    let world =
        World::with(|settings| settings.limits.transaction_open_bytes_max = bytes_max).await;
    let transactions = Transactions::new(&world.broker);
    let fill = async || {
        let (large, small) = (
            transactions.begin(Reach::OneEntity).unwrap(),
            transactions.begin(Reach::OneEntity).unwrap(),
        );
        world.add(&transactions, large, 20_000).await.unwrap();
        let refused = condition(world.add(&transactions, small, 1).await);
        assert_eq!(refused, Some(Condition::QuotaExceeded));
        (large, small)
    };
    let (large, small) = fill().await;
    transactions.roll_back(large).unwrap();
    world.add(&transactions, small, 1).await.unwrap();
    transactions.roll_back(small).unwrap();
    let (large, small) = fill().await;
    commit(&transactions, large).await.unwrap();
    world.add(&transactions, small, 1).await.unwrap();
    transactions.forget(small);
    let (_, small) = fill().await;
    world.clock.advance(TimeSpan::from_minutes(2));
    transactions.expire();
    world.add(&transactions, small, 1).await.unwrap();
    transactions.forget(small);
    let unused = transactions.begin(Reach::OneEntity).unwrap();
    for _ in 0..3 {
        let PartCheck { issued, .. } =
            transactions.issue(unused, &world.queue, world.send(20_000)).await.unwrap();
        drop(issued);
    }
    fill().await;
}

/// DESIGN D6: so is the memory of all connections together. An abandoned transaction returns its
/// room when its time is over (TXN-06).
#[tokio::test]
async fn transactions_of_all_connections_have_bounded_memory() {
    let world = World::with(|settings| settings.limits.broker_inbound_bytes_max = 400_000).await;
    let connections: Vec<Transactions> = (0..3).map(|_| Transactions::new(&world.broker)).collect();
    let begin = |place: usize| connections[place].begin(Reach::OneEntity).unwrap();
    let (first, second, third) = (begin(0), begin(1), begin(2));
    world.add(&connections[0], first, 120_000).await.unwrap();
    world.clock.advance(TimeSpan::from_minutes(1));
    let busy = condition(world.add(&connections[1], second, 120_000).await);
    assert_eq!(busy, Some(Condition::ServerBusy));
    world.add(&connections[1], second, 60_000).await.unwrap();
    world.clock.advance(TimeSpan::from_minutes(1));
    // The first has timed out and was not used since.
    world.add(&connections[2], third, 120_000).await.unwrap();
    let late = condition(connections[0].roll_back(first));
    assert_eq!(late, Some(Condition::TransactionTimedOut));
    assert_eq!(commit(&connections[1], second).await, Ok(1));
    assert_eq!(commit(&connections[2], third).await, Ok(1));
    assert_eq!(world.active().await, 2);
}

/// DESIGN D6: no connection keeps that room because it came first. A connection that holds much
/// more than another would hold loses its oldest transaction.
#[tokio::test]
async fn a_connection_with_large_transactions_makes_room() {
    let world = World::with(|settings| settings.limits.broker_inbound_bytes_max = 400_000).await;
    let (greedy, modest) = (Transactions::new(&world.broker), Transactions::new(&world.broker));
    let mut held = Vec::new();
    for _ in 0..3 {
        let id = greedy.begin(Reach::OneEntity).unwrap();
        world.add(&greedy, id, 60_000).await.unwrap();
        world.clock.advance(TimeSpan::from_seconds(1));
        held.push(id);
    }
    let id = modest.begin(Reach::OneEntity).unwrap();
    world.add(&modest, id, 50_000).await.unwrap();
    let told = condition(greedy.roll_back(held[0]));
    assert_eq!(told, Some(Condition::TransactionTimedOut));
    // Its remainder is no longer much larger.
    let busy = condition(world.add(&modest, id, 50_000).await);
    assert_eq!(busy, Some(Condition::ServerBusy));
    for rest in held.drain(1..) {
        assert_eq!(commit(&greedy, rest).await, Ok(1));
    }
    assert_eq!(commit(&modest, id).await, Ok(1));
}

/// DESIGN D6: an open transaction uses a part of that room before it holds anything, so that the
/// number of transactions over all connections is bounded.
#[tokio::test]
async fn open_transactions_have_a_bound_over_all_connections() {
    let world = World::with(|settings| settings.limits.broker_inbound_bytes_max = 400_000).await;
    let connections: Vec<Transactions> =
        (0..20).map(|_| Transactions::new(&world.broker)).collect();
    let begin = |place: usize| connections[place % 20].begin(Reach::OneEntity);
    let begun: Vec<TransactionId> = (0..1_000).map_while(|place| begin(place).ok()).collect();
    assert_eq!(begun.len(), 195, "1,024 bytes each");
    assert_eq!(condition(begin(begun.len())), Some(Condition::ServerBusy));
    // An ended transaction returns its room, and so does the connection that holds most.
    connections[0].roll_back(begun[0]).unwrap();
    begin(0).unwrap();
    let next = Transactions::new(&world.broker);
    next.begin(Reach::OneEntity).unwrap();
    let open = connections.iter().map(Transactions::open_count).sum::<usize>();
    assert_eq!(open + next.open_count(), 195);
}

/// TXN-06: a transaction may stay without an operation while no other needs its room. Then it is
/// ended, except the one that asks, and its id reports a timeout.
#[tokio::test]
async fn an_empty_transaction_ends_when_others_need_its_room() {
    let world = World::with(|settings| settings.limits.broker_inbound_bytes_max = 400_000).await;
    let patient = Transactions::new(&world.broker);
    let unused = patient.begin(Reach::OneEntity).unwrap();
    let used = patient.begin(Reach::OneEntity).unwrap();
    world.clock.advance(TimeSpan::from_days(1));
    patient.expire();
    assert!(!patient.has_operations());
    let others = [Transactions::new(&world.broker), Transactions::new(&world.broker)];
    for other in &others {
        let id = other.begin(Reach::OneEntity).unwrap();
        world.add(other, id, 95_000).await.unwrap();
    }
    assert_eq!(patient.open_count(), 2, "there was room");
    let busy = condition(world.add(&patient, used, 60_000).await);
    assert_eq!(busy, Some(Condition::ServerBusy));
    assert_eq!(condition(patient.roll_back(unused)), Some(Condition::TransactionTimedOut));
    assert_eq!(patient.part_count(used), Some(0));
    drop(others);
    world.add(&patient, used, 60_000).await.unwrap();
    assert!(patient.has_operations());
    assert_eq!(commit(&patient, used).await, Ok(1));
}

/// TXN-06, TXN-17: the same happens when its connection has the maximum of transactions.
#[tokio::test]
async fn an_empty_transaction_ends_at_the_limit_of_its_connection() {
    let world = World::with(|settings| settings.limits.transaction_open_count_max = 2).await;
    let transactions = Transactions::new(&world.broker);
    let begin = || transactions.begin(Reach::OneEntity);
    let oldest = begin().unwrap();
    world.clock.advance(TimeSpan::from_ticks(1));
    let newer = begin().unwrap();
    world.clock.advance(TimeSpan::from_ticks(TimeSpan::from_minutes(2).ticks() - 2));
    assert_eq!(condition(begin()), Some(Condition::QuotaExceeded));
    world.clock.advance(TimeSpan::from_ticks(1));
    begin().unwrap();
    assert_eq!(condition(begin()), Some(Condition::QuotaExceeded));
    let timed_out = Some(Condition::TransactionTimedOut);
    assert_eq!(condition(world.add(&transactions, oldest, 1).await), timed_out);
    world.add(&transactions, newer, 1).await.unwrap();
    assert_eq!(commit(&transactions, newer).await, Ok(1));
}

/// QUO-07
#[tokio::test]
async fn small_messages_of_one_transaction_have_a_bound_together() {
    let world = World::with(|settings| settings.limits.atomic_bytes_max = 10_000).await;
    let transactions = Transactions::new(&world.broker);
    for (bytes, expected) in [(4_800, Ok(2)), (5_200, Err(Condition::QuotaExceeded))] {
        let id = transactions.begin(Reach::OneEntity).unwrap();
        for _ in 0..2 {
            world.add(&transactions, id, bytes).await.unwrap();
        }
        assert_eq!(commit(&transactions, id).await, expected);
    }
    assert_eq!(world.active().await, 2);
}

/// The number of operations of a transaction is bounded.
#[tokio::test]
async fn a_transaction_has_a_bounded_number_of_operations() {
    let world = World::with(|settings| settings.limits.transaction_operation_count_max = 3).await;
    for _ in 0..4 {
        world.queue.call(world.send(1)).await.unwrap();
    }
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 4,
        bytes_max: 1_000,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Ok(Outcome::Received(held)) = world.queue.call(receive).await else {
        panic!("a receive was not answered");
    };
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    for (number, message) in held.iter().enumerate() {
        let token = message.facts.lock.unwrap().token;
        let complete = Command::Settle { token, settlement: Settlement::Complete };
        match transactions.issue(id, &world.queue, complete).await {
            Ok(PartCheck { command: check, issued, .. }) => {
                let outcome = world.queue.call(check).await.unwrap();
                issued.confirm(&outcome);
            }
            Err(rejection) => {
                assert_eq!((number, rejection.condition()), (3, Condition::QuotaExceeded));
            }
        }
    }
    assert_eq!(commit(&transactions, id).await, Ok(3));
    assert_eq!(world.active().await, 1);
}

/// Locks up to `count_max` messages.
async fn lock(entity: &Entity, count_max: u32) -> Vec<LockToken> {
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Ok(Outcome::Received(held)) = entity.call(receive).await else {
        panic!("a receive was not answered");
    };
    held.iter().map(|message| message.facts.lock.unwrap().token).collect()
}

/// Adds a command to a transaction.
async fn add(transactions: &Transactions, id: TransactionId, entity: &Entity, command: Command) {
    let question = transactions.issue(id, entity, command).await.unwrap();
    let PartCheck { entity, command, issued } = question;
    let outcome = entity.call(command).await.unwrap();
    issued.confirm(&outcome);
}

const fn complete(token: LockToken) -> Command {
    Command::Settle { token, settlement: Settlement::Complete }
}

/// QUO-11: messages without set properties are completed in one transaction up to its number of
/// operations.
#[tokio::test]
async fn a_transaction_completes_as_many_plain_messages_as_it_has_operations() {
    const COUNT: usize = 4_000;
    let world = World::new().await;
    for _ in 0..COUNT / 500 {
        let messages = (0..500).map(|_| world.broker.inbound(Message::new("x"))).collect();
        world.queue.call(Command::SendBatch { messages }).await.unwrap();
    }
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    for _ in 0..COUNT / 500 {
        let locks = lock(&world.queue, 500).await;
        assert_eq!(locks.len(), 500);
        for token in locks {
            add(&transactions, id, &world.queue, complete(token)).await;
        }
    }
    assert_eq!(commit(&transactions, id).await, Ok(COUNT));
    assert_eq!(world.active().await, 0);
}

/// Completes these messages in one transaction with a send. Returns the reason if the transaction
/// is refused because of its size.
async fn complete_in_one(
    world: &World,
    (destination, source): (&Entity, &Entity),
    locks: &[LockToken],
) -> Result<usize, String> {
    let transactions = Transactions::new(&world.broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    add(&transactions, id, destination, world.send(1)).await;
    for token in locks {
        add(&transactions, id, source, complete(*token)).await;
    }
    let ending = transactions.commit(id).unwrap().unwrap();
    match ending.entity.call(ending.command).await {
        Ok(Outcome::Committed(parts)) => Ok(parts.len()),
        Ok(other) => panic!("a commit was answered with {other:?}"),
        Err(error) => {
            assert_eq!(error.condition(), Condition::QuotaExceeded);
            Err(error.detail().to_owned())
        }
    }
}

/// QUO-11, TXN-07, TXN-08, SET-41: each set of properties on a settled message counts as a further
/// step of the transaction, in a queue and in a subscription whose topic takes part. A transaction
/// with one step too many is rolled back, and the same settlements succeed in two transactions.
#[tokio::test]
async fn set_properties_count_in_the_steps_of_a_transaction() {
    let world = World::with(|settings| settings.limits.transaction_step_count_max = 10).await;
    world.broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let update = SubscriptionUpdate::default();
    world.broker.create_subscription("events", "audit", update, vec![]).await.unwrap();
    let topic = world.broker.entity("events").unwrap();
    let audit = world.broker.entity("events/Subscriptions/audit").unwrap();
    let properties = Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap();
    for (destination, source) in [(&world.queue, &world.queue), (&topic, &audit)] {
        for _ in 0..3 {
            destination.call(world.send(1)).await.unwrap();
        }
        // Two messages of five steps each, and one without properties.
        for _ in 0..4 {
            for token in lock(source, 2).await {
                let properties = Some(properties.clone());
                let settlement = Settlement::Abandon { properties, delay: None };
                source.call(Command::Settle { token, settlement }).await.unwrap();
            }
        }
        let locks = lock(source, 3).await;
        let both = (destination, source);
        let why = complete_in_one(&world, both, &locks).await.unwrap_err();
        assert!(why.contains("`transaction_step_count_max` is 10"), "{why}");
        assert!(why.contains("several transactions"), "the way out: {why}");
        assert!(lock(source, 1).await.is_empty(), "all are locked still, and nothing was sent");
        assert_eq!(complete_in_one(&world, both, &locks[..2]).await, Ok(3));
        assert_eq!(complete_in_one(&world, both, &locks[2..]).await, Ok(2));
        assert_eq!(lock(source, 10).await.len(), 2, "what was sent with them");
    }
}
