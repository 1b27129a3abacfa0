//! The loads that record the journal's disk operations: on a broker in this process, or for
//! `backlog` in two processes.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;

use crate::backlog::halves::{self, Half};
use crate::cycle::{self, Cycle};
use crate::due::{self, Lateness, Wait};
use crate::plan::{Load, Plan};
use crate::report::{Report, ratio};
use crate::{BenchError, Scratch, beside};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    Fill,
    Empty,
}

/// Runs such a load until its end or until `interrupted`.
pub async fn run(
    plan: &Plan,
    bar: &ProgressBar,
    interrupted: impl Future<Output = ()>,
) -> Result<Report, BenchError> {
    let mut report = Report::default();
    plan.report_to(&mut report);
    let work = async {
        let (cycle, place) = (shape(plan), plan.place.as_path());
        let progress = &|count: usize| bar.inc(count as u64);
        match plan.load {
            Load::Backlog => backlog(plan, &mut report).await?,
            Load::Beside => report_beside(&beside::run(place, cycle, progress).await?, &mut report),
            Load::Scheduled => {
                lateness(&due::run(place, Wait::Scheduled, cycle, progress).await?, &mut report);
            }
            Load::Delayed => {
                lateness(&due::run(place, Wait::Delayed, cycle, progress).await?, &mut report);
            }
            Load::Latency
            | Load::Throughput
            | Load::Memory
            | Load::Small
            | Load::Topic
            | Load::Queues
            | Load::Connections
            | Load::Cycle => {
                let (result, replay) = cycle::durable_cycles(place, cycle, progress).await?;
                let floor = if plan.floor { Some(replay.floor()?) } else { None };
                cycles(&result, floor, &mut report);
            }
        }
        Ok::<(), BenchError>(())
    };
    tokio::select! {
        biased;
        () = interrupted => return Err(BenchError::Interrupted),
        result = work => result?,
    }
    Ok(report)
}

fn shape(plan: &Plan) -> Cycle {
    Cycle {
        clients: plan.clients,
        list: plan.window,
        messages: usize::try_from(plan.messages).unwrap_or(usize::MAX),
        body_bytes: plan.body_bytes,
    }
}

/// Runs half of a backlog; returns the report for the parent process.
pub fn half(runtime: &Runtime, plan: &Plan, phase: Phase) -> Result<String, BenchError> {
    let (cycle, place) = (shape(plan), plan.place.as_path());
    let bar = super::bar(plan);
    let progress = &|count: usize| bar.inc(count as u64);
    let half = match phase {
        Phase::Fill => runtime.block_on(halves::fill(place, cycle, progress)),
        Phase::Empty => runtime.block_on(halves::empty(place, cycle, progress)),
    };
    bar.finish_and_clear();
    let Half { opening, working, resident_bytes_max } = half?;
    let resident_bytes_max = resident_bytes_max.unwrap_or(0);
    Ok(format!("{} {} {resident_bytes_max}\n", opening.as_micros(), working.as_micros()))
}

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().and_then(|()| self.0.wait().map(drop)).unwrap_or_default();
    }
}

/// Runs both halves, each in its own process.
async fn backlog(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let scratch = Scratch::within(&plan.place)?;
    let path = scratch.at("journal");
    let half = async |name: &str| -> Result<Half, BenchError> {
        let mut command = Command::new(std::env::current_exe().map_err(BenchError::System)?);
        command
            .args(["bench", "backlog", "--over", "in-process", "--half", name])
            .args(["--messages", &plan.messages.to_string()])
            .args(["--clients", &plan.clients.to_string()])
            .args(["--window", &plan.window.to_string()])
            .args(["--body-bytes", &plan.body_bytes.to_string()])
            .arg("--data-dir")
            .arg(&path)
            .stdout(Stdio::piped());
        // This process handles an interrupt at the terminal and ends the child.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = Ended(command.spawn().map_err(BenchError::System)?);
        let output = process.0.stdout.take();
        let reading = tokio::task::spawn_blocking(move || {
            output.map_or_else(|| Ok(String::new()), std::io::read_to_string)
        });
        let text = reading.await.map_err(|error| BenchError::Half(error.to_string()))?;
        let text = text.map_err(BenchError::System)?;
        let status = process.0.wait().map_err(BenchError::System)?;
        heard(&text)
            .filter(|_| status.success())
            .ok_or_else(|| BenchError::Half(format!("half of the load ended with {status}")))
    };
    let (fill, empty) = (half("fill").await?, half("empty").await?);
    let segments = halves::segments(&path).map_err(BenchError::System)?;
    backlogs(plan.messages, &fill, &empty, segments, report);
    Ok(())
}

fn heard(text: &str) -> Option<Half> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Half {
        opening: Duration::from_micros(next()?),
        working: Duration::from_micros(next()?),
        resident_bytes_max: Some(next()?).filter(|bytes| *bytes > 0),
    })
}

fn cycles(result: &cycle::Durable, floor: Option<Duration>, report: &mut Report) {
    let cycles =
        report.rate("messages_per_second", "whole cycles", result.messages, result.elapsed);
    report.count("syncs", "syncs", result.syncs);
    report.ratio("messages_per_sync", "messages a sync", ratio(result.messages, result.syncs));
    let written = ratio(result.written_bytes, result.body_bytes);
    report.ratio("written_to_body_bytes", "bytes written / bytes of bodies", written);
    if let Some(floor) = floor {
        let label = "floor: the disk only, median of 3";
        let floor = report.rate("floor_per_second", label, result.messages, floor);
        report.ratio("cycles_to_floor", "cycles / floor", cycles / floor);
    }
}

fn backlogs(messages: u64, fill: &Half, empty: &Half, segments: usize, report: &mut Report) {
    let sent = report.rate("sent_per_second", "sent", messages, fill.working);
    let label = "peak resident memory, sending";
    report.bytes_if_known("resident_bytes_max_sending", label, fill.resident_bytes_max);
    report.seconds("opening_seconds", "opened", empty.opening);
    let label = "received and completed";
    let drained = report.rate("drained_per_second", label, messages, empty.working);
    report.ratio("drained_to_sent", "drained / sent", drained / sent);
    let label = "peak resident memory, draining";
    report.bytes_if_known("resident_bytes_max_draining", label, empty.resident_bytes_max);
    report.count("segment_files_left", "segment files left", segments as u64);
}

fn report_beside(result: &beside::Beside, report: &mut Report) {
    report.bytes("idle_bytes", "idle in another queue", result.idle_bytes);
    report.bytes("through_bytes", "bodies sent and completed", result.body_bytes);
    let written = ratio(result.written_bytes, result.body_bytes);
    report.ratio("written_to_body_bytes", "bytes written / bytes of bodies", written);
}

fn lateness(result: &Lateness, report: &mut Report) {
    report.count("pending", "pending", result.pending);
    report.bytes_if_known("resident_bytes", "resident", result.resident_bytes);
    report.count("received", "became due and received", result.late.len() as u64);
    let late = [
        ("late_p50_ms", "late, p50", 500),
        ("late_p99_ms", "late, p99", 990),
        ("late_p99_9_ms", "late, p99.9", 999),
    ];
    for (key, label, of_thousand) in late {
        report.milliseconds(key, label, result.at(of_thousand));
    }
}
