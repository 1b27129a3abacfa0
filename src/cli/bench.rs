//! `peeklock bench`: what this machine makes of a load, beside what its disk allows.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Failure, say};
use crate::bench::{self, BenchError, backlog, cycle::Cycle};

pub const HELP: &str = "\
Loads:
  cycle     send, receive under lock and complete, all durable at acknowledgement, in lists
  backlog   send everything, open the broker again, then receive and complete everything

The load runs in this process, on a broker and a journal of its own in a new directory below
--data-dir, which is removed afterwards. With --floor, `cycle` is followed by the same writes and syncs
without a broker: what the disk alone takes.

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
}

#[derive(Clone, Copy, ValueEnum)]
enum Load {
    Cycle,
    Backlog,
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
    match flags.load {
        Load::Cycle => {
            let load = bench::durable_cycles(&flags.data_dir, cycle, &|_| {});
            say(&cycles(&runtime.block_on(load)?, flags.floor))
        }
        Load::Backlog => {
            let load = backlog::run(&flags.data_dir, cycle, &|_| {});
            say(&backlogs(&runtime.block_on(load)?))
        }
    }
}

/// Units a second.
fn rate(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate is no exact number")]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(1e-9)
}

fn cycles(result: &bench::Result, with_floor: bool) -> String {
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
    if with_floor {
        let floor = rate(result.messages, result.floor);
        row("floor: the disk alone", format!("{floor:.0}/s"));
        row("cycles / floor", format!("{:.2}", cycles / floor));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is no exact number")]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn backlogs(result: &backlog::Backlog) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "  {name:<28}{value:>16}").unwrap_or_default();
    };
    let memory = |kib: Option<u64>| {
        kib.map_or_else(|| "not told".to_owned(), |kib| format!("{} MiB", kib / 1_024))
    };
    let (sent, drained) =
        (rate(result.messages, result.sending), rate(result.messages, result.draining));
    row("messages", result.messages.to_string());
    row("sent", format!("{sent:.0}/s"));
    row("resident with the backlog", memory(result.resident_kib));
    row("opened again", format!("{:.2} s", result.opening.as_secs_f64()));
    row("received and completed", format!("{drained:.0}/s"));
    row("drained / sent", format!("{:.2}", drained / sent));
    row("resident at most", memory(result.resident_kib_max));
    row("segment files left", result.segments.to_string());
    text
}
