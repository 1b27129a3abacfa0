//! The command line: its commands and flags, and how failures are printed. `main.rs` calls it.
//! Errors go to standard error, results to standard output.

mod serve;

mod bench;
mod check;
mod migrate;
mod repair;
mod scrub;
mod verify;

#[macro_use]
mod exit;
mod arguments;
mod connect;
mod contexts;
mod creation;
mod deed;
mod deletion;
mod identity;
mod listing;
mod message;
mod operate;
mod order;
mod own;
mod properties;
mod property;
mod purge;
mod terminal;

mod act;
mod apply;
mod audit;
mod checks;
mod completions;
mod connection_string;
mod context;
mod dlq;
mod export;
mod filters;
mod forward;
mod health;
mod holders;
mod import;
mod inspect;
mod job;
mod journey;
mod peek;
mod policy;
mod queue;
mod receive;
mod retry;
mod rule;
mod schedule;
mod search;
mod send;
mod series;
mod session;
mod sql_condition;
mod subscription;
mod tap;
mod tls;
mod token;
mod top;
mod topic;
mod topology;

use std::env::VarError;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};

use crate::Host;
use crate::config::{self, ConfigError, Flag, InPlace, Layers, LogFormat};
use crate::emulator::environment;
use crate::server::ServeError;

const ABOUT: &str = "A message broker with the semantics of Azure Service Bus";

const LONG_ABOUT: &str = "\
A message broker with the semantics of Azure Service Bus: queues and topics with peek-lock \
settlement, time to live, dead-letter queues, scheduling, deferral, sessions and duplicate \
detection.

Without a subcommand, `peeklock` is `peeklock serve`.";

const AFTER_HELP: &str = concat!(
    "\
Examples:
  peeklock                                   serve on ports 5300, 5301 and 5672 of 127.0.0.1; messages in ./data
  peeklock --ephemeral --http 127.0.0.1:0 --ws 127.0.0.1:0 --amqp 127.0.0.1:0
                                             for a test: in memory, on free ports
  peeklock config default > peeklock.toml    write a configuration file with all defaults
  peeklock config check                      show the values in use and their sources
  peeklock verify                            check all stored data for damage

  peeklock queue create orders               with a broker running: create a queue,
  peeklock send orders 'two coffees'         send a message to it,
  peeklock receive orders                    and receive the message
  peeklock topic create events               create a topic
  peeklock subscription create events eu --sql \"region = 'eu'\"
  peeklock export > topology.toml            write all queues and topics to a file
  peeklock apply -f topology.toml --dry-run  show the changes that apply would make
  peeklock top                               watch message rates
  peeklock dlq resubmit orders --dry-run     show the dead letters that would be sent again

Commands for queues, topics and messages connect by default to the broker that runs in ./data, \
else to ws://127.0.0.1:5301. --url, --context, PEEKLOCK_URL, PEEKLOCK_CONTEXT or `peeklock \
context use` selects another broker. You can also put these options and --output before the command.

",
    exit_codes!(),
    "\n  3    damaged data, found by `peeklock verify` or `peeklock audit verify`"
);

const SERVE_HELP: &str = "\
Examples:
  peeklock serve --data-dir /var/lib/peeklock
  peeklock serve --ephemeral
  peeklock serve --tls
  peeklock serve --config broker.toml --http 127.0.0.1:8080 -v
  PEEKLOCK__NAMESPACE__TIER=Standard peeklock serve
  peeklock serve --emulator --emulator-config Config.json

With --emulator the broker replaces Microsoft's Service Bus emulator: clients keep their \
connection string. Its key is public, so use this for development only; see docs/reference/emulator.md.

You can also give every setting in a file or in the environment. A flag overrides the \
environment, and the environment overrides the file. See `peeklock config default`.

SIGINT or SIGTERM stops the broker cleanly: listeners close, waiting receives end, and requests \
in progress get 5 seconds to finish. A second signal stops it at once.

Several brokers can use one PostgreSQL database: one serves clients, and the others stand by and \
take over when it stops or fails; see docs/reference/operation.md.

Exit codes:
  0  stopped by a signal
  1  failure, such as an address in use
  2  usage or configuration";

const CHECK_HELP: &str = "\
Examples:
  peeklock config check
  peeklock config check --config broker.toml

Exit codes:
  0  the configuration is valid
  2  the configuration is not valid";

#[derive(Parser)]
#[command(
    name = "peeklock",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Subcommand)]
enum Command {
    /// Run a broker until it receives SIGINT or SIGTERM
    #[command(after_help = SERVE_HELP)]
    Serve(ServeFlags),
    /// Create, show, change, purge and delete queues
    #[command(subcommand, after_help = queue::HELP)]
    Queue(queue::QueueCommand),
    /// Create, show, change and delete topics
    #[command(subcommand, after_help = topic::HELP)]
    Topic(topic::TopicCommand),
    /// Create, show, change and delete subscriptions of topics
    #[command(subcommand, after_help = subscription::HELP, visible_alias = "sub")]
    Subscription(subscription::SubscriptionCommand),
    /// Filter messages for subscriptions, and test filters
    #[command(subcommand, after_help = rule::HELP)]
    Rule(rule::RuleCommand),
    /// Create and update queues, topics, subscriptions and rules from a file
    #[command(after_help = apply::HELP)]
    Apply(apply::ApplyFlags),
    /// Write queues, topics, subscriptions and rules to a file for `apply`
    #[command(after_help = export::HELP)]
    Export(export::ExportFlags),
    /// Show which entities forward to which
    #[command(after_help = forward::HELP)]
    Forward(forward::ForwardFlags),
    /// Send messages
    #[command(after_help = send::HELP)]
    Send(send::SendFlags),
    /// Receive messages
    #[command(after_help = receive::HELP)]
    Receive(receive::ReceiveFlags),
    /// Look at messages without receiving them
    #[command(after_help = peek::HELP)]
    Peek(peek::PeekFlags),
    /// Look at entities, and at messages in any state, without leaving a trace
    #[command(after_help = inspect::HELP)]
    Inspect(inspect::InspectFlags),
    /// List locks with their holders, and break them
    #[command(after_help = holders::LOCKS_HELP)]
    Locks(holders::LocksFlags),
    /// List sessions with their messages, state and holder
    #[command(after_help = holders::SESSIONS_HELP)]
    Sessions(holders::SessionsFlags),
    /// List connected clients with their links, and close them
    #[command(after_help = holders::CLIENTS_HELP)]
    Clients(holders::ClientsFlags),
    /// Find messages by their content, in one, several or all entities
    #[command(after_help = search::HELP)]
    Search(search::SearchFlags),
    /// Show messages as an entity accepts them, without taking any
    #[command(after_help = tap::HELP)]
    Tap(tap::TapFlags),
    /// List, export and verify the audit trail of actions of operators
    #[command(subcommand, after_help = audit::HELP)]
    Audit(audit::AuditCommand),
    /// Look at dead-lettered messages and send them again
    #[command(subcommand, after_help = dlq::HELP)]
    Dlq(dlq::DlqCommand),
    /// Delete, dead-letter, undefer or reschedule messages by sequence number
    #[command(subcommand, after_help = act::HELP)]
    Message(act::MessageCommand),
    /// Delete, dead-letter, undefer or reschedule many messages in a job
    #[command(subcommand, after_help = job::HELP)]
    Job(job::JobCommand),
    /// Show and cancel scheduled messages
    #[command(subcommand, after_help = schedule::HELP)]
    Schedule(schedule::ScheduleCommand),
    /// Show the stations of a message, also after it is gone
    #[command(after_help = journey::HELP)]
    Journey(journey::JourneyFlags),
    /// Show the last messages that a topic published
    #[command(after_help = filters::SAMPLES_HELP)]
    Samples(filters::SamplesFlags),
    /// Try a rule on the last messages of a topic before you save it
    #[command(after_help = filters::WHAT_IF_HELP)]
    WhatIf(Box<filters::WhatIfFlags>),
    /// Show counts, gauges and times of an entity or of the namespace over time
    #[command(after_help = series::HELP)]
    Series(series::SeriesFlags),
    /// Show which entities copy and forward to which, with rates and the longest chain
    #[command(after_help = topology::HELP)]
    Topology(topology::TopologyFlags),
    /// Show the findings of the broker about faults, and mute them
    #[command(after_help = checks::HELP)]
    Checks(checks::ChecksFlags),
    /// List sessions, and show or set their state
    #[command(subcommand, after_help = session::HELP)]
    Session(session::SessionCommand),
    /// Watch queues, topics and subscriptions with their rates
    #[command(after_help = top::HELP)]
    Top(top::TopFlags),
    /// Name brokers, and select one for your commands
    #[command(subcommand, after_help = context::HELP)]
    Context(context::ContextCommand),
    /// Create, show and delete policies, and regenerate their keys
    #[command(subcommand, after_help = policy::HELP)]
    Policy(policy::PolicyCommand),
    /// Print a connection string for clients
    #[command(after_help = connection_string::HELP)]
    ConnectionString(connection_string::ConnectionStringFlags),
    /// Sign a token with the key of a connection string
    #[command(after_help = token::HELP)]
    Token(token::TokenFlags),
    /// Create a certificate authority for development, and let clients trust it
    #[command(subcommand, after_help = tls::HELP)]
    Tls(tls::TlsCommand),
    /// Check all stored data for damage, while the broker is stopped
    #[command(after_help = verify::HELP)]
    Verify(scrub::ScrubFlags),
    /// Repair a damaged data directory; shows the losses, asks, and keeps a copy
    #[command(after_help = repair::HELP)]
    Repair(repair::RepairFlags),
    /// Copy all messages between a data directory and a PostgreSQL database, while the broker is
    /// stopped
    #[command(after_help = migrate::HELP)]
    Migrate(migrate::MigrateFlags),
    /// Measure the throughput and latency of a broker on this machine
    #[command(after_help = bench::HELP)]
    Bench(bench::BenchFlags),
    /// Check, print and import configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a completion script for a shell
    #[command(after_help = completions::HELP)]
    Completions(completions::CompletionsFlags),
    /// Ask a broker whether it is ready
    #[command(after_help = health::HELP)]
    Health(health::HealthFlags),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check the configuration and print every setting with its value and source
    #[command(after_help = CHECK_HELP)]
    Check {
        #[command(flatten)]
        file: FileFlag,
    },
    /// Print a configuration file with every default and its explanation
    Default,
    /// Convert a configuration file of Microsoft's emulator to peeklock.toml
    #[command(after_help = import::HELP)]
    Import(import::ImportFlags),
}

#[derive(Args, Default)]
struct FileFlag {
    /// Configuration file [default: ./peeklock.toml if that file exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args, Default)]
struct ServeFlags {
    /// Directory for messages; created if it does not exist [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address for HTTP, such as 0.0.0.0:5300; port 0 selects a free port [default: 127.0.0.1:5300]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Address for WebSocket, such as 0.0.0.0:5301; port 0 selects a free port [default:
    /// 127.0.0.1:5301]
    #[arg(long, value_name = "ADDR")]
    ws: Option<String>,
    /// Address for AMQP, HTTP and WebSocket together, for the Azure SDKs; port 0 selects a free
    /// port [default: 127.0.0.1:5672, with TLS 127.0.0.1:5671]
    #[arg(long, value_name = "ADDR")]
    amqp: Option<String>,
    /// Second address for all protocols, such as 0.0.0.0:443; connection strings name it; port 0
    /// selects a free port [default: none]
    #[arg(long, value_name = "ADDR")]
    gateway: Option<String>,
    /// Accept TLS connections only, with the configured certificate or one of the development
    /// authority
    #[arg(long)]
    tls: bool,
    /// Keep messages in memory only: they are lost when the process ends
    #[arg(long)]
    ephemeral: bool,
    /// Replace Microsoft's Service Bus emulator: same ports on all addresses, same file, same
    /// development key
    #[arg(long)]
    emulator: bool,
    /// Configuration file of the emulator [default: CONFIG_PATH, or
    /// /ServiceBus_Emulator/ConfigFiles/Config.json if that file exists]
    #[arg(long, value_name = "FILE", requires = "emulator")]
    emulator_config: Option<PathBuf>,
    #[command(flatten)]
    file: FileFlag,
    /// Format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Log lines to write, by level and module, such as `info,peeklock_core=debug` [default:
    /// info,actix_server=warn,actix_http=off]
    #[arg(long, value_name = "FILTER")]
    log_filter: Option<String>,
    /// Log more; give it twice to log every frame
    #[arg(short, long, action = ArgAction::Count, conflicts_with_all = ["log_filter", "quiet"])]
    verbose: u8,
    /// Log less; give it twice to log errors only
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "log_filter")]
    quiet: u8,
}

/// Error that ends the program.
enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2.
    Misconfigured(ConfigError),
    /// Another exit code.
    Ended { code: u8, text: String },
    /// A failure that was printed already, with its exit code.
    Reported(u8),
}

impl Failure {
    /// Creates a failure with an exit code of its own.
    fn ended(code: u8, text: impl Into<String>) -> Self {
        Self::Ended { code, text: text.into() }
    }

    /// Creates the failure of an invalid command line or environment variable.
    fn usage(text: impl Into<String>) -> Self {
        Self::ended(exit::USAGE, text)
    }

    /// Adds a hint for the user.
    fn hint(self, hint: &str) -> Self {
        match self {
            Self::Ended { code, text } => {
                Self::Ended { code, text: format!("{text}\n  hint: {hint}") }
            }
            other => other,
        }
    }

    /// Message to print.
    fn text(&self) -> String {
        match self {
            Self::Failed(text) | Self::Ended { text, .. } => text.clone(),
            Self::Misconfigured(error) => error.to_string(),
            Self::Reported(_) => String::new(),
        }
    }

    const fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Misconfigured(_) => 2,
            Self::Ended { code, .. } | Self::Reported(code) => *code,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Misconfigured(error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Misconfigured(error) => Self::Misconfigured(error),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Parses the command line and runs its command.
pub fn run(host: Host) -> ExitCode {
    let arguments = order::in_order(std::env::args_os(), &CommandLine::command());
    let line = CommandLine::parse_from(arguments);
    let result = match line.command {
        None => serve::serve(&line.serve, host),
        Some(Command::Serve(flags)) => serve::serve(&flags, host),
        Some(Command::Verify(flags)) => verify::verify(&flags),
        Some(Command::Repair(flags)) => repair::repair(&flags),
        Some(Command::Migrate(flags)) => migrate::run(&flags),
        Some(Command::Bench(flags)) => bench::run(&flags),
        Some(Command::Config(ConfigCommand::Check { file })) => check::check(file),
        Some(Command::Config(ConfigCommand::Default)) => print(&config::default_text()),
        Some(Command::Config(ConfigCommand::Import(flags))) => import::import(&flags),
        Some(Command::Queue(command)) => queue::run(&command),
        Some(Command::Topic(command)) => topic::run(&command),
        Some(Command::Subscription(command)) => subscription::run(&command),
        Some(Command::Rule(command)) => rule::run(&command),
        Some(Command::Apply(flags)) => apply::run(&flags),
        Some(Command::Export(flags)) => export::run(&flags),
        Some(Command::Forward(flags)) => forward::run(&flags),
        Some(Command::Send(flags)) => send::run(&flags),
        Some(Command::Receive(flags)) => receive::run(&flags),
        Some(Command::Peek(flags)) => peek::run(&flags),
        Some(Command::Inspect(flags)) => inspect::run(&flags),
        Some(Command::Locks(flags)) => holders::locks(&flags),
        Some(Command::Sessions(flags)) => holders::sessions(&flags),
        Some(Command::Clients(flags)) => holders::clients(&flags),
        Some(Command::Search(flags)) => search::run(&flags),
        Some(Command::Tap(flags)) => tap::run(&flags),
        Some(Command::Audit(command)) => audit::run(&command),
        Some(Command::Dlq(command)) => dlq::run(&command),
        Some(Command::Message(command)) => act::run(&command),
        Some(Command::Job(command)) => job::run(&command),
        Some(Command::Schedule(command)) => schedule::run(&command),
        Some(Command::Journey(flags)) => journey::run(&flags),
        Some(Command::Samples(flags)) => filters::samples(&flags),
        Some(Command::WhatIf(flags)) => filters::what_if(&flags),
        Some(Command::Series(flags)) => series::run(&flags),
        Some(Command::Topology(flags)) => topology::run(&flags),
        Some(Command::Checks(flags)) => checks::run(&flags),
        Some(Command::Session(command)) => session::run(&command),
        Some(Command::Top(flags)) => top::run(&flags),
        Some(Command::Context(command)) => context::run(&command),
        Some(Command::Policy(command)) => policy::run(&command),
        Some(Command::ConnectionString(flags)) => connection_string::run(&flags),
        Some(Command::Token(flags)) => token::run(&flags),
        Some(Command::Tls(command)) => tls::run(&command),
        Some(Command::Completions(flags)) => completions::run(&flags),
        Some(Command::Health(flags)) => health::run(&flags),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if !matches!(failure, Failure::Reported(_)) {
        // If writing to standard error fails, the error cannot be reported.
        let _unheard =
            writeln!(io::stderr(), "error: {}", terminal::text(failure.text().as_bytes()));
    }
    ExitCode::from(failure.code())
}

/// Value of an environment variable; none if it is unset or blank.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name} is not UTF-8; set it to text in UTF-8")))
        }
    }
}

/// Writes to standard output. A reader that has closed the pipe, as `head` does, is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

impl ServeFlags {
    /// The layers of the configuration, with the flags given on top.
    fn layers(&self) -> Result<Layers, ConfigError> {
        let level = match (self.verbose, self.quiet) {
            (0, 0) => None,
            (0, 1) => Some("warn,actix_http=off"),
            (0, _) => Some("error,actix_http=off"),
            (1, _) => Some("info,actix_server=warn,actix_http=off,peeklock=debug"),
            (_, _) => Some("debug,peeklock=trace"),
        };
        let level_flag = if self.quiet > 0 { "--quiet" } else { "--verbose" };
        let format = self.log_format.map(|format| match format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        });
        let given = [
            ("--data-dir", "server.data_dir", self.data_dir.as_deref()),
            ("--http", "http.address", self.http.as_deref()),
            ("--ws", "websocket.address", self.ws.as_deref()),
            ("--tls", "tls.enabled", self.tls.then_some("true")),
            ("--amqp", "amqp.address", self.amqp.as_deref()),
            ("--gateway", "gateway.address", self.gateway.as_deref()),
            ("--ephemeral", "server.ephemeral", self.ephemeral.then_some("true")),
            ("--log-format", "log.format", format),
            ("--log-filter", "log.filter", self.log_filter.as_deref()),
            (level_flag, "log.filter", level),
        ];
        let flags = given
            .into_iter()
            .filter_map(|(name, key, value)| Some(Flag { name, key, value: value?.to_owned() }))
            .collect();
        let emulator = if self.emulator {
            let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
            let environment = environment::read(set).map_err(ConfigError::Emulator)?;
            Some(InPlace::new(self.emulator_config.clone(), environment))
        } else {
            None
        };
        Ok(Layers { file: self.file.config.clone(), environment: None, flags, emulator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
