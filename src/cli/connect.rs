//! Connection of a command to its broker, and the end of a command. Every command that talks to a
//! broker uses it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use peeklock::auth_sas::ConnectionString;
use peeklock::condition::Condition;
use peeklock::error::BrokerError;
use peeklock::path::{EntityAddress, EntityName};
use peeklock::tls::place::{self, Place};
use peeklock::websocket::client::{Client, ClientOptions, ClientTls, connect_with, url_of};

use super::arguments::SubscriptionName;
use super::contexts::{self, Contexts, DEFAULT_URL};
use super::exit::{self, Interrupt};
use super::identity::TlsFiles;
use super::own::{self, LocalBroker};
use super::terminal::{Out, line, note};
use super::{Failure, variable};

/// Time for which a finite command tries to restore a lost connection.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// Maximum time to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for a command to end in order after Ctrl-C.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Additional time for a command to report unfinished work.
const REPORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Flags that select the broker and the output format.
#[derive(Args)]
pub struct Common {
    /// Broker to connect to, such as ws://127.0.0.1:5301; PEEKLOCK_URL does the same [default: the
    /// broker of the context in use, else the broker that runs in ./data, else ws://127.0.0.1:5301]
    #[arg(long, value_name = "URL", value_parser = contexts::url, help_heading = "Connection")]
    url: Option<String>,
    /// Context to use for this command, by name; PEEKLOCK_CONTEXT does the same
    #[arg(long, value_name = "NAME", conflicts_with = "url", help_heading = "Connection")]
    context: Option<String>,
    /// Connection string of a policy of the broker; it also names the broker.
    /// PEEKLOCK_CONNECTION_STRING does the same and keeps the key out of the process list
    #[arg(long, value_name = "STRING", conflicts_with_all = ["url", "context"], help_heading = "Connection")]
    connection_string: Option<String>,
    /// Data directory of a broker on this machine; the command uses its first key, which only the
    /// owner of the directory can read
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "context", "connection_string"], help_heading = "Connection")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    files: TlsFiles,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    pub output: Output,
}

/// Output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Table for people
    Table,
    /// One JSON document for programs
    Json,
    /// One JSON object per line for programs
    Ndjson,
}

/// Clients that a connection string is for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientKind {
    /// Azure SDKs, and other clients over AMQP or HTTP
    Sdk,
    /// Commands of this program; the string differs only behind a proxy, and if the AMQP port is
    /// not known
    Peeklock,
}

/// Behaviour of a command that has lost its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The command is finite, so it gives up.
    Limited,
    /// The command continues until it is interrupted.
    Endless,
}

/// A connection of a command, with its interrupt and output.
pub struct CommandConnection {
    pub client: Client,
    pub interrupt: Interrupt,
    pub out: Out,
    /// Whether the command uses neither a token nor a key.
    is_anonymous: bool,
}

struct Target {
    url: String,
    token: Option<String>,
    /// Connection string that tokens are signed with, instead of a token.
    string: Option<ConnectionString>,
    /// Files of authorities to trust in addition to the authorities of the system.
    authorities: Vec<PathBuf>,
    /// Flag, variable or file that selected the broker, for errors.
    source: String,
}

impl Common {
    /// Selects the broker: a flag, otherwise the environment, otherwise the context in use,
    /// otherwise the default.
    fn target(&self) -> Result<Target, Failure> {
        let token = variable("PEEKLOCK_TOKEN")?;
        let of_context = |name: &str, source: String| {
            let context = Contexts::load()?.named(name)?;
            let wrong = |detail: &str| Failure::usage(format!("context `{name}`: {detail}"));
            let url = contexts::url(&context.url)
                .map_err(|error| wrong(&format!("`{}`: {error}", context.url)))?;
            let string = context.connection_string.as_deref().map(ConnectionString::parse);
            let string = string.transpose().map_err(|error| wrong(error.detail()))?;
            Ok(Target {
                string: string.filter(|_| token.is_none()),
                token: token.clone().or(context.token),
                authorities: context.ca.into_iter().collect(),
                ..Target::of_url(url, &source)
            })
        };
        if let Some(string) = &self.connection_string {
            return of_connection_string(string, "--connection-string");
        }
        if self.data_dir.is_some() {
            let (text, source) = own::first_key(self.data_dir.as_deref())?;
            let mut target = of_connection_string(&text, &source)?;
            target.authorities.extend(own::authority(self.data_dir.as_deref()));
            return Ok(target);
        }
        if let Some(url) = &self.url {
            return Ok(Target { token, ..Target::of_url(url.clone(), "--url") });
        }
        if let Some(name) = &self.context {
            return of_context(name, format!("context `{name}`"));
        }
        if let Some(string) = variable("PEEKLOCK_CONNECTION_STRING")? {
            return of_connection_string(&string, "PEEKLOCK_CONNECTION_STRING");
        }
        if let Some(text) = variable("PEEKLOCK_URL")? {
            let url = contexts::url(&text)
                .map_err(|error| Failure::usage(format!("PEEKLOCK_URL: `{text}`: {error}")))?;
            return Ok(Target { token, ..Target::of_url(url, "PEEKLOCK_URL") });
        }
        if let Some(name) = variable("PEEKLOCK_CONTEXT")? {
            return of_context(&name, format!("context `{name}` of PEEKLOCK_CONTEXT"));
        }
        match Contexts::load()?.current {
            Some(name) => of_context(&name, format!("context `{name}`")),
            None => self.default_target(token),
        }
    }

    /// The broker that runs in `./data`, with its first key and its authority, so that a command
    /// next to `peeklock serve` needs no flags even with TLS and without anonymous access;
    /// otherwise the default address.
    fn default_target(&self, token: Option<String>) -> Result<Target, Failure> {
        if let Some(own) = LocalBroker::running() {
            let mut target = of_connection_string(&own.string, &own.source)?;
            target.authorities.extend(own::authority(None));
            if token.is_some() {
                (target.string, target.token) = (None, token);
            }
            return Ok(target);
        }
        let place = DEFAULT_URL.trim_start_matches("ws://");
        // A given authority implies TLS.
        let url = match self.files.names_authority() {
            true => format!("wss://{place}"),
            false => DEFAULT_URL.to_owned(),
        };
        Ok(Target { token, ..Target::of_url(url, "the default") })
    }

    /// Source that selects the broker, if it is neither a data directory nor the default.
    pub fn broker_source(&self) -> Result<Option<String>, Failure> {
        if self.data_dir.is_some() {
            return Ok(None);
        }
        let source = self.target()?.source;
        let is_named = self.url.is_some()
            || self.context.is_some()
            || self.connection_string.is_some()
            || variable("PEEKLOCK_CONNECTION_STRING")?.is_some()
            || variable("PEEKLOCK_URL")?.is_some()
            || variable("PEEKLOCK_CONTEXT")?.is_some()
            || Contexts::load()?.current.is_some();
        Ok(is_named.then_some(source))
    }

    /// Address of that broker.
    pub fn place(&self) -> Result<Place, Failure> {
        let target = self.target()?;
        let place = Place::parse(&target.url, place::WEBSOCKET);
        place.ok_or_else(|| Failure::usage(format!("{}: `{}`", target.source, target.url)))
    }

    /// TLS settings of the connection.
    pub fn tls(&self) -> Result<ClientTls, Failure> {
        self.target()?.tls(&self.files)
    }

    /// Files for clients in the data directory of a broker on this machine: `--data-dir`, otherwise
    /// `./data`.
    pub fn own(&self) -> Result<LocalBroker, Failure> {
        LocalBroker::read(self.data_dir.as_deref())
    }

    /// Whether a data directory on this machine selects the broker.
    pub const fn names_data_dir(&self) -> bool {
        self.data_dir.is_some()
    }

    /// Connects, runs `work`, and closes the connection in order.
    pub fn run<W>(&self, patience: Patience, work: W) -> Result<(), Failure>
    where
        W: AsyncFnOnce(&CommandConnection) -> Result<(), Failure>,
    {
        // The connection has its own thread, so it stays alive while this thread writes to a full
        // pipe.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let result = runtime.block_on(self.open(patience)).and_then(|session| {
            let result = {
                // The work is compiled for each command, and the wait for it once.
                let working = pin!(work(&session));
                runtime.block_on(session.carry_out(working, patience))
            };
            runtime.block_on(session.close());
            result
        });
        runtime.shutdown_background();
        result
    }

    async fn open(&self, patience: Patience) -> Result<CommandConnection, Failure> {
        let target = self.target()?;
        let interrupt = Interrupt::listen()?;
        let client = tokio::select! {
            biased;
            () = interrupt.hit() => return Err(Failure::Reported(exit::INTERRUPTED)),
            client = connect(&target, &self.files, patience) => client?,
        };
        let is_anonymous = target.token.is_none() && target.string.is_none();
        Ok(CommandConnection { client, interrupt, out: Out::new(), is_anonymous })
    }
}

/// The broker that a connection string names, with a token signed by it.
fn of_connection_string(text: &str, source: &str) -> Result<Target, Failure> {
    let refused = |detail: &str| Failure::usage(format!("{source}: {detail}"));
    let string = ConnectionString::parse(text).map_err(|error| refused(error.detail()))?;
    let url = contexts::url(&url_of(&string)).map_err(|error| refused(&error))?;
    Ok(Target { string: Some(string), ..Target::of_url(url, source) })
}

impl Target {
    fn of_url(url: String, source: &str) -> Self {
        Self { url, token: None, string: None, authorities: Vec::new(), source: source.to_owned() }
    }

    /// TLS settings. Files are read only for a URL with TLS.
    fn tls(&self, files: &TlsFiles) -> Result<ClientTls, Failure> {
        if self.url.starts_with("wss://") {
            return files.client(&self.authorities);
        }
        Ok(ClientTls::of_system())
    }
}

async fn connect(target: &Target, files: &TlsFiles, patience: Patience) -> Result<Client, Failure> {
    let mut options = ClientOptions::default();
    options.token = target.token.as_deref().map(Arc::from);
    options.connection_string = target.string.clone().map(Arc::new);
    options.tls = target.tls(files)?;
    options.name = Some(concat!("peeklock/", env!("CARGO_PKG_VERSION")).into());
    options.give_up_after = match patience {
        Patience::Limited => Some(GIVE_UP_AFTER),
        Patience::Endless => None,
    };
    let Target { url, source, .. } = target;
    // TLS errors contain their own advice.
    let is_of_tls = |detail: &str| detail.contains("certificate") || detail.contains("TLS");
    connect_with(url, options).await.map_err(|error| match error.condition() {
        Condition::CommunicationProblem => {
            let detail = line(error.detail());
            // A detail that ends in a question has its own advice.
            let question = if detail.ends_with('?') || is_of_tls(&detail) {
                ""
            } else {
                "; start a broker there with `peeklock serve`"
            };
            Failure::ended(
                exit::NO_CONNECTION,
                format!("cannot connect to {url} ({source}): {detail}{question}"),
            )
        }
        Condition::Unauthorized => Failure::Failed(format!(
            "{url} ({source}) requires a valid token: {}; give one with \
             PEEKLOCK_CONNECTION_STRING, PEEKLOCK_TOKEN, --data-dir or `peeklock context add \
             --token-file`",
            line(error.detail())
        )),
        _ => error.into(),
    })
}

impl CommandConnection {
    /// Waits for the work of a command, also for a while after an interruption.
    async fn carry_out(
        &self,
        mut working: Pin<&mut dyn Future<Output = Result<(), Failure>>>,
        patience: Patience,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            result = &mut working => result,
            // Commands report unfinished work after the same event, so they get additional time.
            () = async {
                self.overdue().await;
                tokio::time::sleep(REPORT_TIMEOUT).await;
            } => match patience {
                Patience::Limited => Err(Failure::Reported(exit::INTERRUPTED)),
                // An endless command ends by interruption.
                Patience::Endless => Ok(()),
            },
        }
    }

    /// Closes the connection. Without an orderly close the broker would release locks that the
    /// command leaves on purpose.
    async fn close(self) {
        let gone = self.client.clone();
        tokio::select! {
            () = self.client.close() => {}
            () = gone.disconnected() => {}
            () = tokio::time::sleep(CLOSE_TIMEOUT) => {}
        }
    }

    /// Ready when the command was interrupted and then exceeds `INTERRUPT_TIMEOUT`, or when it
    /// cannot end in order because the connection is lost.
    pub async fn overdue(&self) {
        self.interrupt.hit().await;
        tokio::select! {
            () = tokio::time::sleep(INTERRUPT_TIMEOUT) => {}
            () = self.client.disconnected() => {}
        }
    }

    /// Warns after a command that ends anonymous access if the command used no token: its next run
    /// would be refused (SEC-17).
    pub fn note_end_of_anonymous_access(&self) {
        if self.is_anonymous {
            note(
                "from now on every client needs a token, permanently: `peeklock connection-string` \
                prints a connection string, and --data-dir uses the first key of a broker on this \
                machine",
            );
        }
    }

    /// Asks for confirmation of an irreversible action. Fails without a terminal.
    pub async fn confirm(&self, question: &str) -> Result<(), Failure> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(
                "nothing was changed: there is no terminal for the confirmation; add --yes to \
                 confirm",
            ));
        }
        let mut out = io::stderr();
        write!(out, "{} [y/N] ", line(question))?;
        out.flush()?;
        let answer = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).map(|_| answer)
        });
        let answer = tokio::select! {
            biased;
            () = self.interrupt.hit() => {
                note("");
                return Err(Failure::Reported(exit::INTERRUPTED));
            }
            answer = answer => answer.map_err(io::Error::other)??,
        };
        if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") {
            return Ok(());
        }
        Err(Failure::Failed("nothing was changed".to_owned()))
    }

    /// Failure of a command on a subscription, with a hint if its topic does not exist either.
    pub async fn subscription_failure(&self, of: &SubscriptionName, error: BrokerError) -> Failure {
        let SubscriptionName { topic, subscription } = of;
        let is_absent = error.condition() == Condition::EntityNotFound
            && matches!(self.client.admin().topic_exists(topic).await, Ok(false))
            && matches!(self.client.admin().queue_exists(topic).await, Ok(false));
        if !is_absent {
            return error.into();
        }
        Failure::ended(exit::NOT_FOUND, format!("there is no topic `{}`", line(topic))).hint(&format!(
            "create it with `peeklock topic create {topic}`, then the subscription with `peeklock \
             subscription create {topic} {subscription}`"
        ))
    }

    /// Reports lost and restored connections; never ends.
    pub async fn report_connection(&self) {
        loop {
            self.client.disconnected().await;
            note("connection lost; reconnecting");
            self.client.connected().await;
            note("connected again");
        }
    }
}

/// Failure with the condition, the reason and a hint.
impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        Self::Ended { code: code(error.condition()), text: error_text(&error) }
    }
}

/// Exit code of a condition.
pub const fn code(condition: Condition) -> u8 {
    match condition {
        Condition::EntityNotFound | Condition::MessageNotFound => exit::NOT_FOUND,
        Condition::EntityAlreadyExists => exit::EXISTS,
        Condition::CommunicationProblem => exit::NO_CONNECTION,
        Condition::ArgumentError | Condition::ArgumentOutOfRange => exit::USAGE,
        Condition::ServerBusy | Condition::ServiceTimeout | Condition::UpdateConflict => exit::BUSY,
        _ => 1,
    }
}

/// Whether a failed request may have been carried out (ERR-06).
pub const fn may_be_done(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::CommunicationProblem | Condition::ServiceTimeout | Condition::InternalError
    )
}

/// Complete text of an error of the broker.
pub fn error_text(error: &BrokerError) -> String {
    let retryable = if error.retryable() { "yes" } else { "no" };
    let mut text = format!("{}: {}", error.condition(), line(error.detail()));
    if error.condition() != Condition::CommunicationProblem {
        text.push_str(&format!("\n  retryable: {retryable}; tracking id: {}", error.tracking_id()));
    }
    if let Some(hint) = hint(error) {
        text.push_str("\n  hint: ");
        text.push_str(&hint);
    }
    text
}

/// Advice for an error, if there is some.
fn hint(error: &BrokerError) -> Option<String> {
    let entity = line(error.entity());
    let queue = entity.split("/$").next().unwrap_or_default();
    if let Ok(address) = EntityAddress::parse(queue)
        && let EntityName::Subscription { topic, name } = address.entity
    {
        return hint_at_subscription(error, &topic, &name);
    }
    Some(match error.condition() {
        Condition::EntityNotFound if error.detail().contains(&format!("path `{queue}`")) => {
            format!(
                "`peeklock top --once` lists all entities; `peeklock queue create {queue}` or \
                 `peeklock topic create {queue}` creates one"
            )
        }
        Condition::EntityNotFound => "`peeklock top --once` lists all entities".to_owned(),
        Condition::MessageSizeExceeded if !queue.is_empty() => format!(
            "raise the limit with `peeklock queue update {queue} --max-message-size-in-kilobytes \
             N` (or `peeklock topic update`); over HTTP, send smaller messages or set \
             limits.message_bytes_http_max"
        ),
        Condition::EntityDisabled => {
            format!("enable it with `peeklock queue update {queue} --status Active`")
        }
        Condition::QuotaExceeded if !queue.is_empty() => format!(
            "receive messages, or purge them with `peeklock queue purge {queue}`, or give it more \
             space with `peeklock queue update {queue} --max-size-in-megabytes N`"
        ),
        Condition::SessionCannotBeLocked => format!(
            "another receiver holds it; `peeklock receive {queue} --next-session` receives from a \
             session that is free"
        ),
        Condition::SessionLockLost => {
            "the next receiver that accepts the session continues it; for more time, set a longer \
             --lock-duration on the queue"
                .to_owned()
        }
        Condition::MessageLockLost => {
            "the message is delivered again; for more time, set a longer --lock-duration on the \
             queue"
                .to_owned()
        }
        _ => return None,
    })
}

/// Advice for an error on a subscription.
fn hint_at_subscription(error: &BrokerError, topic: &str, name: &str) -> Option<String> {
    let detail = error.detail();
    Some(match error.condition() {
        // The detail names the actual kind of the entity.
        Condition::EntityNotFound if detail.contains("not a topic") => return None,
        Condition::EntityNotFound => format!(
            "`peeklock subscription list {topic}` lists the subscriptions, `peeklock subscription \
             create {topic} {name}` creates one, `peeklock rule list {topic} {name}` lists its \
             rules"
        ),
        Condition::EntityDisabled => {
            format!("enable it with `peeklock subscription update {topic} {name} --status Active`")
        }
        Condition::MessageLockLost => {
            "the message is delivered again; for more time, set a longer --lock-duration on the \
             subscription"
                .to_owned()
        }
        _ => return None,
    })
}
