//! The table of results, and its place in the documents. `main.rs` prints it, and inserts it
//! between its marks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::contender::Contender;
use crate::load::{Figures, Load};

const BEGIN: &str = "<!-- compare: begin; written by benches/compare/run -->";
const END: &str = "<!-- compare: end -->";

/// All results, round by round.
pub type Rounds = Vec<(Contender, Load, Figures)>;

/// Description of the machine and the run.
pub struct Setting {
    pub versions: Vec<String>,
    pub rounds: usize,
    /// Number of messages of W1, and of the other loads.
    pub messages: (u64, u64),
    pub load_average: String,
}

pub fn write(setting: &Setting, rounds: &Rounds) -> Result<String> {
    let mut text = String::new();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let Setting { versions, rounds: count, messages: (latency, others), load_average } = setting;
    writeln!(
        text,
        "Measured with {}. {count} round(s) in alternating order, medians; {others} messages ({latency} one at a \
         time; synced beanstalkd a tenth), each run on a new server after a warming up of a tenth. {cores} shared cores, Linux {}, load \
         average before the run {load_average}; server and load generator share the cores, CPU is in seconds \
         for a million messages.",
        versions.join(", "),
        kernel.trim()
    )?;
    for load in [Load::Throughput, Load::Small, Load::Memory] {
        rates(&mut text, load, rounds)?;
    }
    latencies(&mut text, rounds)?;
    Ok(text)
}

fn rates(text: &mut String, load: Load, rounds: &Rounds) -> Result<()> {
    let title = match load {
        Load::Throughput => "W2: 4 senders, 4 receivers, windows of 256, 1 KiB",
        Load::Small => "W4: the same with bodies of 16 bytes",
        Load::Memory => "W3: W2 in memory",
        Load::Latency => return Ok(()),
    };
    let mut rows = String::new();
    for contender in Contender::ALL {
        let (Some(rate), Some(durability)) =
            (median(rounds, contender, load, |it| it.rate), contender.durability(load))
        else {
            continue;
        };
        let all = sorted(rounds, contender, load, |it| it.rate);
        let server = median(rounds, contender, load, |it| it.server_cpu).unwrap_or(0.0);
        let client = median(rounds, contender, load, |it| it.load_cpu).unwrap_or(0.0);
        let (slowest, fastest) = (all.first().unwrap_or(&rate), all.last().unwrap_or(&rate));
        writeln!(
            rows,
            "| {} | {durability} | {} ({} to {}) | {server:.1} | {client:.1} |",
            contender.title(),
            thousands(rate),
            thousands(*slowest),
            thousands(*fastest),
        )?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n**{title}**\n")?;
    writeln!(
        text,
        "| | Acknowledgement promises | messages/s (slowest to fastest) | server CPU | load CPU |"
    )?;
    writeln!(text, "|---|---|---|---|---|\n{}", rows.trim_end())?;
    Ok(())
}

fn latencies(text: &mut String, rounds: &Rounds) -> Result<()> {
    let load = Load::Latency;
    let mut rows = String::new();
    for contender in Contender::ALL {
        let (Some(p50), Some(durability)) =
            (median(rounds, contender, load, |it| it.send_p50), contender.durability(load))
        else {
            continue;
        };
        let p99 = median(rounds, contender, load, |it| it.send_p99).unwrap_or(0.0);
        let all = sorted(rounds, contender, load, |it| it.send_p50);
        let (least, most) = (all.first().unwrap_or(&p50), all.last().unwrap_or(&p50));
        writeln!(
            rows,
            "| {} | {durability} | {p50:.0} us ({least:.0} to {most:.0}) | {p99:.0} us |",
            contender.title()
        )?;
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n**W1: one message at a time, 1 KiB, from send to acknowledgement**\n")?;
    writeln!(text, "| | Acknowledgement promises | p50 (least to most) | p99 |")?;
    writeln!(text, "|---|---|---|---|\n{}", rows.trim_end())?;
    if let Some(floor) = median(rounds, Contender::Peeklock, load, |it| it.floor_p50.unwrap_or(0.0))
    {
        writeln!(
            text,
            "\nThe floor, one write and sync of the same bytes by a loop without a broker in the same runs: \
             p50 {floor:.0} us."
        )?;
    }
    Ok(())
}

fn sorted(
    rounds: &Rounds,
    contender: Contender,
    load: Load,
    figure: impl Fn(&Figures) -> f64,
) -> Vec<f64> {
    let of = rounds.iter().filter(|(product, workload, _)| (*product, *workload) == (contender, load));
    let mut figures: Vec<f64> = of.map(|(_, _, figures)| figure(figures)).collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn median(
    rounds: &Rounds,
    contender: Contender,
    load: Load,
    figure: impl Fn(&Figures) -> f64,
) -> Option<f64> {
    let figures = sorted(rounds, contender, load, figure);
    let (low, high) =
        (figures.get(figures.len().saturating_sub(1) / 2)?, figures.get(figures.len() / 2)?);
    Some((low + high) / 2.0)
}

fn thousands(rate: f64) -> String {
    format!("{:.1} k", rate / 1e3)
}

/// Replaces the table between its marks in a document.
pub fn insert(path: &Path, table: &str) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let marks = || format!("{} has no place for the table", path.display());
    let (before, rest) = text.split_once(BEGIN).with_context(marks)?;
    let (_, after) = rest.split_once(END).with_context(marks)?;
    fs::write(path, format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim()))?;
    Ok(())
}
