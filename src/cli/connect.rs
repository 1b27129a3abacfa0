//! How a command reaches its broker, and how a command ends.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use peeklock::auth_sas::ConnectionString;
use peeklock::condition::Condition;
use peeklock::error::BrokerError;
use peeklock::path::{EntityAddress, EntityName};
use peeklock::websocket::client::{Client, ClientOptions, ClientTls, connect_with, url_of};

use super::arguments::SubscriptionName;
use super::contexts::{self, Contexts, DEFAULT_URL};
use super::identity::TlsFiles;
use super::interrupt::Interrupt;
use super::own::{self, Own};
use super::terminal::{Out, line, note};
use super::{Failure, exit, variable};
use crate::place::{self, Place};

/// How long a command that is to end tries to get a lost connection back.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// How long the end of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a command may take to end in order after Ctrl-C.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a command may take to tell what it leaves behind.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);

/// Which broker, and in what form to answer.
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

/// A form of what is told.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Table for people
    Table,
    /// One JSON document for programs
    Json,
    /// One JSON object per line for programs
    Ndjson,
}

/// Whom a connection string is for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientKind {
    /// Azure SDKs, and other clients over AMQP or HTTP
    Sdk,
    /// Commands of this program; the string differs only behind a proxy, and if the AMQP port is
    /// not known
    Peeklock,
}

/// How long to go on without a broker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The command is to end, so it gives up.
    Limited,
    /// The command goes on until it is told to stop.
    Endless,
}

/// A connection, and what is around it.
pub struct Session {
    pub client: Client,
    pub interrupt: Interrupt,
    pub out: Out,
    /// Whether this command shows no token.
    is_anonymous: bool,
}

struct Target {
    url: String,
    token: Option<String>,
    /// In place of a token: what tokens are signed with.
    string: Option<ConnectionString>,
    /// Files of authorities that are trusted besides those of the system.
    authorities: Vec<PathBuf>,
    /// Who said so.
    source: String,
}

impl Common {
    /// The broker: a flag, else the environment, else the context in use, else the usual one.
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
            None => self.usual(token),
        }
    }

    /// The broker that runs in `./data`, with its first key and its authority, so that a command next to `peeklock serve` needs
    /// no flags, also with TLS and where anonymous access is over; else the usual address.
    fn usual(&self, token: Option<String>) -> Result<Target, Failure> {
        if let Some(own) = Own::running() {
            let mut target = of_connection_string(&own.string, &own.source)?;
            target.authorities.extend(own::authority(None));
            if token.is_some() {
                (target.string, target.token) = (None, token);
            }
            return Ok(target);
        }
        let place = DEFAULT_URL.trim_start_matches("ws://");
        // Whoever names an authority wants TLS.
        let url = match self.files.names_authority() {
            true => format!("wss://{place}"),
            false => DEFAULT_URL.to_owned(),
        };
        Ok(Target { token, ..Target::of_url(url, "the default") })
    }

    /// Names what says which broker is meant, if that is neither a data directory nor the default.
    pub fn names_broker(&self) -> Result<Option<String>, Failure> {
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

    /// Where this command reaches that broker.
    pub fn place(&self) -> Result<Place, Failure> {
        let target = self.target()?;
        let place = Place::parse(&target.url, place::WEBSOCKET);
        place.ok_or_else(|| Failure::usage(format!("{}: `{}`", target.source, target.url)))
    }

    /// Whom it trusts there.
    pub fn tls(&self) -> Result<ClientTls, Failure> {
        self.target()?.tls(&self.files)
    }

    /// What a broker on this machine has written for its clients: that of `--data-dir`, or else of `./data`.
    pub fn own(&self) -> Result<Own, Failure> {
        Own::read(self.data_dir.as_deref())
    }

    /// Whether the broker is that of a data directory on this machine.
    pub const fn names_data_dir(&self) -> bool {
        self.data_dir.is_some()
    }

    /// Connects, does the work, and closes the connection in order.
    pub fn run<W>(&self, patience: Patience, work: W) -> Result<(), Failure>
    where
        W: AsyncFnOnce(&Session) -> Result<(), Failure>,
    {
        let target = self.target()?;
        // The connection has a thread of its own: it lives on while this one writes to a pipe that is
        // full.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let result = runtime.block_on(async {
            let interrupt = Interrupt::listen()?;
            let connecting = connect(&target, &self.files, patience);
            let client = tokio::select! {
                biased;
                () = interrupt.hit() => return Err(Failure::Told(exit::INTERRUPTED)),
                client = connecting => client?,
            };
            let is_anonymous = target.token.is_none() && target.string.is_none();
            let session =
                Session { client: client.clone(), interrupt, out: Out::new(), is_anonymous };
            let result = {
                let mut working = std::pin::pin!(work(&session));
                tokio::select! {
                    biased;
                    result = &mut working => Some(result),
                    // Who has something to tell waits for the same.
                    () = async {
                        session.overdue().await;
                        tokio::time::sleep(LAST_WORDS_TIMEOUT).await;
                    } => None,
                }
            };
            let result = result.unwrap_or(match patience {
                Patience::Limited => Err(Failure::Told(exit::INTERRUPTED)),
                // To be told to stop is how it ends.
                Patience::Endless => Ok(()),
            });
            drop(session);
            // Without an orderly end the broker would release locks that shall stay.
            let gone = client.clone();
            tokio::select! {
                () = client.close() => {}
                () = gone.disconnected() => {}
                () = tokio::time::sleep(CLOSE_TIMEOUT) => {}
            }
            result
        });
        runtime.shutdown_background();
        result
    }
}

/// The broker that a connection string names, and a token by it.
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

    /// Whom to trust. Files are read only where they are needed.
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
    // What went wrong with TLS says what to do.
    let is_of_tls = |detail: &str| detail.contains("certificate") || detail.contains("TLS");
    connect_with(url, options).await.map_err(|error| match error.condition() {
        Condition::CommunicationProblem => {
            let detail = line(error.detail());
            // What answered asks something better.
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

impl Session {
    /// Ends when the command was told to stop, and either has not for long or cannot do anything in
    /// order because the connection is gone.
    pub async fn overdue(&self) {
        self.interrupt.hit().await;
        tokio::select! {
            () = tokio::time::sleep(INTERRUPT_TIMEOUT) => {}
            () = self.client.disconnected() => {}
        }
    }

    /// Warns after a command that ends anonymous access, if it was a client without a token itself: its next command would
    /// be refused (SEC-17).
    pub fn note_end_of_anonymous_access(&self) {
        if self.is_anonymous {
            note(
                "from now on every client needs a token, permanently: `peeklock connection-string` \
                prints a connection string, and --data-dir uses the first key of a broker on this \
                machine",
            );
        }
    }

    /// Asks before something that cannot be undone; in a pipe nobody can be asked.
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
                return Err(Failure::Told(exit::INTERRUPTED));
            }
            answer = answer => answer.map_err(io::Error::other)??,
        };
        if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") {
            return Ok(());
        }
        Err(Failure::Failed("nothing was changed".to_owned()))
    }

    /// What was refused of a subscription, with the way out where its topic is not there either.
    pub async fn of_subscription(&self, of: &SubscriptionName, error: BrokerError) -> Failure {
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

    /// Tells of lost connections as long as the future lives.
    pub async fn tell_connection(&self) {
        loop {
            self.client.disconnected().await;
            note("connection lost; reconnecting");
            self.client.connected().await;
            note("connected again");
        }
    }
}

/// What the broker refused: the condition, the reason, and what may help.
impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        Self::Ended { code: code(error.condition()), text: told(&error) }
    }
}

/// The exit code of a condition.
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

/// Whether what failed so may have been done all the same (ERR-06).
pub const fn may_be_done(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::CommunicationProblem | Condition::ServiceTimeout | Condition::InternalError
    )
}

/// An error of the broker in full.
pub fn told(error: &BrokerError) -> String {
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

/// The way out, where there is a usual one.
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

/// The same for a subscription.
fn hint_at_subscription(error: &BrokerError, topic: &str, name: &str) -> Option<String> {
    let detail = error.detail();
    Some(match error.condition() {
        // The broker says what it is instead.
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
