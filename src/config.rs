//! The configuration of the process: defaults, then a file, the environment and flags.
//!
//! `config/default.toml` holds the defaults with their meaning, and is the lowest layer. `peeklock config default` prints
//! it, with the limits of the table [`Limits::TABLE`] in its section `[limits]`.

mod amqp;
pub mod budget;
mod entity;
mod error;
mod gateway;
mod http;
mod in_place;
mod journal;
mod jwt;
mod limits;
mod open_files;
mod otlp;
mod peers;
mod ranges;
mod retry;
mod rule;
mod source;
mod text;
mod tls;
mod topology;
mod webhook;
mod websocket;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use config::{FileFormat, Format as _, Map, Value};
use peeklock::auth_jwt::JwtConfig;
use peeklock::contract::browser::split_host;
use peeklock::declaration::Declaration;
use peeklock::description::{FailureTarget, OnDestinationFull, Settings};
use peeklock::forward_peeklock::PeerConfig;
use peeklock::forward_webhook::WebhookConfig;
use peeklock::limits::{Limits, Tier};
use peeklock::metrics_prometheus::EntityGauges;
use peeklock::otlp::OtlpConfig;
use peeklock::time::TimeSpan;
use peeklock::tls::Tls;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use source::{Layer, PREFIX, SEPARATOR, collect, explain, source_of, spread_lists};

use crate::memory;

pub use entity::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration};
pub use error::ConfigError;
pub use http::HttpSection;
pub use in_place::{InPlace, import};
pub use journal::JournalSection;
pub use text::{FromText, Scalar, span_text};
pub use tls::TlsSection;
pub use topology::{FileError, Topology, TopologyFile};

/// Every default but the limits, with its comment.
const DEFAULT: &str = include_str!("config/default.toml");
/// The file that is read if it is there and no other was named.
const FILE: &str = "peeklock.toml";

/// Every default with its comment, as a configuration file.
pub fn default_text() -> String {
    DEFAULT.replacen("[limits]\n", &limits::documented(), 1)
}

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
    /// `[amqp]`.
    pub amqp: amqp::AmqpSection,
    /// `[gateway]`.
    pub gateway: gateway::GatewaySection,
    /// `[webhook]`.
    pub webhook: webhook::WebhookSection,
    /// `[peers]`.
    pub peers: peers::PeersSection,
    /// `[tls]`.
    pub tls: tls::TlsSection,
    /// `[security]`.
    pub security: SecuritySection,
    /// `[log]`.
    pub log: LogSection,
    /// `[metrics]`.
    pub metrics: MetricsSection,
    /// `[otlp]`.
    pub otlp: otlp::OtlpSection,
    /// `[[queues]]`.
    #[serde(default)]
    pub queues: Vec<QueueDeclaration>,
    /// `[[topics]]`.
    #[serde(default)]
    pub topics: Vec<TopicDeclaration>,
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
    release_on_connection_loss: Scalar<bool>,
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
    /// Memory for messages that are kept in memory only; zero for half of what there is.
    pub ephemeral_bytes_max: Scalar<u64>,
    /// Threads that serve entities; zero for one per core.
    pub arbiters: Scalar<usize>,
}

impl ServerSection {
    /// Memory for messages that are kept in memory only.
    pub fn memory_bytes(&self) -> u64 {
        /// Where the system does not tell what there is.
        const UNKNOWN: u64 = 2 << 30;
        match self.ephemeral_bytes_max.0 {
            0 => memory::available_bytes().unwrap_or(UNKNOWN) / 2,
            bytes => bytes,
        }
    }
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
    /// `[security.jwt]`: tokens of an identity provider (SEC-27).
    pub jwt: jwt::JwtSection,
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
    /// Lines of text for people.
    Text,
    /// JSON objects for programs.
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
    /// Whether it takes the emulator's place, and how.
    pub emulator: Option<InPlace>,
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
    /// Whether it takes the emulator's place, and what was said of that.
    pub emulator: Option<InPlace>,
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
        let unusable = |error: config::ConfigError| ConfigError::Environment(error.to_string());
        // Above the defaults, which follow from it in part.
        let mut builder = config::Config::builder();
        let mut emulator = layers.emulator.clone();
        if let Some(emulator) = &mut emulator {
            for layer in emulator.defaults()? {
                builder = builder.add_source(layer);
            }
        }
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
        if emulator.is_some() {
            builder = builder.add_source(InPlace::never_anonymous());
        }
        let named = builder.build().map_err(unusable)?;
        let mut builder =
            config::Config::builder().add_source(config::File::from_str(DEFAULT, FileFormat::Toml));
        if named.get_bool("tls.enabled").unwrap_or(false) {
            builder = builder.add_source(tls::secure_defaults());
        }
        let built = builder.add_source(named).build().map_err(unusable)?;
        let layers = built.cache.clone();
        let config: Result<Config, _> =
            built.try_deserialize().map_err(|error| explain(&error, &layers));
        let config = config.map_err(ConfigError::of_emulator)?;
        let settings = config.settings(&layers).map_err(ConfigError::of_emulator)?;
        Ok(Self { config, settings, file, emulator, layers })
    }

    /// The settings of the forwarder to webhooks; reads the files they name once more.
    pub fn webhook(&self) -> Result<WebhookConfig, ConfigError> {
        self.config.webhook.config().map_err(|wrong| self.invalid(wrong))
    }

    /// The settings of the forwarder to other brokers, likewise.
    pub fn peers(&self) -> Result<PeerConfig, ConfigError> {
        self.config.peers.config().map_err(|wrong| self.invalid(wrong))
    }

    /// Whose bearer tokens are taken, if anybody's; likewise.
    pub fn jwt(&self) -> Result<Option<JwtConfig>, ConfigError> {
        self.config.security.jwt.config().map_err(|wrong| self.invalid(wrong))
    }

    /// Where traces and metrics are sent, if anywhere; likewise.
    pub fn otlp(&self) -> Result<Option<OtlpConfig>, ConfigError> {
        let entities = self.config.gauged_entities(&self.settings.limits);
        self.config.otlp.config(entities).map_err(|wrong| self.invalid(wrong))
    }

    /// The certificate in use, if TLS is spoken; makes the development authority where it is missing.
    pub fn tls(&self) -> Result<Option<Arc<Tls>>, ConfigError> {
        self.config.tls.open(&self.config.server.data_dir.0).map_err(|wrong| self.invalid(wrong))
    }

    /// The error of a value that cannot be used, by its key, with its place in the file that it came from.
    pub fn invalid(&self, (key, detail): (String, String)) -> ConfigError {
        let source_name = source_of(&self.layers, &key);
        ConfigError::Invalid { source_name, key, detail }.of_emulator()
    }

    /// Every value in force, in the order of the documentation.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut layers = self.layers.clone();
        if let Ok(defaults) = FileFormat::Toml.parse(None, DEFAULT) {
            spread_lists(&mut layers, &Value::new(None, defaults));
        }
        collect("", &layers, &mut rows);
        for row in &mut rows {
            row.source = source_of(&self.layers, &row.key);
        }
        let (mut before, queues): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| !row.key.starts_with("queues["));
        before.retain(|row| !row.key.starts_with("limits."));
        before.extend(limits::list(&self.settings.limits).map(|(name, value)| {
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
        self.limits
            .apply_to(&mut settings.limits)
            .map_err(|(key, detail)| invalid(&key, detail))?;
        settings.auto_delete_on_idle_default = self.namespace.auto_delete_on_idle.0;
        settings.locks_release_on_detach = self.locks.release_on_detach.0;
        settings.locks_release_on_connection_loss = self.locks.release_on_connection_loss.0;
        settings.sessions_expire_whole = self.sessions.expire_whole_session.0;
        settings.forwarding_failure_target = self.forwarding.failure_target.0;
        settings.forwarding_on_destination_full = self.forwarding.on_destination_full.0;
        if self.namespace.name.0.trim().is_empty() {
            return Err(invalid("namespace.name", "the name is empty; write a name".to_owned()));
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
                "`{filter}` is not a log filter: {error}; write a level such as info, or \
                 info,peeklock_core=debug"
            );
            invalid("log.filter", detail)
        })?;
        ranges::judge(self, &settings.limits).map_err(|(key, detail)| invalid(key, detail))?;
        self.journal.judge().map_err(|(key, detail)| invalid(key, detail))?;
        if self.server.data_dir.0.is_empty() {
            let detail =
                "the directory is empty; write a path, or . for the current directory".to_owned();
            return Err(invalid("server.data_dir", detail));
        }
        self.webhook.config().map_err(|(key, detail)| invalid(&key, detail))?;
        self.peers.config().map_err(|(key, detail)| invalid(&key, detail))?;
        self.security.jwt.config().map_err(|(key, detail)| invalid(&key, detail))?;
        let entities = self.gauged_entities(&settings.limits);
        self.otlp.config(entities).map_err(|(key, detail)| invalid(&key, detail))?;
        self.tls.judge().map_err(|(key, detail)| invalid(&key, detail))?;
        for (key, address) in self.addresses() {
            self.judge_access(address).map_err(|detail| invalid(key, detail))?;
        }
        let declaration = self.declaration().map_err(|(key, detail)| invalid(&key, detail))?;
        declaration
            .judge(&settings)
            .map_err(|wrong| invalid(&wrong.place, wrong.rejection.detail().to_owned()))?;
        Ok(settings)
    }

    /// Where listeners listen, by the keys that say so.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let own = [
            ("http.address", self.http.address.0),
            ("websocket.address", self.websocket.address.0),
            ("amqp.address", self.amqp.address.0),
        ];
        let gateway = self.gateway.address.0.0.map(|address| ("gateway.address", address));
        own.into_iter().chain(gateway).collect()
    }

    /// The hosts by which clients know this broker, as the configuration names them.
    pub fn known_hosts(&self) -> Vec<String> {
        let url = self.http.public_url.0.split_once("://").map_or("", |(_, rest)| rest);
        let public = url.split('/').next().and_then(split_host).map(|(host, _)| host.to_owned());
        let Self { http, websocket, amqp, .. } = self;
        let allowed = [&http.allowed_hosts, &websocket.allowed_hosts, &amqp.allowed_hosts];
        let hosts = allowed.into_iter().flat_map(|list| &list.0);
        let hosts = hosts.filter_map(|host| split_host(host)).map(|(host, _)| host.to_owned());
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
            "`{address}` is not a loopback address, and with security.allow_anonymous = true every \
             client that reaches it could read and delete every message; listen on 127.0.0.1, or \
             set security.allow_anonymous = false to require a token of a policy, or confirm with \
             security.i_know = true"
        ))
    }

    /// The queues and topics that are declared.
    ///
    /// # Errors
    /// With what is wrong, and its key.
    pub fn declaration(&self) -> Result<Declaration, (String, String)> {
        entity::declaration(&self.queues, &self.topics)
    }

    /// What its entities may keep in memory besides, when there is as much of everything as there may be: with the
    /// messages themselves if they are in memory only.
    pub fn kept_bytes(&self, limits: &Limits) -> u64 {
        let messages = if self.server.ephemeral.0 { self.server.memory_bytes() } else { 0 };
        limits.kept_bytes().saturating_add(messages)
    }

    /// How many entities have gauges of their own, of all that there may be.
    fn gauged_entities(&self, limits: &Limits) -> usize {
        let all = limits.entity_count_max.saturating_add(limits.broker_subscription_count_max);
        self.metrics.entities.0.count_max().min(all)
    }

    /// Connections of each transport at the same time.
    fn connections(&self, limits: &Limits) -> [u64; 3] {
        [
            self.connection_count_max(limits),
            self.websocket.connection_count_max(limits),
            self.amqp.connection_count_max(limits),
        ]
        .map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Connections at the same time.
    pub const fn connection_count_max(&self, limits: &Limits) -> usize {
        match self.http.connection_count_max.0 {
            0 => limits.connection_count_max,
            count => count,
        }
    }
}

#[cfg(test)]
mod tests;
