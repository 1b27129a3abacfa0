//! The configuration of the process: defaults, then a file, the environment and flags.
//!
//! `config/default.toml` holds every default and what it means; it is the lowest layer and what
//! `peeklock config default` prints, so that the two cannot differ.

mod limits;
mod peers;
mod queue;
mod ranges;
mod text;
mod webhook;
mod websocket;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use config::{FileFormat, Format as _, Map, Source, Value, ValueKind};
use peeklock::contract::browser::split_host;
use peeklock::description::{FailureTarget, OnDestinationFull, Settings};
use peeklock::forward_peeklock::PeerConfig;
use peeklock::forward_webhook::WebhookConfig;
use peeklock::limits::{Limits, Tier};
use peeklock::metrics_prometheus::EntityGauges;
use peeklock::path::validate_entity_path;
use peeklock::store::JournalConfig;
use peeklock::time::TimeSpan;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

pub use queue::QueueDeclaration;
pub use queue::differences;
pub use text::{FromText, List, Scalar, span_text};

/// Sizes that a file of the log may have.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
/// Files beside connections and segments: standard streams, listeners, wakers, what else the journal has.
const OTHER_FILES: u64 = 64;
/// Every default, with its comment.
pub const DEFAULT: &str = include_str!("config/default.toml");
/// The file that is read if it is there and no other was named.
const FILE: &str = "peeklock.toml";
/// What the names of environment variables begin with.
const PREFIX: &str = "PEEKLOCK";
/// What stands between the parts of the name of an environment variable.
const SEPARATOR: &str = "__";
/// The origin of values from the environment, as the crate `config` marks them.
const ENVIRONMENT: &str = "the environment";

/// The whole configuration, all values in their types.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of sections")]
pub struct Config {
    /// `[namespace]`.
    pub namespace: NamespaceSection,
    /// `[limits]`.
    pub limits: limits::LimitsSection,
    /// `[locks]`.
    pub locks: LocksSection,
    /// `[sessions]`.
    pub sessions: SessionsSection,
    /// `[forwarding]`.
    pub forwarding: ForwardingSection,
    /// `[server]`.
    pub server: ServerSection,
    /// `[journal]`.
    pub journal: JournalSection,
    /// `[http]`.
    pub http: HttpSection,
    /// `[websocket]`.
    pub websocket: websocket::WebSocketSection,
    /// `[webhook]`.
    pub webhook: webhook::WebhookSection,
    /// `[peers]`.
    pub peers: peers::PeersSection,
    /// `[security]`.
    pub security: SecuritySection,
    /// `[log]`.
    pub log: LogSection,
    /// `[metrics]`.
    pub metrics: MetricsSection,
    /// `[[queues]]`.
    #[serde(default)]
    pub queues: Vec<QueueDeclaration>,
}

/// What clients see of the namespace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct NamespaceSection {
    name: Scalar<String>,
    tier: Scalar<Tier>,
    auto_delete_on_idle: Scalar<TimeSpan>,
}

/// What becomes of locks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct LocksSection {
    release_on_detach: Scalar<bool>,
}

/// How sessions behave.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct SessionsSection {
    expire_whole_session: Scalar<bool>,
}

/// What becomes of messages that cannot be forwarded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct ForwardingSection {
    failure_target: Scalar<FailureTarget>,
    on_destination_full: Scalar<OnDestinationFull>,
}

/// The process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct ServerSection {
    /// Where messages are kept.
    pub data_dir: Scalar<String>,
    /// Whether messages are kept in memory only.
    pub ephemeral: Scalar<bool>,
    /// Threads that serve entities; zero for one per core.
    pub arbiters: Scalar<usize>,
}

/// The journal, which is the store unless the server is ephemeral.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct JournalSection {
    /// Memory for contents.
    pub cache_bytes: Scalar<u64>,
    /// What messages may take on disk; zero for what the disk has.
    pub capacity_bytes: Scalar<u64>,
    /// Free space of the disk under which sends are refused (QUO-05).
    pub free_bytes_min: Scalar<u64>,
    /// Size of one file of the log.
    pub segment_bytes: Scalar<u64>,
}

impl JournalSection {
    /// The same in the words of the store.
    pub fn config(&self) -> JournalConfig {
        JournalConfig {
            cache_bytes: self.cache_bytes.0,
            capacity_bytes: if self.capacity_bytes.0 == 0 {
                u64::MAX
            } else {
                self.capacity_bytes.0
            },
            free_bytes_min: self.free_bytes_min.0,
            segment_bytes: self.segment_bytes.0,
            ..JournalConfig::default()
        }
    }
}

/// The HTTP transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct HttpSection {
    /// Where it listens.
    pub address: Scalar<SocketAddr>,
    /// Names of this broker (SEC-23).
    pub allowed_hosts: List,
    /// Origins of web pages that may send requests (SEC-23).
    pub allowed_origins: List,
    /// Threads that serve connections; zero for one per core.
    pub workers: Scalar<usize>,
    /// How clients reach it; empty for the `Host` of the request (HTP-06).
    pub public_url: Scalar<String>,
    /// Connections at the same time; zero for the limit of the namespace.
    pub connection_count_max: Scalar<usize>,
    /// Request bodies in memory.
    pub inbound_bytes_max: Scalar<u64>,
    /// Contents on their way out in memory.
    pub outbound_bytes_max: Scalar<u64>,
    /// Time for the head of a request.
    pub head_timeout: Scalar<TimeSpan>,
    /// Time for the body of a request, before it must come at a pace.
    pub body_timeout: Scalar<TimeSpan>,
    /// Time for an answer, before it must be read at a pace.
    pub write_timeout: Scalar<TimeSpan>,
    /// How long an idle connection stays open.
    pub keep_alive: Scalar<TimeSpan>,
    /// Whether the metrics page needs no right.
    pub metrics_public: Scalar<bool>,
}

/// Who is let in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct SecuritySection {
    /// Whether clients without a token are let in (SEC-17).
    pub allow_anonymous: Scalar<bool>,
    /// Whether that is meant on addresses that are not loopback too (SEC-17).
    pub i_know: Scalar<bool>,
    /// Whether the host in a token has to be one by which this broker is known (SEC-13).
    pub strict_audience: Scalar<bool>,
}

/// The log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct LogSection {
    /// How a line looks.
    pub format: Scalar<LogFormat>,
    /// Which lines are written.
    pub filter: Scalar<String>,
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The metrics page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct MetricsSection {
    /// Which entities have gauges.
    pub entities: Scalar<EntityGauges>,
}

/// A value that was given as a flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as people write it.
    pub name: &'static str,
    /// The key it sets.
    pub key: &'static str,
    /// The value.
    pub value: String,
}

/// Where the layers over the defaults come from.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The file named; none for `./peeklock.toml` if there is one.
    pub file: Option<PathBuf>,
    /// In place of the environment of the process, for tests.
    pub environment: Option<Map<String, String>>,
    /// The flags given.
    pub flags: Vec<Flag>,
}

/// A configuration that was found valid.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// The settings of the broker that follow from them.
    pub settings: Settings,
    /// The file that was read.
    pub file: Option<PathBuf>,
    layers: Value,
}

/// Key, value and source of a configured value.
pub struct Row {
    /// The key, such as `http.address`.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Where it comes from; none for a default.
    pub source: Option<String>,
}

/// Why a configuration cannot be used. The text names key, value, source and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file `{}` cannot be read: {source}; name another with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file `{}` is not valid TOML: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        detail: String,
    },
    /// The environment cannot be read.
    #[error("environment: {0}")]
    Environment(String),
    /// A key that means nothing.
    #[error("unknown key `{key}`{}{}", set_by(source_name), meant(meant_key))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        source_name: Option<String>,
        /// The key that looks like it.
        meant_key: Option<String>,
    },
    /// A value that is not of its type, out of its bounds, or contradicts another.
    #[error("`{key}`: {detail}{}", set_by(source_name))]
    Invalid {
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        detail: String,
        /// Where it stands.
        source_name: Option<String>,
    },
}

fn set_by(source: &Option<String>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(" (set by {source})"))
}

fn meant(key: &Option<String>) -> String {
    match key {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; `peeklock config default` lists all keys".to_owned(),
    }
}

impl FromText for LogFormat {
    const EXPECTED: &'static str = "a log format: text or json";

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl FromText for EntityGauges {
    const EXPECTED: &'static str = "\"all\", \"none\" or a number of entities such as \"top:100\"";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Loaded {
    /// Reads all layers and judges the result.
    pub fn load(layers: &Layers) -> Result<Self, ConfigError> {
        let mut builder =
            config::Config::builder().add_source(config::File::from_str(DEFAULT, FileFormat::Toml));
        let file =
            layers.file.clone().or_else(|| Some(PathBuf::from(FILE)).filter(|file| file.exists()));
        if let Some(path) = &file {
            builder = builder.add_source(Layer::of_file(path)?);
        }
        let environment = config::Environment::with_prefix(PREFIX)
            .prefix_separator(SEPARATOR)
            .separator(SEPARATOR)
            .source(layers.environment.clone());
        builder = builder.add_source(environment);
        for flag in &layers.flags {
            builder = builder.add_source(Layer::of_flag(flag));
        }
        let built = builder.build().map_err(|error| ConfigError::Environment(error.to_string()))?;
        let layers = built.cache.clone();
        let config: Config = built.try_deserialize().map_err(|error| explain(&error, &layers))?;
        let settings = config.settings(&layers)?;
        Ok(Self { config, settings, file, layers })
    }

    /// The settings of the forwarder to webhooks; reads the files they name once more.
    pub fn webhook(&self) -> Result<WebhookConfig, ConfigError> {
        self.config.webhook.config().map_err(|wrong| self.invalid(wrong))
    }

    /// The settings of the forwarder to other brokers, likewise.
    pub fn peers(&self) -> Result<PeerConfig, ConfigError> {
        self.config.peers.config().map_err(|wrong| self.invalid(wrong))
    }

    fn invalid(&self, (key, detail): (String, String)) -> ConfigError {
        ConfigError::Invalid { source_name: source_of(&self.layers, &key), key, detail }
    }

    /// Every value in force, in the order of the documentation.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        collect("", &self.layers, &mut rows);
        for row in &mut rows {
            row.source = source_of(&self.layers, &row.key);
        }
        let (mut before, queues): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| !row.key.starts_with("queues["));
        before.retain(|row| !row.key.starts_with("limits."));
        before.extend(limits::list(&self.settings.limits).into_iter().map(|(name, value)| {
            let key = format!("limits.{name}");
            Row { source: source_of(&self.layers, &key), key, value }
        }));
        before.extend(queues);
        before
    }
}

impl Config {
    /// The settings of the broker; judges also what no single value shows.
    fn settings(&self, layers: &Value) -> Result<Settings, ConfigError> {
        let invalid = |key: &str, detail: String| ConfigError::Invalid {
            key: key.to_owned(),
            detail,
            source_name: source_of(layers, key),
        };
        let mut settings = Settings::new(self.namespace.name.0.as_str(), self.namespace.tier.0);
        self.limits.apply_to(&mut settings.limits);
        settings.auto_delete_on_idle_default = self.namespace.auto_delete_on_idle.0;
        settings.locks_release_on_detach = self.locks.release_on_detach.0;
        settings.sessions_expire_whole = self.sessions.expire_whole_session.0;
        settings.forwarding_failure_target = self.forwarding.failure_target.0;
        settings.forwarding_on_destination_full = self.forwarding.on_destination_full.0;
        if self.namespace.name.0.trim().is_empty() {
            return Err(invalid("namespace.name", "the name is empty".to_owned()));
        }
        settings
            .limits
            .validate()
            .map_err(|rejection| invalid("limits", rejection.detail().to_owned()))?;
        settings.validate().map_err(|rejection| {
            invalid("namespace.auto_delete_on_idle", rejection.detail().to_owned())
        })?;
        EnvFilter::builder().parse(&self.log.filter.0).map_err(|error| {
            let filter = &self.log.filter.0;
            let detail = format!(
                "`{filter}` is not a filter: {error}; write a level such as info, or \
                 info,peeklock_core=debug"
            );
            invalid("log.filter", detail)
        })?;
        ranges::judge(self, &settings.limits).map_err(|(key, detail)| invalid(key, detail))?;
        self.judge_journal().map_err(|(key, detail)| invalid(key, detail))?;
        self.webhook.config().map_err(|(key, detail)| invalid(&key, detail))?;
        self.peers.config().map_err(|(key, detail)| invalid(&key, detail))?;
        for (key, address) in self.addresses() {
            self.judge_access(address).map_err(|detail| invalid(key, detail))?;
        }
        self.judge_queues(&settings).map_err(|(key, detail)| invalid(&key, detail))?;
        Ok(settings)
    }

    fn judge_journal(&self) -> Result<(), (&'static str, String)> {
        let JournalSection {
            segment_bytes: Scalar(segment), free_bytes_min: Scalar(floor), ..
        } = self.journal;
        if !SEGMENT_BYTES.contains(&segment) {
            let (least, most) = (SEGMENT_BYTES.start(), SEGMENT_BYTES.end());
            let detail = format!("{segment} is not from {least} to {most} bytes");
            return Err(("journal.segment_bytes", detail));
        }
        if self.server.data_dir.0.is_empty() {
            let detail = "the directory has no name; write . for the current one".to_owned();
            return Err(("server.data_dir", detail));
        }
        // Settlements live on the floor when the disk is full.
        if floor < 4 * segment {
            let detail = format!("{floor} is less than four segments, {} bytes", 4 * segment);
            return Err(("journal.free_bytes_min", detail));
        }
        Ok(())
    }

    /// Where listeners listen, by the keys that say so.
    pub const fn addresses(&self) -> [(&'static str, SocketAddr); 2] {
        [("http.address", self.http.address.0), ("websocket.address", self.websocket.address.0)]
    }

    /// The hosts by which clients know this broker, as the configuration names them.
    pub fn known_hosts(&self) -> Vec<String> {
        let url = self.http.public_url.0.split_once("://").map_or("", |(_, rest)| rest);
        let public = url.split('/').next().and_then(split_host).map(|(host, _)| host.to_owned());
        let allowed = self.http.allowed_hosts.0.iter().chain(&self.websocket.allowed_hosts.0);
        let hosts = allowed.filter_map(|host| split_host(host)).map(|(host, _)| host.to_owned());
        hosts.chain(public).collect()
    }

    /// Anonymous clients are served on loopback only, unless that is confirmed (SEC-17).
    fn judge_access(&self, address: SocketAddr) -> Result<(), String> {
        let SecuritySection {
            allow_anonymous: Scalar(anonymous), i_know: Scalar(confirmed), ..
        } = self.security;
        if !anonymous || confirmed || address.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "`{address}` is not a loopback address, and security.allow_anonymous = true would let \
             everybody who reaches it read and delete every message; listen on 127.0.0.1, or confirm \
             with security.i_know = true; with security.allow_anonymous = false only those are let in who show a \
             token of a policy"
        ))
    }

    fn judge_queues(&self, settings: &Settings) -> Result<(), (String, String)> {
        let mut names: Vec<String> = Vec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            let refuse = |detail: &str| (format!("queues[{index}]"), detail.to_owned());
            let name = validate_entity_path(&queue.name, &settings.limits)
                .map_err(|rejection| refuse(rejection.detail()))?;
            queue
                .properties()
                .create(name.path(), settings)
                .map_err(|rejection| refuse(rejection.detail()))?;
            let key = name.key().as_str().to_owned();
            if names.contains(&key) {
                let detail = format!("the queue `{}` is declared twice; keep one", queue.name);
                return Err(refuse(&detail));
            }
            names.push(key);
        }
        if names.len() > settings.limits.entity_count_max {
            let detail = format!(
                "{} queues are more than limits.entity_count_max = {}",
                names.len(),
                settings.limits.entity_count_max
            );
            return Err(("queues".to_owned(), detail));
        }
        Ok(())
    }

    /// What the process may hold in memory for what is under way, besides what its entities keep: all commands on
    /// their way in, all requests and answers of the transports, the buffers of their connections, and
    /// the cache of the journal.
    pub fn budget_bytes(&self, limits: &Limits) -> u64 {
        /// Read and write buffer of one connection.
        const CONNECTION_BYTES: u64 = 64 << 10;
        let connections = u64::try_from(self.connection_count_max(limits)).unwrap_or(u64::MAX);
        let http = [self.http.inbound_bytes_max.0, self.http.outbound_bytes_max.0];
        http.into_iter()
            .chain([limits.broker_outbound_bytes_max])
            .chain((!self.server.ephemeral.0).then_some(self.journal.cache_bytes.0))
            .fold(limits.broker_inbound_bytes_max, u64::saturating_add)
            .saturating_add(connections.saturating_mul(CONNECTION_BYTES))
            .saturating_add(self.websocket.budget_bytes(limits))
    }

    /// How many files may have to be open: connections, and what the store needs.
    pub fn open_files(&self, limits: &Limits) -> u64 {
        let [http, websocket] = self.connections(limits);
        self.store_files()
            .saturating_add(OTHER_FILES)
            .saturating_add(http)
            .saturating_add(websocket)
    }

    /// Lowers the connections of both transports, in proportion, where not as many files may be open as they
    /// and the store need; returns how many connections are left. The store comes first, with half of all at
    /// most: without a file it ends, a client without one comes again.
    pub fn fit_connections(&mut self, limits: &Limits, files_max: u64) -> Option<u64> {
        let kept = self.store_files().min(files_max / 2).saturating_add(OTHER_FILES);
        let left = files_max.saturating_sub(kept);
        let [http, websocket] = self.connections(limits);
        let wanted = http.saturating_add(websocket);
        if wanted <= left {
            return None;
        }
        let share = |count: u64| {
            let share = u128::from(count) * u128::from(left) / u128::from(wanted.max(1));
            usize::try_from(share).unwrap_or(usize::MAX).max(1)
        };
        self.http.connection_count_max = Scalar(share(http));
        self.websocket.connection_count_max = Scalar(share(websocket));
        Some(left)
    }

    fn connections(&self, limits: &Limits) -> [u64; 2] {
        [self.connection_count_max(limits), self.websocket.connection_count_max(limits)]
            .map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// The segments of a journal as large as it may be, or of a hundred gigabytes where it may be as large as
    /// the disk.
    fn store_files(&self) -> u64 {
        const JOURNAL_BYTES: u64 = 100 << 30;
        let bytes = match (self.server.ephemeral.0, self.journal.capacity_bytes.0) {
            (true, _) => 0,
            (false, 0) => JOURNAL_BYTES,
            // The log may be twice as large as what is needed of it.
            (false, bytes) => bytes.saturating_mul(2),
        };
        bytes / self.journal.segment_bytes.0.max(1)
    }

    /// Connections at the same time.
    pub const fn connection_count_max(&self, limits: &Limits) -> usize {
        match self.http.connection_count_max.0 {
            0 => limits.connection_count_max,
            count => count,
        }
    }
}

/// Values of one source, marked with its name.
#[derive(Clone, Debug)]
struct Layer(Map<String, Value>);

impl Layer {
    fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let origin = path.display().to_string();
        FileFormat::Toml.parse(Some(&origin), &text).map(Self).map_err(|error| {
            let detail = error.to_string().trim_end().to_owned();
            ConfigError::Syntax { path: path.to_owned(), detail }
        })
    }

    fn of_flag(flag: &Flag) -> Self {
        let value = Value::new(Some(&flag.name.to_owned()), flag.value.as_str());
        Self(Map::from_iter([(flag.key.to_owned(), value)]))
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// Turns an error of the crate `config` into ours.
fn explain(error: &config::ConfigError, layers: &Value) -> ConfigError {
    use config::ConfigError as Theirs;
    let (key, detail) = match error {
        Theirs::At { error, key, .. } => (key.clone().unwrap_or_default(), error.to_string()),
        Theirs::Type { unexpected, expected, key, .. } => {
            (key.clone().unwrap_or_default(), format!("{unexpected} is not {expected}"))
        }
        other => (String::new(), other.to_string()),
    };
    // The crate leaves the dot out behind an element of a list.
    let key = key.replace(']', "].").replace("..", ".").trim_end_matches('.').to_owned();
    let child = |name: &str| {
        if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
    };
    if let Some((name, known)) = unknown_field(&detail) {
        let key = child(name);
        let nearest = known
            .iter()
            .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
            .min()
            .filter(|(distance, _)| *distance <= 3);
        return ConfigError::UnknownKey {
            source_name: source_of(layers, &key),
            meant_key: nearest.map(|(_, candidate)| child(candidate)),
            key,
        };
    }
    let source_name = source_of(layers, &key);
    ConfigError::Invalid { key, detail, source_name }
}

/// The name and the known names in serde's "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(detail: &str) -> Option<(&str, Vec<&str>)> {
    let mut quoted = detail.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// Where the value of a key comes from, as people say it; none for a default.
fn source_of(layers: &Value, key: &str) -> Option<String> {
    let value = find(layers, key)?;
    let origin = match &value.kind {
        ValueKind::Table(table) => {
            value.origin().or_else(|| table.values().find_map(Value::origin))
        }
        ValueKind::Array(values) => {
            value.origin().or_else(|| values.iter().find_map(Value::origin))
        }
        _ => value.origin(),
    }?;
    if origin != ENVIRONMENT {
        return Some(origin.to_owned());
    }
    let variable = key.to_uppercase().replace('.', SEPARATOR);
    Some(format!("{PREFIX}{SEPARATOR}{variable}"))
}

fn find<'a>(root: &'a Value, key: &str) -> Option<&'a Value> {
    let mut found = root;
    for part in key.split(['.', '[']).filter(|part| !part.is_empty()) {
        found = match (&found.kind, part.strip_suffix(']')) {
            (ValueKind::Array(values), Some(index)) => values.get(index.parse::<usize>().ok()?)?,
            (ValueKind::Table(table), None) => table.get(part)?,
            _ => return None,
        };
    }
    Some(found)
}

/// Lists the scalars and lists of scalars under a value.
fn collect(key: &str, value: &Value, rows: &mut Vec<Row>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (name, child) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(&key, child, rows);
            }
        }
        ValueKind::Array(values)
            if values.iter().any(|value| matches!(value.kind, ValueKind::Table(_))) =>
        {
            for (index, child) in values.iter().enumerate() {
                collect(&format!("{key}[{index}]"), child, rows);
            }
        }
        kind => {
            let value = Written(kind).to_string();
            rows.push(Row { key: key.to_owned(), value, source: None });
        }
    }
}

/// A value as a row shows it.
struct Written<'a>(&'a ValueKind);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ValueKind::Array(values) => {
                let parts: Vec<String> = values.iter().map(|part| part.kind.to_string()).collect();
                write!(f, "[{}]", parts.join(", "))
            }
            ValueKind::String(text) if text.is_empty() => f.write_str("\"\""),
            kind => fmt::Display::fmt(kind, f),
        }
    }
}

#[cfg(test)]
mod tests;
