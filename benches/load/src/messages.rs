//! Concurrent senders and receivers (W1 to W4), and the counters that all loads of messages share.
//! A run ends only when every message is received and completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use indicatif::ProgressBar;
use peeklock::path::subscription_path;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Client;
use super::latency::Latencies;
use super::plan::{Load, Plan};
use super::process::Process;
use super::report::Report;
use super::target::Target;
use super::{BenchError, watched};

/// Maximum number of warm-up messages, which make threads, files and connections ready: a tenth of
/// the messages, up to this number.
const WARM_MAX: u64 = 20_000;
/// Maximum size of a load's queue.
pub const QUEUE_MEGABYTES: u64 = 4_096;
/// A body of at least this length begins with its send time in hexadecimal.
const STAMP_CHARS: usize = 16;

/// One pass of a number of messages, which all clients share.
pub struct Run {
    /// The destination of the messages.
    pub queue: String,
    /// Commands in flight per client.
    pub window: usize,
    load: Load,
    body_bytes: usize,
    messages: u64,
    /// Total number of deliveries: for a topic, one for each subscription.
    deliveries: u64,
    began: Instant,
    taken: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    redelivered: AtomicU64,
    completed: watch::Sender<u64>,
    is_all_received: watch::Sender<bool>,
}

/// The clients that work in a phase of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Participants {
    Senders,
    Receivers,
    Both,
}

/// Results of a phase.
pub struct Phase {
    pub elapsed: Duration,
    /// CPU time of the broker process.
    pub cpu: Option<Duration>,
    /// CPU time of this process.
    pub load_cpu: Option<Duration>,
    pub send: Latencies,
    pub end_to_end: Latencies,
    pub sent: u64,
    pub received: u64,
    pub redelivered: u64,
}

/// Clients with their connections, and their queue.
pub struct Crowd<'a> {
    plan: &'a Plan,
    target: &'a Target,
    queue: String,
    /// The receivers' paths: the queue itself, or the subscriptions of a topic.
    sources: Vec<String>,
    admin: Client,
    senders: Vec<Client>,
    receivers: Vec<Client>,
}

/// Sends, receives and completes all messages concurrently.
pub async fn run(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), BenchError> {
    let crowd = Crowd::gather(plan, target).await?;
    crowd.phase(bar, Participants::Both, (plan.messages / 10).clamp(1, WARM_MAX)).await?;
    let phase = crowd.phase(bar, Participants::Both, plan.messages).await?;
    crowd.disperse().await?;
    phase.report_to(plan, target, report);
    Ok(())
}

impl Run {
    fn new(plan: &Plan, queue: &str, messages: u64, deliveries: u64) -> Self {
        Self {
            queue: queue.to_owned(),
            window: plan.window,
            load: plan.load,
            body_bytes: plan.body_bytes,
            messages,
            deliveries,
            began: Instant::now(),
            taken: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            redelivered: AtomicU64::new(0),
            completed: watch::Sender::new(0),
            is_all_received: watch::Sender::new(false),
        }
    }

    /// Takes one message to send; false if none is left.
    pub fn take(&self) -> bool {
        self.taken.fetch_add(1, Ordering::Relaxed) < self.messages
    }

    /// The body of a message that is sent at `now`.
    pub fn body(&self, now: Instant) -> Bytes {
        let mut body = self.blank_body();
        self.stamp(&mut body, now);
        body.into()
    }

    /// A body without a send time.
    pub fn blank_body(&self) -> Vec<u8> {
        vec![b'x'; self.body_bytes]
    }

    /// Writes the send time into a body that is long enough.
    pub fn stamp(&self, body: &mut [u8], now: Instant) {
        if let Some(mut begin) = body.get_mut(..STAMP_CHARS) {
            let nanoseconds = now.duration_since(self.began).as_nanos();
            // The text has the length of its place.
            std::io::Write::write_fmt(&mut begin, format_args!("{nanoseconds:016x}"))
                .unwrap_or_default();
        }
    }

    /// Whether each message is sent after the previous one is completed, so that no send waits for
    /// the sync of a completion.
    pub fn is_one_at_a_time(&self) -> bool {
        self.load == Load::Latency
    }

    /// Records an acknowledged send. Returns when the next may follow.
    pub async fn sent(&self) {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_one_at_a_time() {
            // This value owns the sender, so the wait cannot fail.
            let wait = async {
                self.completed.subscribe().wait_for(|count| *count >= sent).await.map(drop)
            };
            wait.await.unwrap_or_default();
        }
    }

    /// Records `count` acknowledged completions.
    pub fn completed(&self, count: u64) {
        if self.is_one_at_a_time() {
            self.completed.send_modify(|completed| *completed += count);
        }
    }

    /// Records a message that was received under lock.
    pub fn received(&self, body: &[u8], delivery_count: u32, took: &Latencies) {
        if delivery_count > 1 {
            self.redelivered.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let stamp = body.get(..STAMP_CHARS).and_then(|stamp| std::str::from_utf8(stamp).ok());
        if let Some(at) = stamp.and_then(|stamp| u64::from_str_radix(stamp, 16).ok()) {
            took.record(self.began.elapsed().saturating_sub(Duration::from_nanos(at)));
        }
        if self.received.fetch_add(1, Ordering::Relaxed) + 1 == self.deliveries {
            self.is_all_received.send_replace(true);
        }
    }

    /// Waits until every message was received.
    pub async fn all_received(&self) {
        // This value owns the sender, so the wait cannot fail.
        self.is_all_received.subscribe().wait_for(|all| *all).await.map(drop).unwrap_or_default();
    }
}

/// The path of the queue of a load.
pub fn queue() -> String {
    format!("peeklock-bench-{}", std::process::id())
}

impl<'a> Crowd<'a> {
    /// Creates the queue and connects all clients.
    pub async fn gather(plan: &'a Plan, target: &'a Target) -> Result<Self, BenchError> {
        let queue = queue();
        let crowd = Self::connect(plan, target, &queue, vec![queue.clone()]).await?;
        crowd.admin.create_queue(&queue, QUEUE_MEGABYTES).await?;
        Ok(crowd)
    }

    /// Creates a topic and its subscriptions, which the receivers share, and connects all clients.
    pub async fn gather_at_topic(plan: &'a Plan, target: &'a Target) -> Result<Self, BenchError> {
        let topic = queue();
        let names: Vec<_> = (0..plan.subscriptions).map(|number| format!("s{number}")).collect();
        let sources = names.iter().map(|name| subscription_path(&topic, name)).collect();
        let crowd = Self::connect(plan, target, &topic, sources).await?;
        crowd.admin.create_topic(&topic, QUEUE_MEGABYTES, &names).await?;
        Ok(crowd)
    }

    async fn connect(
        plan: &'a Plan,
        target: &'a Target,
        queue: &str,
        sources: Vec<String>,
    ) -> Result<Self, BenchError> {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..plan.clients {
            senders.push(target.connect(plan.over).await?);
            receivers.push(target.connect(plan.over).await?);
        }
        let admin = target.connect(plan.over).await?;
        Ok(Self { plan, target, queue: queue.to_owned(), sources, admin, senders, receivers })
    }

    /// Runs the given clients until all messages are processed.
    pub async fn phase(
        &self,
        bar: &ProgressBar,
        participants: Participants,
        messages: u64,
    ) -> Result<Phase, BenchError> {
        let deliveries = self.deliveries(messages);
        let run = Arc::new(Run::new(self.plan, &self.queue, messages, deliveries));
        let (mut send, mut end_to_end) = (Vec::new(), Vec::new());
        let process = self.target.process();
        let cpu = || process.and_then(Process::cpu);
        let (cpu_before, load_before) = (cpu(), Process::own().cpu());
        let started = Instant::now();
        let mut working = JoinSet::new();
        if participants != Participants::Senders {
            for (client, path) in self.receivers_of_sources() {
                let took = Arc::new(Latencies::new());
                end_to_end.push(Arc::clone(&took));
                let (client, path, run) = (client.clone(), path.to_owned(), Arc::clone(&run));
                working.spawn(async move { client.receive(&path, run, took).await });
            }
        }
        if participants != Participants::Receivers {
            for client in &self.senders {
                let took = Arc::new(Latencies::new());
                send.push(Arc::clone(&took));
                working.spawn(client.clone().send(Arc::clone(&run), took));
            }
        }
        let counter = if participants == Participants::Senders { &run.sent } else { &run.received };
        let work = async {
            while let Some(done) = working.join_next().await {
                done.map_err(|error| BenchError::Served(error.to_string()))??;
            }
            Ok(())
        };
        let all = if participants == Participants::Senders { messages } else { deliveries };
        watched(bar, all, || counter.load(Ordering::Relaxed), work).await?;
        let elapsed = started.elapsed();
        let used =
            |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        let phase = Phase {
            elapsed,
            cpu: used(cpu(), cpu_before),
            load_cpu: used(Process::own().cpu(), load_before),
            send: merged(&send),
            end_to_end: merged(&end_to_end),
            sent: run.sent.load(Ordering::Relaxed),
            received: run.received.load(Ordering::Relaxed),
            redelivered: run.redelivered.load(Ordering::Relaxed),
        };
        if participants != Participants::Senders {
            // Messages that were received and not completed would still be in the queue.
            for source in &self.sources {
                let left = self.admin.messages_in(source).await?;
                if left > 0 {
                    return Err(BenchError::Left { left });
                }
            }
        }
        Ok(phase)
    }

    /// Removes the queue or topic.
    pub async fn disperse(self) -> Result<(), BenchError> {
        self.admin.delete_queue(&self.queue).await
    }

    /// Number of deliveries of `messages` messages.
    pub fn deliveries(&self, messages: u64) -> u64 {
        messages.saturating_mul(self.sources.len() as u64)
    }

    /// The receivers with their paths: all of one queue, or each of some subscriptions.
    fn receivers_of_sources(&self) -> Vec<(&Client, &str)> {
        let count = self.receivers.len().max(self.sources.len());
        let clients = self.receivers.iter().cycle();
        let sources = self.sources.iter().map(String::as_str).cycle();
        clients.zip(sources).take(count).collect()
    }
}

fn merged(parts: &[Arc<Latencies>]) -> Latencies {
    let whole = Latencies::new();
    for part in parts {
        whole.add(part);
    }
    whole
}

impl Phase {
    fn report_to(&self, plan: &Plan, target: &Target, report: &mut Report) {
        report.count("sent", "sent with acknowledgement", self.sent);
        report.count("received", "received under lock", self.received);
        // The queue is empty afterwards; a run with remaining messages has no report.
        report.count("completed", "completed with acknowledgement", self.received);
        report.count("redelivered", "delivered again", self.redelivered);
        report.seconds("elapsed_seconds", "took", self.elapsed);
        report.rate("messages_per_second", "messages", plan.messages, self.elapsed);
        report.latency("send_latency", "send to acknowledgement", self.send.summary());
        report.latency("end_to_end_latency", "send to delivery", self.end_to_end.summary());
        self.report_cpu_to(plan, target, report);
        let resident = target.process().and_then(Process::resident_bytes_max);
        report.bytes_if_known("resident_bytes_max", "peak resident memory", resident);
    }

    pub fn report_cpu_to(&self, plan: &Plan, target: &Target, report: &mut Report) {
        report.text("cpu_of", "CPU and memory of", target.measured_process().to_owned());
        let label = "CPU, million messages";
        report.cpu_per_million("cpu_seconds_per_million", label, plan.messages, self.cpu);
        if target.process() != Some(Process::own()) {
            let label = "CPU of the load, million messages";
            let cpu = self.load_cpu;
            report.cpu_per_million("load_cpu_seconds_per_million", label, plan.messages, cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Over;

    fn run_of(body_bytes: usize, messages: u64) -> Run {
        let plan = Plan {
            load: Load::Throughput,
            over: Over::InProcess,
            url: None,
            tls: peeklock::tls::ClientTls::of_system(),
            place: ".".into(),
            floor: false,
            has_journeys: true,
            clients: 1,
            window: 1,
            messages,
            body_bytes,
            count: 0,
            subscriptions: 1,
            threads: 1,
            open_files_max: None,
        };
        Run::new(&plan, "q", messages, messages)
    }

    #[test]
    fn a_body_has_its_length_and_says_when_it_was_sent() {
        for (body_bytes, is_stamped) in [(0, false), (15, false), (16, true), (1_024, true)] {
            let (run, took) = (run_of(body_bytes, 1), Latencies::new());
            let body = run.body(Instant::now());
            assert_eq!(body.len(), body_bytes);
            run.received(&body, 1, &took);
            assert_eq!(took.summary().count, u64::from(is_stamped), "{body_bytes}");
        }
    }

    #[tokio::test]
    async fn a_message_that_comes_twice_counts_once() {
        let (run, took) = (run_of(16, 2), Latencies::new());
        run.received(b"", 1, &took);
        run.received(b"", 2, &took);
        assert!(!*run.is_all_received.borrow());
        run.received(b"", 1, &took);
        run.all_received().await;
        assert_eq!(run.redelivered.load(Ordering::Relaxed), 1);
        assert!(run.take() && run.take() && !run.take());
    }
}
