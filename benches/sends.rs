//! Benchmark of durable sends in process, with the journal as it is and with one that leaves every
//! batch to its own threads, in turn (decision 46).
//!
//! `cargo bench --bench sends`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that goes wrong has no figure"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock_core::Broker;
use peeklock_core::command::Command;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::store::{
    Batch, BatchId, Completion, Expectation, Fence, Journal, JournalConfig, Key, Records, Reserved,
    Shard, Store, StoreError, Submission, Waker,
};

const ROUNDS: usize = 10;

/// A journal without [`Store::commit_here`].
struct Threaded(Arc<Journal>);

#[async_trait::async_trait]
impl Store for Threaded {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn shard_count(&self) -> u16 {
        self.0.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.0.acquire(shard).await
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        self.0.reserve(shard, bytes, waker)
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        self.0.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        self.0.submit(submission, completion);
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.0.amend(expected, batch).await
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        self.0.pin(keys, contents);
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        self.0.scan(prefix)
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.0.exists(keys).await
    }

    fn close(&self) -> Result<(), StoreError> {
        self.0.close()
    }
}

/// CPU time in ns, and number of waits, of all threads of this process.
fn used() -> (u64, u64) {
    let (mut cpu, mut waits) = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let first = |text: &str| text.split_whitespace().next().and_then(|it| it.parse().ok());
        cpu += first(&read("schedstat")).unwrap_or(0);
        let status = read("status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits += line.and_then(first).unwrap_or(0);
    }
    (cpu, waits)
}

/// Cost of a message: p50 and p99 from send to acknowledgement, CPU, waits of threads, total time.
type Cost = [f64; 5];

async fn run(path: &Path, commits_here: bool, clients: usize, count: usize) -> Cost {
    let journal = Journal::open(path, JournalConfig::default()).unwrap();
    let store: Arc<dyn Store> = if commits_here { journal } else { Arc::new(Threaded(journal)) };
    let broker = Broker::builder().store(store).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let client = |count: usize| {
        let broker = broker.clone();
        async move {
            let (queue, mut times) = (broker.entity("q").unwrap(), Vec::with_capacity(count));
            for _ in 0..count {
                let begun = Instant::now();
                let message = broker.inbound(Message::new(vec![7; 1_024]));
                queue.call(Command::Send { message }).await.unwrap();
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            times
        }
    };
    client(50).await;
    let (before, begun) = (used(), Instant::now());
    let clients: Vec<_> = (0..clients).map(|_| tokio::spawn(client(count / clients))).collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await.unwrap());
    }
    let (took, after) = (begun.elapsed().as_secs_f64() * 1e6, used());
    broker.stop(Duration::ZERO).await.unwrap();
    times.sort_unstable_by(f64::total_cmp);
    let (all, at) = (times.len() as f64, |part: usize| times[times.len() * part / 100]);
    let (cpu, waits) = ((after.0 - before.0) as f64 / 1e3, (after.1 - before.1) as f64);
    [at(50), at(99), cpu / all, waits / all, took / all]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for (clients, count) in [(1, 2_000), (4, 4_000), (64, 20_000), (512, 40_000)] {
        let mut costs: [Vec<Cost>; 2] = Default::default();
        for round in 0..2 * ROUNDS {
            let commits_here = (round + round / 2) % 2 == 0;
            let path =
                std::env::temp_dir().join(format!("peeklock-commits-{}", std::process::id()));
            let cost = run(&path, commits_here, clients, count).await;
            std::fs::remove_dir_all(&path).unwrap();
            costs[usize::from(commits_here)].push(cost);
        }
        for (costs, name) in costs.iter().zip(["store's threads", "arbiter"]) {
            let of = |at: usize| median(costs.iter().map(|cost| cost[at]).collect());
            println!(
                "{clients} clients, {name}: p50 {:.0} us, p99 {:.0} us; a message takes {:.1} us of \
                 CPU, {:.2} waits of threads, {:.1} us",
                of(0),
                of(1),
                of(2),
                of(3),
                of(4)
            );
        }
        let ratio = |at: usize| {
            median(costs[1].iter().zip(&costs[0]).map(|(new, old)| new[at] / old[at]).collect())
        };
        println!(
            "{clients} clients, ratio: p50 {:.2}, CPU {:.2}, waits {:.2}, time {:.2}",
            ratio(0),
            ratio(2),
            ratio(3),
            ratio(4)
        );
    }
}
