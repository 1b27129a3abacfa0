//! Many queues (W7): measures the time to create them with many requests in flight, and their
//! memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use indicatif::ProgressBar;

use super::plan::{Over, Plan};
use super::process::Process;
use super::report::Report;
use super::target::Target;
use super::{BenchError, watched};

/// Maximum size of each queue.
const MEGABYTES: u64 = 1_024;

/// Creates all queues; each client has a window of requests in flight.
pub async fn run(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut clients = Vec::new();
    // Over HTTP, each request in flight needs a client with its own connection.
    let (of_clients, window) = match plan.over {
        Over::Http => (plan.clients * plan.window, 1),
        Over::Websocket | Over::WebsocketJson | Over::Amqp | Over::InProcess => {
            (plan.clients, plan.window)
        }
    };
    for _ in 0..of_clients {
        clients.push(target.connect(plan.over).await?);
    }
    // Connects first, so that the memory difference belongs to queues.
    let first = target.connect(plan.over).await?;
    first.create_queue(&name(0), MEGABYTES).await?;
    let resident = || target.process().and_then(Process::resident_bytes);
    let before = resident();
    let (next, created) = (AtomicU64::new(1), AtomicU64::new(1));
    let started = Instant::now();
    let work = try_join_all(clients.iter().map(|client| {
        let (next, created) = (&next, &created);
        let take = move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            (number < plan.count).then(|| name(number))
        };
        async move {
            let mut under_way = FuturesUnordered::new();
            loop {
                while under_way.len() < window
                    && let Some(path) = take()
                {
                    under_way.push(async move { client.create_queue(&path, MEGABYTES).await });
                }
                let Some(done) = under_way.next().await else { return Ok(()) };
                done?;
                created.fetch_add(1, Ordering::Relaxed);
            }
        }
    }));
    watched(bar, plan.count, || created.load(Ordering::Relaxed), work).await?;
    let elapsed = started.elapsed();
    let grown = resident().zip(before).map(|(now, before)| now.saturating_sub(before));
    if plan.url.is_some() {
        for number in 0..plan.count {
            first.delete_queue(&name(number)).await?;
        }
    }

    report.count("clients", "clients", plan.clients as u64);
    report.count("window", "requests in flight per client", plan.window as u64);
    report.count("created", "queues created", created.into_inner());
    report.seconds("elapsed_seconds", "took", elapsed);
    report.rate("queues_per_second", "queues", plan.count, elapsed);
    report.text("cpu_of", "CPU and memory of", target.measured_process().to_owned());
    report.bytes_if_known("resident_bytes_grown", "resident for them", grown);
    let each = grown.map(|grown| grown / plan.count);
    report.bytes_if_known("resident_bytes_per_queue", "resident for each", each);
    let most = target.process().and_then(Process::resident_bytes_max);
    report.bytes_if_known("resident_bytes_max", "peak resident memory", most);
    Ok(())
}

/// The path of a queue.
pub fn name(number: u64) -> String {
    format!("peeklock-bench-{}-{number}", std::process::id())
}
