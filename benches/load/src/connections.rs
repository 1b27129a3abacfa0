//! Many idle connections that have completed the hello: measures their memory. `lib.rs` runs it for
//! the load `connections`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::ProgressBar;

use super::plan::Plan;
use super::process::Process;
use super::report::Report;
use super::target::Target;
use super::{BenchError, watched};

/// Open files in addition to the connections.
const OTHER_FILES: u64 = 64;
/// Idle time before the measurement.
const IDLE: Duration = Duration::from_secs(2);

/// Opens all connections, a window at a time, and measures the broker.
pub async fn run(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), BenchError> {
    let needed = plan.count + OTHER_FILES;
    if let Some(limit) = plan.open_files_max.filter(|limit| *limit < needed) {
        return Err(BenchError::Files { needed, limit });
    }
    let resident = || target.process().and_then(Process::resident_bytes);
    let sockets = || target.process().and_then(Process::sockets);
    let first = target.connect(plan.over).await?;
    let (before, sockets_before) = (resident(), sockets());
    let opened = AtomicU64::new(1);
    let started = Instant::now();
    let work = stream::iter(1..plan.count)
        .map(|_| async {
            let client = target.connect(plan.over).await?;
            opened.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BenchError>(client)
        })
        .buffer_unordered(plan.window)
        .try_collect::<Vec<_>>();
    let clients = watched(bar, plan.count, || opened.load(Ordering::Relaxed), work).await?;
    let elapsed = started.elapsed();
    tokio::time::sleep(IDLE).await;
    let opened = opened.into_inner();
    if let Some((now, before)) = sockets().zip(sockets_before)
        && let open = (now + 1).saturating_sub(before)
        && open < opened
    {
        return Err(BenchError::Closed { open, opened });
    }
    let grown = resident().zip(before).map(|(now, before)| now.saturating_sub(before));

    report.count("opened", "connections opened", opened);
    report.seconds("elapsed_seconds", "took", elapsed);
    report.rate("connections_per_second", "connections", plan.count, elapsed);
    report.text("cpu_of", "CPU and memory of", target.measured_process().to_owned());
    report.bytes_if_known("resident_bytes_grown", "resident for them", grown);
    let each = grown.map(|grown| grown / plan.count);
    report.bytes_if_known("resident_bytes_per_connection", "resident for each", each);
    let most = target.process().and_then(Process::resident_bytes_max);
    report.bytes_if_known("resident_bytes_max", "peak resident memory", most);
    drop((first, clients));
    Ok(())
}
