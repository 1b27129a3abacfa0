//! Benchmark of a whole broker in memory in an embedding program: lists across arbiters, single
//! commands, pushed deliveries, many queues. One message is created in advance and sent repeatedly.
//!
//! `cargo bench --bench end_to_end`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

mod measure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_core::Broker;
use peeklock_core::command::{Command, Drain, Outcome, ReceiveMode, Settlement};
use peeklock_core::message::Message;
use peeklock_core::request::{Outlet, Released, Reply, Request};
use peeklock_core::time::TimeSpan;

const LIST: usize = 64;
const LISTS: usize = 4_000;
const CLIENTS: usize = 4;
const SINGLES: usize = 200_000;
const IN_FLIGHT: usize = 256;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let broker = runtime
        .block_on(Broker::builder().arbiters(1).start())
        .unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async {
        for name in ["lists", "singles", "pushed"] {
            broker
                .create_queue(name, peeklock_core::description::QueueUpdate::default())
                .await
                .unwrap_or_else(|error| panic!("{error}"));
        }
    });
    measure::rate("across arbiters: whole cycle, lists of 64", LIST * LISTS, || {
        runtime.block_on(lists(&broker));
        assert_empty(&runtime, &broker, "lists");
    });
    // Two commands per message, each submitted and answered separately: a send and a settlement.
    // The pushed deliveries between them are not counted.
    measure::rate("single commands, 256 in flight, pushed: commands", 2 * SINGLES, || {
        pushed(&broker);
        assert_empty(&runtime, &broker, "pushed");
    });
    many_queues(&runtime, &broker);
}

/// Rejected commands are cheaper, so a run that leaves messages would distort the figure.
fn assert_empty(runtime: &tokio::runtime::Runtime, broker: &Broker, queue: &str) {
    let described = runtime.block_on(broker.describe_queue(queue));
    let described = described.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(described.counts.total(), 0, "{queue} is not empty");
}

/// Runs four clients on one thread, each with one list in flight: lists of sends, one receive,
/// lists of completions.
async fn lists(broker: &Broker) {
    let clients = (0..CLIENTS).map(|_| async {
        let entity = broker.entity("lists").unwrap_or_else(|error| panic!("{error}"));
        let message = Message::new(vec![0; 1_024]).with_message_id("id-of-the-message");
        for _ in 0..LISTS / CLIENTS {
            let sends = (0..LIST)
                .map(|_| Command::Send { message: broker.inbound(message.clone()) })
                .collect();
            for result in entity.call_many(sends).await {
                result.unwrap_or_else(|error| panic!("{error}"));
            }
            let mut left = LIST;
            while left > 0 {
                let receive = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: u32::try_from(left).unwrap_or(1),
                    bytes_max: u64::MAX,
                    wait: TimeSpan::from_seconds(10),
                    holder: None,
                };
                let Ok(Outcome::Received(messages)) = entity.call(receive).await else {
                    panic!("refused")
                };
                left -= messages.len();
                assert!(messages.iter().all(|one| one.facts.lock.is_some()));
                let completes = messages
                    .iter()
                    .filter_map(|one| one.facts.lock)
                    .map(|lock| Command::Settle {
                        token: lock.token,
                        settlement: Settlement::Complete,
                    })
                    .collect();
                for result in entity.call_many(completes).await {
                    result.unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
    });
    futures_util::future::join_all(clients).await;
}

/// A connection that sends single messages with 256 in flight, takes pushed deliveries and
/// completes each.
struct Connection {
    settled: AtomicU64,
    accepted: AtomicU64,
    mail: std::sync::mpsc::Sender<Vec<Released>>,
}

impl Outlet for Connection {
    fn release(&self, group: Vec<Released>) {
        self.mail.send(group).ok();
    }
}

fn pushed(broker: &Broker) {
    let entity = broker.entity("pushed").unwrap_or_else(|error| panic!("{error}"));
    let (mail, arrivals) = std::sync::mpsc::channel();
    let connection =
        Arc::new(Connection { settled: AtomicU64::new(0), accepted: AtomicU64::new(0), mail });
    let receiver = broker.receiver_id();
    let submit = |command: Command, correlation: u64| {
        entity.submit(vec![Request {
            ticket: broker.ticket(),
            sub_queue: entity.sub_queue(),
            command,
            reply: Reply::new(Arc::clone(&connection) as Arc<dyn Outlet>, correlation, None),
        }]);
    };
    let grant = |settled: u64| Command::SetCredit {
        receiver,
        delivery_limit: settled + IN_FLIGHT as u64,
        byte_limit: u64::MAX,
        drain: Drain::No,
    };
    submit(Command::Attach { receiver, mode: ReceiveMode::PeekLock }, 0);
    submit(grant(0), 0);
    let message = Message::new(vec![0; 1_024]).with_message_id("id-of-the-message");
    let send = || Command::Send { message: broker.inbound(message.clone()) };
    let mut sent = 0;
    while sent < IN_FLIGHT {
        submit(send(), 1);
        sent += 1;
    }
    while connection.settled.load(Ordering::Relaxed) < SINGLES as u64 {
        let group = arrivals.recv().unwrap_or_else(|error| panic!("{error}"));
        for item in group {
            match item {
                Released::Answer { correlation: 1, result } => {
                    result.unwrap_or_else(|error| panic!("{error}"));
                    connection.accepted.fetch_add(1, Ordering::Relaxed);
                    if sent < SINGLES {
                        submit(send(), 1);
                        sent += 1;
                    }
                }
                Released::Answer { correlation: 2, result } => {
                    result.unwrap_or_else(|error| panic!("{error}"));
                    let settled = connection.settled.fetch_add(1, Ordering::Relaxed) + 1;
                    if settled.is_multiple_of(64) {
                        submit(grant(settled), 0);
                    }
                }
                Released::Answer { result, .. } => {
                    result.unwrap_or_else(|error| panic!("{error}"));
                }
                Released::Detached { .. } | Released::Closed { .. } => panic!("detached"),
                Released::Delivery { message, .. } => {
                    let Some(lock) = message.facts.lock else { panic!("not locked") };
                    submit(
                        Command::Settle { token: lock.token, settlement: Settlement::Complete },
                        2,
                    );
                }
            }
        }
    }
    submit(Command::Detach { receiver, end: peeklock_core::command::LinkEnd::Orderly }, 0);
}

/// Measures the cost of 10,000 queues.
#[expect(clippy::print_stdout, reason = "the printed output is the result of a benchmark")]
fn many_queues(runtime: &tokio::runtime::Runtime, broker: &Broker) {
    let before = resident_kib();
    let started = std::time::Instant::now();
    runtime.block_on(async {
        let creates = (0..9_990).map(|number| {
            let broker = broker.clone();
            async move { broker.create_queue(&format!("many/{number}"), Default::default()).await }
        });
        let results = futures_util::future::join_all(creates).await;
        assert!(results.iter().all(Result::is_ok));
    });
    println!(
        "{:<60} {:>8.1} MiB   in {:.2} s",
        "9,990 further queues",
        (resident_kib() - before) as f64 / 1_024.0,
        started.elapsed().as_secs_f64()
    );
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}
