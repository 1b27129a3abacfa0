//! Runs the same loads on Peeklock and on other brokers, in one run on one machine, and writes a
//! table of the results. `benches/compare/run` installs missing programs and runs it.
//!
//! Each load is at least as good as typical code for that product: pipelined where the protocol
//! permits, with the usual client crate if there is one. It runs on one thread and shares the
//! machine with the server, like Peeklock's load. The top of each file describes the use of its
//! product.

mod amqp;
mod beanstalkd;
mod contender;
mod load;
mod nats;
mod peeklock;
mod rabbitmq;
mod redis_streams;
mod server;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use contender::Contender;
use load::Load;
use table::{Rounds, Setting};

#[derive(Parser)]
#[command(about = "Compares Peeklock with other brokers on this machine")]
struct Flags {
    /// The program `peeklock`, built for release
    #[arg(long)]
    peeklock: PathBuf,
    /// How often everything is run; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Messages of each load but `latency`
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    messages: u64,
    /// Messages of `latency`
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    latency_messages: u64,
    /// Only these loads
    #[arg(long, value_enum, value_delimiter = ',')]
    loads: Vec<Load>,
    /// Only these products
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Contender>,
    /// Directory below which all products write; the run measures its disk
    #[arg(long, default_value = ".")]
    data_dir: PathBuf,
    /// The document with the place for the table
    #[arg(long, default_value = "docs/reference/performance.md")]
    docs: PathBuf,
    /// Write the table to standard output only
    #[arg(long)]
    no_docs: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                result = run(&flags) => result,
                _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            }
        })
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: &Flags) -> Result<()> {
    let contenders = if flags.only.is_empty() { &Contender::ALL[..] } else { &flags.only };
    let loads = if flags.loads.is_empty() { &Load::ALL[..] } else { &flags.loads };
    let versions: Result<Vec<String>> =
        contenders.iter().map(|it| it.version(&flags.peeklock)).collect();
    let mut versions = versions?;
    versions.dedup();
    let load_average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let setting = Setting {
        versions,
        rounds: usize::from(flags.rounds),
        messages: (flags.latency_messages, flags.messages),
        load_average: load_average.split(' ').take(3).collect::<Vec<_>>().join(" "),
    };
    let mut rounds: Rounds = Vec::new();
    for round in 0..usize::from(flags.rounds) {
        for load in loads {
            // Each round starts with another product, so that none always runs at the same time of
            // a round.
            let mut order = contenders.to_vec();
            order.rotate_left(round % contenders.len());
            for contender in order {
                if contender.durability(*load).is_none() {
                    continue;
                }
                let messages =
                    if *load == Load::Latency { flags.latency_messages } else { flags.messages };
                let messages = contender.share(*load, messages);
                let run = contender.run(&flags.peeklock, &flags.data_dir, *load, messages).await;
                let figures = run.with_context(|| format!("{contender:?}, {}", load.name()))?;
                eprintln!(
                    "round {}  {:<10}  {:<11}  {:>8.0}/s  CPU {:>6.1} s/M (load {:>5.1})  send p50 {:>6.0} us, p99 {:>7.0} us",
                    round + 1,
                    load.name(),
                    format!("{contender:?}"),
                    figures.rate,
                    figures.server_cpu,
                    figures.load_cpu,
                    figures.send_p50,
                    figures.send_p99,
                );
                rounds.push((contender, *load, figures));
            }
        }
    }
    let table = table::write(&setting, &rounds)?;
    println!("{table}");
    if !flags.no_docs {
        table::insert(&flags.docs, &table)?;
    }
    Ok(())
}
