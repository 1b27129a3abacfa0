//! The command: its flags, the plan that they ask for, and its run.

mod in_process;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peeklock::tls::ClientTls;
use peeklock::tls::place::{self, Place};
use tokio::runtime::{Builder, Runtime};

use crate::BenchError;
use crate::plan::{HTTP_WINDOW, Load, Over, Plan};
use crate::report::Report;

/// Text below the flags in the help of the command.
pub const HELP: &str = "\
A message counts once it was sent with acknowledgement, received under lock, and completed with \
acknowledgement. The command starts its own broker: a process on free loopback ports, or with \
`--over in-process` a broker in this process. Its data is in a new directory below --data-dir, \
which is removed at the end.

Examples:
  peeklock bench                                        W2 over WebSocket
  peeklock bench latency --floor                        W1, and the time of one disk sync
  peeklock bench w4 --over http --output json
  peeklock bench w2 --over amqp                         W2 over AMQP 1.0
  peeklock bench w2 --without-journeys                  the same without journeys of messages
  peeklock bench w5                                     a topic with ten subscriptions, compared with W2
  peeklock bench backlog --messages 100000
  peeklock bench throughput --url ws://127.0.0.1:5301   a broker that is already running
  peeklock bench cycle --floor                          lists in process, compared with the disk only

Over AMQP each client has one connection with a session and a link. The window counts unanswered \
transfers and deliveries whose completion is unanswered. Messages that arrive together are \
completed by one disposition. Queues are created over WebSocket, with --url at the same port, \
because that port serves all protocols.

CPU and memory are measured for the broker's process. In process they include the load, and with \
--url they are not known. The load uses the same machine: compare ratios within one run, not \
absolute numbers of different machines or days.

Exit codes:
  0    done
  1    failure: a refused command, a broker that did not start, messages left over
  2    usage
  130  interrupted; the broker has stopped and its directory is removed";

/// An error for contradicting flags, with a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(String);

/// Flags of the command, without those for TLS.
#[derive(Args)]
pub struct Flags {
    /// Load to run
    #[arg(value_enum, default_value_t = Load::Throughput)]
    load: Load,
    /// Transport to the broker [default: websocket; in-process for `cycle`, `beside`, `scheduled`,
    /// `delayed`]
    #[arg(long, value_enum, value_name = "TRANSPORT", hide_default_value = true)]
    over: Option<Over>,
    /// Use a running broker instead of starting one: ws://HOST:PORT or http://HOST:PORT, or
    /// amqp://HOST:PORT for a port that serves all protocols; with TLS wss://, https://, amqps://
    #[arg(long, conflicts_with_all = ["floor", "data_dir", "without_journeys"])]
    url: Option<String>,
    /// Also measure the disk only: for `latency`, `throughput`, `small` one sync of the bytes that
    /// one send writes, for `cycle` the same writes and syncs
    #[arg(long)]
    floor: bool,
    /// Start the broker without journeys of messages, to measure their cost
    #[arg(long)]
    without_journeys: bool,
    /// Total number of messages [default: 200000; `latency` 10000; `topic` 40000; `backlog`,
    /// `scheduled`, `delayed` 1000000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    messages: Option<u32>,
    /// Number of senders, and of receivers [default: 4; `latency` 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: Option<u16>,
    /// Commands in flight per client; commands per list in `cycle`, `beside`, `scheduled`,
    /// `delayed` [default: 256; over HTTP 16; `latency` 1]
    #[arg(long, visible_alias = "list", value_parser = clap::value_parser!(u16).range(1..=4096))]
    window: Option<u16>,
    /// Size of a message body in bytes [default: 1024; `small` 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    body_bytes: Option<u32>,
    /// Number of queues that `queues` creates, or of connections that `connections` opens
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Number of subscriptions of the topic in `topic`
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    subscriptions: u16,
    /// Number of threads that produce the load [default: half of the cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Directory below which the broker writes; use a directory on the disk that you want to
    /// measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    data_dir: PathBuf,
    /// Output format
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Output::Table)]
    output: Output,
    /// Run half of `backlog` in process, in a separate process
    #[arg(long, hide = true)]
    half: Option<in_process::Phase>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Table for people
    Table,
    /// One JSON object for programs; field names carry their units
    Json,
}

fn report(runtime: &Runtime, plan: &Plan, bar: &ProgressBar) -> Result<Report, BenchError> {
    let is_in_process = plan.load.is_in_process_only()
        || (plan.load, plan.over) == (Load::Backlog, Over::InProcess);
    runtime.block_on(async {
        let mut interrupted = Interrupted::listen().map_err(BenchError::System)?;
        Ok(match is_in_process {
            true => in_process::run(plan, bar, interrupted.come()).await?,
            false => crate::run(plan, bar, interrupted.come()).await?,
        })
    })
}

impl Flags {
    /// Runs the load with a progress bar on standard error, and returns the report for standard output.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub fn run(&self, plan: &Plan) -> Result<String, BenchError> {
        let runtime = runtime(plan.threads).map_err(BenchError::System)?;
        if let Some(phase) = self.half {
            return in_process::half(&runtime, plan, phase);
        }
        let bar = bar(plan);
        let report = report(&runtime, plan, &bar);
        bar.finish_and_clear();
        // Tasks of an interrupted load are not waited for.
        runtime.shutdown_background();
        let report = report?;
        Ok(match self.output {
            Output::Table => report.table(),
            Output::Json => report.json(),
        })
    }

    /// Returns the plan that the flags ask for, with the TLS of the system and no limit of open files.
    ///
    /// # Errors
    /// When flags contradict each other.
    pub fn plan(&self) -> Result<Plan, Contradiction> {
        let load = self.load;
        let is_of =
            |schemes| self.url.as_deref().is_some_and(|url| Place::parse(url, schemes).is_some());
        let schemes = [(place::HTTP, Over::Http), (place::AMQP, Over::Amqp)];
        let of_url = self.url.as_ref().map(|_| {
            let found = schemes.into_iter().find(|(schemes, _)| is_of(*schemes));
            found.map_or(Over::Websocket, |(_, over)| over)
        });
        let only = load.is_in_process_only().then_some(Over::InProcess);
        let over = self.over.or(only).or(of_url).unwrap_or(Over::Websocket);
        let name = load.name();
        if load.is_in_process_only() && over != Over::InProcess {
            return Err(Contradiction(format!(
                "`{name}` runs in process only: leave out --over {}, or give --over in-process",
                over.name()
            )));
        }
        let is_offered = match load {
            Load::Connections => !matches!(over, Over::Http | Over::InProcess),
            Load::Topic => over != Over::Http,
            // AMQP has no words for queues.
            Load::Queues => over != Over::Amqp,
            _ => true,
        };
        if !is_offered {
            return Err(Contradiction(format!(
                "`{name}` cannot run over {}; leave out --over to use its default transport",
                over.name()
            )));
        }
        if self.floor && !load.has_floor() {
            return Err(Contradiction(format!("`{name}` has no --floor; leave out the flag")));
        }
        if load == Load::Latency && (self.clients.is_some() || self.window.is_some()) {
            let text = "`latency` has one message in flight: leave out --clients and --window, or \
                run `throughput --clients 1 --window 1`";
            return Err(Contradiction(text.to_owned()));
        }
        if load.is_of_things() && (self.messages.is_some() || self.body_bytes.is_some()) {
            let text = format!("`{name}` sends no messages: leave out --messages and --body-bytes");
            return Err(Contradiction(text));
        }
        if let Some(url) = &self.url {
            let is_fit = match over {
                Over::Websocket | Over::WebsocketJson => is_of(place::WEBSOCKET),
                Over::Http => is_of(place::HTTP),
                // Queues are made over WebSocket at the same place.
                Over::Amqp => is_of(place::AMQP),
                Over::InProcess => false,
            };
            if !is_fit {
                let over = over.name();
                return Err(Contradiction(format!(
                    "--url {url} does not match --over {over}: the schemes differ; change one of \
                     the two"
                )));
            }
        }
        let shape = load.shape();
        let window = if over == Over::Http { shape.window.min(HTTP_WINDOW) } else { shape.window };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Plan {
            load,
            over,
            url: self.url.clone(),
            tls: ClientTls::of_system(),
            place: self.data_dir.clone(),
            floor: self.floor,
            has_journeys: !self.without_journeys,
            clients: self.clients.map_or(shape.clients, usize::from),
            window: self.window.map_or(window, usize::from),
            messages: self.messages.map_or(shape.messages, u64::from),
            body_bytes: self
                .body_bytes
                .map_or(shape.body_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            count: u64::from(self.count),
            subscriptions: usize::from(self.subscriptions),
            threads: self.threads.map_or((cores / 2).max(1), usize::from),
            open_files_max: None,
        })
    }
}

/// One thread has its own, simpler runtime: nothing to hand over.
fn runtime(threads: usize) -> io::Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).enable_all().build()
}

/// A progress bar for counted units: only on a terminal, on standard error.
fn bar(plan: &Plan) -> ProgressBar {
    let (all, unit) = match plan.load {
        Load::Queues => (plan.count, "queues"),
        Load::Connections => (plan.count, "connections"),
        Load::Latency
        | Load::Throughput
        | Load::Memory
        | Load::Small
        | Load::Topic
        | Load::Backlog
        | Load::Cycle
        | Load::Beside
        | Load::Scheduled
        | Load::Delayed => (plan.messages, "messages"),
    };
    let bar = if io::stderr().is_terminal() {
        ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    let template =
        "{prefix} [{bar:24}] {human_pos:>11} of {human_len:11} {per_sec:>14} {eta:>4} {msg}";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(unit);
    bar
}

/// The signals that end a load.
struct Interrupted {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Interrupted {
    #[cfg(unix)]
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    #[cfg(not(unix))]
    fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(unix)]
    async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn come(&mut self) {
        tokio::signal::ctrl_c().await.unwrap_or_default();
    }
}
