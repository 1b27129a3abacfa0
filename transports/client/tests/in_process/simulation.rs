//! Tests of the simulator: it finds faults of a handler, passes correct handlers, and repeats its
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_client::{
    Client, ConsumerOptions, Delivery, Refusal, SessionConsumerOptions, SessionDelivery,
};
use peeklock_client_testing::{Mishap, Simulation, World};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

type Done = Result<(), Box<dyn Error>>;

const ORDERS: u64 = 5;

/// Bookings in a simulated external system, by order.
type Books = Arc<Mutex<BTreeMap<String, u32>>>;

fn order(delivery: &Delivery) -> String {
    String::from_utf8_lossy(delivery.body()).into_owned()
}

/// Sends orders and books each in a handler; with `once` the handler is idempotent. Each order must
/// be booked exactly once.
async fn shop(world: World, once: bool) -> Done {
    let client = world.client();
    for queue in ["orders", "receipts"] {
        client.admin().create_queue(queue).await?;
    }
    let books = Books::default();
    let (booked, receipts, noted) = (Arc::clone(&books), client.clone(), world.clone());
    let handler = move |delivery: Delivery| {
        let (booked, receipts, noted) = (Arc::clone(&booked), receipts.clone(), noted.clone());
        async move {
            let order = order(&delivery);
            // A slow external service.
            tokio::time::sleep(Duration::from_millis(200)).await;
            noted.note("books");
            {
                let mut booked = booked.lock().unwrap();
                let times = booked.entry(order.clone()).or_default();
                if !once || *times == 0 {
                    *times += 1;
                }
            }
            receipts.sender("receipts")?.send(Message::new(order)).await?;
            Ok(())
        }
    };
    world.consume("orders", handler, ConsumerOptions::default()).await?;
    let sender = client.sender("orders")?;
    for number in 1..=ORDERS {
        sender.send(Message::new(format!("order {number}"))).await?;
    }
    world.come_to_rest().await;
    let books = books.lock().unwrap().clone();
    let expected = (1..=ORDERS).map(|number| (format!("order {number}"), 1)).collect();
    assert_eq!(books, expected, "each order is booked once");
    // Receipts may be duplicated, but none may be missing.
    let receiver = client.receiver("receipts")?;
    let receipts = receiver.peek(peeklock_core::ids::SequenceNumber(0), 100).await?;
    let receipts: BTreeSet<_> = receipts.iter().map(|receipt| receipt.body().clone()).collect();
    assert_eq!(receipts.len() as u64, ORDERS);
    Ok(())
}

/// A handler that is not idempotent is found within a few seeds, and its seed reproduces the
/// failure.
#[test]
fn a_handler_without_idempotence_is_found() {
    let failure = Simulation::new().seeds(0..20).try_run(|world| shop(world, false)).unwrap_err();
    assert!(failure.what.contains("each order is booked once"), "{failure}");
    assert!(!failure.what.contains("does not repeat"), "{failure}");
    assert!(failure.trace.iter().any(|line| line.contains("attempt 2")), "{failure}");
    let again = Simulation::replay(failure.seed).try_run(|world| shop(world, false));
    assert_eq!(again.unwrap_err().trace, failure.trace);
    // Without mishaps the fault is not found.
    Simulation::new().seeds(0..20).mishaps_max(0).run(|world| shop(world, false));
}

/// A run depends only on the seed and the settings: a replay uses both, and the failure prints them
/// as code.
#[test]
fn a_failure_is_replayed_with_the_settings_it_was_found_with() {
    let told = Simulation::new().seeds(3..40).without(Mishap::LockLost).mishaps_max(3);
    let failure = told.try_run(|world| shop(world, false)).unwrap_err();
    let again = failure.replay().try_run(|world| shop(world, false)).unwrap_err();
    assert_eq!((again.seed, &again.trace), (failure.seed, &failure.trace));
    let seed = failure.seed;
    let code = format!("Simulation::replay({seed}).without(Mishap::LockLost).mishaps_max(3)");
    assert!(failure.to_string().ends_with(&format!("\n{code} runs it again")), "{failure}");
    let written = Simulation::replay(seed).without(Mishap::LockLost).mishaps_max(3);
    let again = written.try_run(|world| shop(world, false)).unwrap_err();
    assert_eq!(again.trace, failure.trace);
    let usual = Simulation::replay(seed).try_run(|world| shop(world, false));
    assert_ne!(usual.err().map(|usual| usual.trace), Some(failure.trace), "the seed is not all");
}

/// An idempotent handler passes all runs, and every mishap occurred.
#[test]
fn an_idempotent_handler_passes() {
    let passed = Simulation::new().seeds(0..200).run(|world| shop(world, true));
    assert_eq!(passed.runs, 200);
    let mishaps: Vec<Mishap> = passed.mishaps.keys().copied().collect();
    assert_eq!(mishaps, ALL);
    assert!(passed.mishaps.values().all(|count| *count >= 20), "{:?}", passed.mishaps);
}

/// TXN-01: the handler from the guide, which completes an order and sends its receipt in one
/// transaction, passes 50 runs, including many in which the broker crashes during handling.
#[test]
fn a_handler_with_a_transaction_goes_on_after_a_crash_of_the_broker() {
    async fn work(client: Client, order: Delivery) -> Result<(), Refusal> {
        let transaction = order.transaction().await?;
        let receipt = Message::new(order.body().clone());
        transaction.send(&client.sender("receipts")?, receipt).await?;
        transaction.commit().await?;
        Err(Refusal::already_settled())
    }
    let passed = Simulation::new().seeds(0..50).run(|world| async move {
        let client = world.client();
        for queue in ["orders", "receipts"] {
            client.admin().create_queue(queue).await?;
        }
        let of = client.clone();
        let handler = move |order| work(of.clone(), order);
        world.consume("orders", handler, ConsumerOptions::default()).await?;
        for number in 1..=ORDERS {
            client.sender("orders")?.send(Message::new(format!("order {number}"))).await?;
        }
        world.come_to_rest().await;
        assert_eq!(client.admin().queue("orders").await?.counts.dead_letter, 0);
        // Both or none: no receipt is missing or duplicated.
        let receiver = client.receiver("receipts")?;
        let receipts = receiver.peek(peeklock_core::ids::SequenceNumber(0), 100).await?;
        let mut receipts: Vec<_> = receipts.iter().map(|receipt| receipt.body().clone()).collect();
        receipts.sort();
        assert!(receipts.windows(2).all(|two| two[0] != two[1]), "a receipt comes twice");
        assert_eq!(receipts.len() as u64, ORDERS);
        Ok(())
    });
    assert!(
        passed.mishaps.get(&Mishap::BrokerCrash).is_some_and(|count| *count >= 10),
        "{passed:?}"
    );
}

/// A seed always gives the same trace: with messages of several entities, forwarding, retries,
/// schedules and sessions.
#[test]
fn the_same_seed_has_the_same_trace() {
    const SEEDS: u64 = 8;
    let mut different = BTreeSet::new();
    for seed in 0..SEEDS {
        let run = || Simulation::new().seeds(seed..seed + 1).run(works).trace;
        let trace = run();
        assert_eq!(trace, run(), "seed {seed}");
        different.insert(trace);
    }
    assert_eq!(different.len() as u64, SEEDS);
}

async fn works(world: World) -> Done {
    let client = world.client();
    let admin = client.admin();
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    admin.create_queue_with("steps", sessions).await?;
    let forwards = QueueUpdate { forward_to: Some("steps".into()), ..QueueUpdate::default() };
    admin.create_queue_with("entry", forwards).await?;
    admin.create_queue("retried").await?;
    let at_work = Arc::new(Mutex::new(BTreeMap::<String, u32>::new()));
    let seen = Arc::clone(&at_work);
    world.always("a session has one message at a time, unless its lock was lost", move || {
        seen.lock().unwrap().len() <= 2
    });
    let noted = world.clone();
    let step = move |step: SessionDelivery| {
        let (noted, at_work) = (noted.clone(), Arc::clone(&at_work));
        async move {
            let session = step.session.session_id().to_owned();
            *at_work.lock().unwrap().entry(session.clone()).or_default() += 1;
            let before = step.session.state().await?.unwrap_or_default();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let after = [&before[..], step.body()].concat();
            step.session.set_state(Some(after.into())).await?;
            // The broker drew the id at random.
            let id = &step.message.message().message_id;
            noted.note(format!("{session} {} {id:?}", step.message.sequence_number()));
            Ok(())
        }
    };
    world.consume_sessions("steps", step, SessionConsumerOptions::at_once(2)).await?;
    let again = |delivery: Delivery| async move {
        match delivery.delivery_count() {
            1 => Err(Refusal::retry_after(TimeSpan::from_minutes(10))),
            _ => Ok(()),
        }
    };
    world.consume("retried", again, ConsumerOptions::at_once(3).with_prefetch(2)).await?;
    let later = world.now().plus(TimeSpan::from_minutes(3));
    for number in 0..4 {
        let session = if number % 2 == 0 { "a" } else { "b" };
        let message = Message::new(format!("{number} ")).with_session_id(session);
        client.sender("entry")?.send(message).await?;
        client.sender("retried")?.schedule(Message::new("later"), later).await?;
    }
    world.come_to_rest().await;
    assert!(world.now() >= later.plus(TimeSpan::from_minutes(10)));
    Ok(())
}

const ALL: [Mishap; 5] = [
    Mishap::WorkerCrash,
    Mishap::LockLost,
    Mishap::BrokerCrash,
    Mishap::SlowStore,
    Mishap::Reorder,
];

/// Returns the traces of runs with a single kind of mishap, at most `count_max` times.
fn traces_of(mishap: Mishap, count_max: u32) -> Vec<Vec<String>> {
    let others = ALL.into_iter().filter(|other| *other != mishap);
    let all = Simulation::new().mishaps_max(count_max);
    let alone = others.fold(all, Simulation::without);
    let run = |seed: u64| alone.clone().seeds(seed..seed + 1).run(|world| shop(world, true));
    let passed = (0..20).map(run).collect::<Vec<_>>();
    assert!(passed.iter().all(|run| run.mishaps.keys().all(|kind| *kind == mishap)));
    assert!(passed.iter().any(|run| run.mishaps.contains_key(&mishap)), "{mishap:?}");
    passed.into_iter().map(|run| run.trace).collect()
}

fn places(trace: &[String], what: &str) -> Vec<usize> {
    let lines = trace.iter().enumerate();
    lines.filter(|(_, line)| line.contains(what)).map(|(place, _)| place).collect()
}

/// SET-23: the handlers of a crashed worker stop, and its messages are delivered again, counted.
#[test]
fn a_crashed_worker_has_failed() {
    let mut was_at_work = false;
    for trace in traces_of(Mishap::WorkerCrash, 8) {
        let crashes = places(&trace, "worker 1 crashes");
        if let Some(crash) = crashes.first() {
            let after = &trace[*crash..];
            let again = places(after, "worker 1 is started again")[0];
            assert!(places(&after[..again], "books").is_empty(), "{trace:#?}");
            assert!(!places(after, "attempt 2").is_empty(), "{trace:#?}");
            was_at_work |= !places(after, "#1 is with its handler").is_empty();
        }
        assert!(places(&trace, "MessageLockLost").is_empty(), "{trace:#?}");
    }
    assert!(was_at_work);
}

/// SET-25: a worker that is disconnected for long settles too late.
#[test]
fn a_disconnected_worker_loses_its_locks() {
    let traces = traces_of(Mishap::LockLost, 1);
    assert!(traces.iter().any(|trace| !places(trace, "MessageLockLost").is_empty()));
    let is_kept = |trace: &Vec<String>| {
        !places(trace, "is cut off").is_empty() && places(trace, "MessageLockLost").is_empty()
    };
    assert!(traces.iter().any(is_kept), "a moment is no harm");
}

/// LIF-02: a restarted broker has the messages with unchanged counts.
#[test]
fn a_broker_crash_counts_no_delivery() {
    let traces = traces_of(Mishap::BrokerCrash, 8);
    assert!(traces.iter().all(|trace| places(trace, "attempt 2").is_empty()));
    let is_again =
        |trace: &Vec<String>| places(trace, "orders: #1 is delivered, attempt 1").len() > 1;
    assert!(traces.iter().any(is_again));
}

/// A store that hangs delays everything, but no message is duplicated.
#[test]
fn a_slow_store_takes_time() {
    let traces = traces_of(Mishap::SlowStore, 8);
    assert!(traces.iter().all(|trace| places(trace, "is delivered").len() as u64 == ORDERS));
    let took = |trace: &Vec<String>| {
        let (slow, on) = (places(trace, "stores nothing"), places(trace, "the store goes on"));
        assert_eq!(slow.len(), on.len());
        let waited = slow
            .iter()
            .zip(on)
            .any(|(slow, on)| places(&trace[*slow..on], "is settled").is_empty());
        !slow.is_empty() && waited
    };
    assert!(traces.iter().any(took));
}

/// Concurrent messages of a consumer start in any order; with a limit of 1 they start in order.
#[test]
fn order_is_kept_where_it_is_promised() {
    let order = |trace: &[String]| -> Vec<String> {
        let delivered = places(trace, "orders: #").into_iter().map(|place| trace[place].clone());
        delivered
            .filter(|line| line.contains("is delivered"))
            .map(|line| line[12..].to_owned())
            .collect()
    };
    let orders: BTreeSet<_> =
        traces_of(Mishap::Reorder, 8).iter().map(|trace| order(trace)).collect();
    assert!(orders.len() > 3, "{orders:#?}");
    let one_by_one = Simulation::new().seeds(0..12).mishaps_max(0);
    let passed = one_by_one.run(|world| async move {
        world.client().admin().create_queue("orders").await?;
        let messages = (0..ORDERS).map(|number| Message::new(number.to_string())).collect();
        for sent in world.client().sender("orders")?.send_many(messages).await {
            sent?;
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let handler = move |delivery: Delivery| {
            noted.lock().unwrap().push(delivery.sequence_number().0);
            async { Ok(()) }
        };
        world.consume("orders", handler, ConsumerOptions::at_once(1).with_prefetch(4)).await?;
        world.come_to_rest().await;
        assert!(seen.lock().unwrap().iter().copied().eq(1..=ORDERS));
        Ok(())
    });
    assert_eq!(passed.runs, 12);
}

/// A run that depends on anything outside of the simulation is reported as not repeatable.
#[test]
fn an_unrepeatable_run_is_reported() {
    let count = AtomicU64::new(0);
    let failure = Simulation::new().try_run(|world| {
        let run = count.fetch_add(1, Ordering::Relaxed);
        async move {
            world.note(format!("run {run}"));
            Err("as asked".into())
        }
    });
    let failure = failure.unwrap_err();
    assert!(failure.what.starts_with("as asked"), "{failure}");
    assert!(failure.what.contains("from line 1 of the trace"), "{failure}");
}

/// An invariant that is violated at any time fails the run, even if it holds at the end. So does a
/// run that never ends.
#[test]
fn an_invariant_and_an_end_are_watched() {
    let failure = Simulation::new().seeds(0..1).try_run(|world| async move {
        world.client().admin().create_queue("orders").await?;
        let inside = Arc::new(AtomicU64::new(0));
        let watched = Arc::clone(&inside);
        world.always("at most one is inside", move || watched.load(Ordering::Relaxed) <= 1);
        let handler = move |_: Delivery| {
            let inside = Arc::clone(&inside);
            async move {
                inside.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
                inside.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            }
        };
        world.consume("orders", handler, ConsumerOptions::at_once(2)).await?;
        for _ in 0..2 {
            world.client().sender("orders")?.send(Message::new("coffee")).await?;
        }
        world.come_to_rest().await;
        Ok(())
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.what, "it does not hold any more: at most one is inside");
    let calm = Simulation::new().seeds(0..1).mishaps_max(0).steps_max(2_000);
    let endless = calm.try_run(|world| async move {
        world.client().admin().create_queue("orders").await?;
        let never = |_: Delivery| async { Err(Refusal::Release) };
        world.consume("orders", never, ConsumerOptions::at_once(1)).await?;
        world.client().sender("orders")?.send(Message::new("coffee")).await?;
        world.come_to_rest().await;
        Ok(())
    });
    let endless = endless.unwrap_err();
    assert_eq!(endless.what, "it has no end: more than 2000 steps");
    assert!(endless.to_string().ends_with(".mishaps_max(0).steps_max(2000) runs it again"));
}
