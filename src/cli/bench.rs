//! `peeklock bench`: what this machine makes of a load, beside what its disk allows.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::runtime::Runtime;

use super::{Failure, say};
use crate::bench::backlog::{self, Half};
use crate::bench::beside::{self, Beside};
use crate::bench::cycle::Cycle;
use crate::bench::scheduled::{self, Scheduled};
use crate::bench::{self, BenchError, Scratch};

pub const HELP: &str = "\
Loads:
  cycle     send, receive under lock and complete, all durable at acknowledgement, in lists
  backlog   send everything; then another process receives and completes everything
  beside    `cycle` on one queue while a quarter as many messages lie idle in another
  scheduled schedule everything for tomorrow, and see how late others fall due

The load runs on a broker and a journal of its own, in a new directory
below --data-dir that is removed afterwards. With --floor, `cycle` is followed
by the same writes and syncs without a broker: what the disk alone takes.

Examples:
  peeklock bench --floor
  peeklock bench cycle --floor --list 1 --clients 1 --messages 20000
  peeklock bench backlog --messages 1000000

Trust ratios of one run, not figures of two machines or two days.";

#[derive(Args)]
pub struct BenchFlags {
    /// What to do
    #[arg(value_enum, default_value_t = Load::Cycle)]
    load: Load,
    /// Show what the disk alone takes, too
    #[arg(long)]
    floor: bool,
    /// Messages altogether
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Clients at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Commands that a client submits at once
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    list: u16,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    body_bytes: u32,
    /// Directory below which the load writes; its disk is what is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Half of `backlog`, in a process of its own
    #[arg(long, hide = true)]
    half: Option<Phase>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Phase {
    Fill,
    Empty,
}

#[derive(Clone, Copy, ValueEnum)]
enum Load {
    Cycle,
    Backlog,
    Beside,
    Scheduled,
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::Failed(error.to_string())
    }
}

pub fn run(flags: &BenchFlags) -> Result<(), Failure> {
    let cycle = Cycle {
        clients: usize::from(flags.clients),
        list: usize::from(flags.list),
        messages: usize::try_from(flags.messages).unwrap_or(usize::MAX),
        body_bytes: usize::try_from(flags.body_bytes).unwrap_or(usize::MAX),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let place = &flags.data_dir;
    // The halves of a backlog show their own.
    let shown = !matches!((flags.load, flags.half), (Load::Backlog, None));
    let bar = if shown { bar(u64::from(flags.messages)) } else { ProgressBar::hidden() };
    let progress = &|count: usize| bar.inc(count as u64);
    let told_text = told_text(flags, cycle, (&runtime, place.as_path()), progress);
    bar.finish_and_clear();
    say(&told_text?)
}

/// A bar for messages: on a terminal only, on standard error.
fn bar(messages: u64) -> ProgressBar {
    let bar = if io::stderr().is_terminal() {
        ProgressBar::with_draw_target(Some(messages), ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    let template = "messages [{bar:24}] {human_pos:>11} of {human_len:11} {per_sec:>14} {eta:>4}";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

/// Runs the load and returns what is to be said about it.
fn told_text(
    flags: &BenchFlags,
    cycle: Cycle,
    (runtime, place): (&Runtime, &Path),
    progress: &dyn Fn(usize),
) -> Result<String, Failure> {
    Ok(match (flags.load, flags.half) {
        (Load::Cycle, _) => {
            let load = bench::durable_cycles(place, cycle, progress);
            let (result, replay) = runtime.block_on(load)?;
            let floor = if flags.floor { Some(replay.floor()?) } else { None };
            cycles(&result, floor)
        }
        (Load::Backlog, None) => backlog(flags)?,
        (Load::Backlog, Some(Phase::Fill)) => {
            told(&runtime.block_on(backlog::fill(place, cycle, progress))?)
        }
        (Load::Backlog, Some(Phase::Empty)) => {
            told(&runtime.block_on(backlog::empty(place, cycle, progress))?)
        }
        (Load::Beside, _) => besides(&runtime.block_on(beside::run(place, cycle, progress))?),
        (Load::Scheduled, _) => {
            lateness(&runtime.block_on(scheduled::run(place, cycle, progress))?)
        }
    })
}

/// Runs both halves, each in a process of its own.
fn backlog(flags: &BenchFlags) -> Result<String, Failure> {
    let scratch = Scratch::within(&flags.data_dir)?;
    let path = scratch.at("journal");
    let half = |name: &str| -> Result<Half, Failure> {
        let output = std::process::Command::new(std::env::current_exe()?)
            .args(["bench", "backlog", "--half", name])
            .args(["--messages", &flags.messages.to_string()])
            .args(["--clients", &flags.clients.to_string()])
            .args(["--list", &flags.list.to_string()])
            .args(["--body-bytes", &flags.body_bytes.to_string()])
            .arg("--data-dir")
            .arg(&path)
            .stderr(std::process::Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        heard(&text).filter(|_| output.status.success()).ok_or_else(|| {
            Failure::Failed(format!("half of the load ended with {}", output.status))
        })
    };
    let (fill, empty) = (half("fill")?, half("empty")?);
    let segments = backlog::segments(&path)?;
    Ok(backlogs(u64::from(flags.messages), &fill, &empty, segments))
}

/// What one half tells the process that started it.
fn told(half: &Half) -> String {
    let Half { opening, working, resident_kib_max } = half;
    format!("{} {} {resident_kib_max}\n", opening.as_micros(), working.as_micros())
}

fn heard(text: &str) -> Option<Half> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Half {
        opening: Duration::from_micros(next()?),
        working: Duration::from_micros(next()?),
        resident_kib_max: next()?,
    })
}

/// Units a second.
fn rate(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate is no exact number")]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(1e-9)
}

fn cycles(result: &bench::Durable, floor: Option<Duration>) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        // Writing into a string cannot fail.
        writeln!(text, "  {name:<28}{value:>16}").unwrap_or_default();
    };
    let cycles = rate(result.messages, result.elapsed);
    row("messages", result.messages.to_string());
    row("whole cycles", format!("{cycles:.0}/s"));
    row("syncs", result.syncs.to_string());
    row("messages a sync", format!("{:.1}", ratio(result.messages, result.syncs)));
    row(
        "bytes written / of bodies",
        format!("{:.3}", ratio(result.written_bytes, result.body_bytes)),
    );
    if let Some(floor) = floor {
        let floor = rate(result.messages, floor);
        row("floor: the disk alone", format!("{floor:.0}/s"));
        row("cycles / floor", format!("{:.2}", cycles / floor));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is no exact number")]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn backlogs(messages: u64, fill: &Half, empty: &Half, segments: usize) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "  {name:<28}{value:>16}").unwrap_or_default();
    };
    let memory = |half: &Half| match half.resident_kib_max {
        0 => "not told".to_owned(),
        kib => format!("{} MiB", kib / 1_024),
    };
    let (sent, drained) = (rate(messages, fill.working), rate(messages, empty.working));
    row("messages", messages.to_string());
    row("sent", format!("{sent:.0}/s"));
    row("resident at most, sending", memory(fill));
    row("opened", format!("{:.2} s", empty.opening.as_secs_f64()));
    row("received and completed", format!("{drained:.0}/s"));
    row("drained / sent", format!("{:.2}", drained / sent));
    row("resident at most, draining", memory(empty));
    row("segment files left", segments.to_string());
    text
}

fn besides(result: &Beside) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "  {name:<28}{value:>16}").unwrap_or_default();
    };
    row("idle in another queue", format!("{} MiB", result.idle_bytes >> 20));
    row("bodies sent and completed", format!("{} MiB", result.body_bytes >> 20));
    row(
        "bytes written / of bodies",
        format!("{:.3}", ratio(result.written_bytes, result.body_bytes)),
    );
    text
}

fn lateness(result: &Scheduled) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "  {name:<28}{value:>16}").unwrap_or_default();
    };
    row("pending", result.pending.to_string());
    row("fell due and were received", result.late.len().to_string());
    for (name, of_thousand) in [("late, p50", 500), ("late, p99", 990), ("late, p99.9", 999)] {
        row(name, format!("{:.1} ms", result.at(of_thousand).as_secs_f64() * 1e3));
    }
    text
}
