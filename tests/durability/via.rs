//! Sends through a topic in a program that is killed: a message that a transaction settles in a
//! subscription and sends on exists exactly once after any kill (TXN-09, TXN-15, VIA-04, VIA-05).
//!
//! Tokens go in a circle: a transaction completes them in a subscription and sends them, one
//! generation later, through the topic to a queue. The queue forwards them to the topic again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use peeklock::Client;
use peeklock::description::{QueueUpdate, SubscriptionUpdate};
use peeklock::ids::SequenceNumber;
use peeklock::message::Message;
use peeklock::time::TimeSpan;

use crate::alone::alone;
use crate::number;
use crate::random::Random;
use crate::transactions::{
    Known, LIFE_MS_MAX, TOKENS, Token, judge, live, moved, on_broker, print_line, read_line, run,
};

const TOPIC: &str = "tokens";
const HELD: &str = "tokens/Subscriptions/held";
const RETURN: &str = "return";
/// Time in which all tokens must arrive after a start.
const REST_MAX: Duration = Duration::from_secs(30);

/// TXN-09, TXN-15, VIA-01, VIA-04, VIA-05, FND-03: over many kills.
#[test]
fn a_settlement_and_a_send_through_a_topic_are_one_after_a_kill() {
    let _alone = alone();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("killed-via");
    let _absent = std::fs::remove_dir_all(&directory);
    let seed = number("PEEKLOCK_KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut random = Random::new(seed);
    on_broker(&directory, prepare);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let (mut ends, mut caught) = ([0; 3], 0);
    for round in 0..number("PEEKLOCK_KILL_ROUNDS").unwrap_or(12) {
        let life = Duration::from_millis(random.between(20, LIFE_MS_MAX));
        let first = known.keys().next_back().map_or(1, |last| last + 1);
        let lines = run("via::program", &directory, first, random.bits(), life);
        for line in &lines {
            read_line(line, &mut known);
        }
        let (found, were_moving) = on_broker(&directory, look);
        caught += u64::from(were_moving);
        let judged = judge(&known, first, &found);
        assert!(judged.is_empty(), "seed {seed}, round {round}:\n{}", judged.join("\n"));
        for known in known.range(first..).map(|(_, known)| known.end) {
            ends[known as usize] += 1;
        }
    }
    let [unknown, committed, not_committed] = ends;
    eprintln!(
        "{committed} committed, {not_committed} rolled back, {unknown} unknown, {caught} kills met \
         tokens on their way, seed {seed}"
    );
    assert!(committed > 20 && not_committed > 2, "the kills came too early to say something");
    std::fs::remove_dir_all(&directory).unwrap();
}

async fn prepare(client: &Client) {
    let admin = client.admin();
    admin.create_topic(TOPIC).await.unwrap();
    let properties = SubscriptionUpdate {
        lock_duration: Some(TimeSpan::from_minutes(5)),
        max_delivery_count: Some(1_000_000),
        ..SubscriptionUpdate::default()
    };
    admin.create_subscription_with(TOPIC, "held", properties, vec![]).await.unwrap();
    let properties = QueueUpdate { forward_to: Some(TOPIC.into()), ..QueueUpdate::default() };
    admin.create_queue_with(RETURN, properties).await.unwrap();
    let tokens = (0..TOKENS).map(|token| {
        let first = Token { token, generation: 0, transaction: 0, place: 0 };
        Message::new(first.written())
    });
    client.sender(TOPIC).unwrap().send_batch(tokens.collect()).await.unwrap();
}

/// Sequence number and token of every message once all are back in the subscription, and whether
/// some were elsewhere.
async fn look(client: &Client) -> (Vec<(u64, Token)>, bool) {
    let admin = client.admin();
    let begun = Instant::now();
    let mut were_moving = false;
    loop {
        let topic = admin.topic(TOPIC).await.unwrap();
        assert_eq!(topic.transfer_dead_letter, 0, "all can go on");
        let on_return = admin.queue(RETURN).await.unwrap().counts;
        if topic.transfer + on_return.total() == 0 {
            break;
        }
        were_moving = true;
        assert!(begun.elapsed() < REST_MAX, "tokens do not come to rest");
        tokio::task::yield_now().await;
    }
    let receiver = client.receiver(HELD).unwrap();
    let (mut found, mut from) = (Vec::new(), SequenceNumber(0));
    loop {
        let seen = receiver.peek(from, 100).await.unwrap();
        let Some(last) = seen.last() else { break };
        from = last.sequence_number().next();
        found.extend(seen.iter().map(|one| (one.sequence_number().0, Token::read(one.body()))));
    }
    (found, were_moving)
}

/// The program that is killed. Only the test above runs it.
#[test]
#[ignore = "is the program that the test kills"]
fn program() {
    live(work);
}

async fn work(client: &Client, next: &AtomicU64, mut random: Random) {
    let held_at = client.receiver(HELD).unwrap();
    let (onward, by_name) =
        (client.sender(RETURN).unwrap(), client.sender_via(RETURN, TOPIC).unwrap());
    loop {
        let count = u32::try_from(random.between(1, 5)).unwrap();
        let held = held_at.receive_many(count, TimeSpan::from_ms(20)).await.unwrap();
        if held.is_empty() {
            continue;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        let moved = moved(number, &held);
        let messages = moved.iter().map(|copy| Message::new(copy.written())).collect();
        // The send goes through the topic by a cross-entity transaction or by a sender with that
        // route.
        let transaction = if random.chance(50) {
            let transaction = client.begin_cross_entity_transaction().await.unwrap();
            for message in &held {
                transaction.complete(&held_at, message).await.unwrap();
            }
            transaction.send_batch(&onward, messages).await.unwrap();
            transaction
        } else {
            let transaction = client.begin_transaction().await.unwrap();
            transaction.send_batch(&by_name, messages).await.unwrap();
            for message in &held {
                transaction.complete(&held_at, message).await.unwrap();
            }
            transaction
        };
        let tokens: Vec<String> =
            moved.iter().map(|copy| format!("{} {}", copy.token, copy.generation)).collect();
        print_line(&format!("begun {number} {} .", tokens.join(" ")));
        if random.chance(20) {
            transaction.roll_back().await.unwrap();
            print_line(&format!("rolled-back {number} ."));
            for message in &held {
                held_at.release(message).await.unwrap();
            }
            continue;
        }
        transaction.commit().await.unwrap();
        print_line(&format!("committed {number} ."));
    }
}
