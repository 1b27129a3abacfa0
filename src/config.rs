//! The configuration of the process: defaults, then a file, the environment and flags.
//!
//! A setting is a row of the table in [`sections`]. A source is read into [`Config`] row by row, and checked by the rows.
//! `peeklock config default` prints the rows with the limits of [`Limits::TABLE`] in the frame of `config/default.toml`.

pub mod budget;
mod cluster;
mod entity;
mod error;
mod forwarders;
mod in_place;
mod jwt;
mod limits;
mod open_files;
mod otlp;
mod postgres;
mod retry;
mod rule;
mod sections;
mod source;
mod table;
mod text;
mod tls;
mod topology;
mod topology_text;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use config::{Map, Value};
use peeklock::amqp::AmqpConfig;
use peeklock::auth_jwt::JwtConfig;
use peeklock::contract::browser::split_host;
use peeklock::declaration::Declaration;
use peeklock::description::Settings;
use peeklock::forward_peeklock::PeerConfig;
use peeklock::forward_webhook::WebhookConfig;
use peeklock::http::HttpConfig;
use peeklock::limits::{Limits, Tier};
use peeklock::metrics_prometheus::EntityGauges;
use peeklock::otlp::OtlpConfig;
use peeklock::postgres::PostgresConfig;
use peeklock::store::{JournalConfig, StoreError};
use peeklock::tls::Tls;
use peeklock::websocket::WebSocketConfig;
use tracing_subscriber::EnvFilter;

use sections::{
    ConsoleSection, GatewaySection, JwtSection, MetricsSection, OtlpSection, PeersSection,
    PostgresSection, SecuritySection, ServerSection, StoreSection, WebhookSection,
};
use source::{Layer, PREFIX, SEPARATOR, collect, explain, find, refuse_unknown_keys, source_of};

use crate::memory;

pub use entity::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration};
pub use error::ConfigError;
pub use in_place::{InPlace, import};
pub use sections::{ClusterSection, LogSection, TlsSection};
pub use text::{FromText, Scalar, span_text};
pub use topology::{FileError, Topology, TopologyFile};
pub use topology_text::TopologyText;

/// The frame of the documented defaults: sections and samples of tables.
const FRAME: &str = include_str!("config/default.toml");
/// The file that is read if it exists and no file is named.
const FILE: &str = "peeklock.toml";

/// Every default with its comment, as a configuration file.
pub fn default_text() -> String {
    let defaults = Config::new();
    let mut text = String::new();
    for line in FRAME.lines() {
        text.push_str(line);
        text.push('\n');
        let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else {
            continue;
        };
        if section == "limits" {
            text.push_str(&limits::documented());
        }
        for (name, setting) in rows_of(section) {
            let value = (setting.value)(&defaults).written();
            text.push_str(&format!("{}{name} = {value}\n", setting.comment()));
        }
    }
    text
}

/// The settings of a section, each with its name in the section.
fn rows_of(section: &str) -> impl Iterator<Item = (&'static str, &'static table::Setting)> {
    sections::all().filter_map(move |setting| {
        let (of, name) = setting.key.rsplit_once('.')?;
        (of == section).then_some((name, setting))
    })
}

/// The whole configuration. Zero for threads or connections stands for the number of cores or the limit of the namespace.
#[derive(Clone, Default)]
pub struct Config {
    /// `[namespace]`, `[limits]`, `[locks]`, `[sessions]`, `[forwarding]`.
    pub settings: Settings,
    /// `[server]`.
    pub server: ServerSection,
    /// `[store]`.
    pub store: StoreSection,
    /// `[store.postgres]`; zero capacity stands for no limit.
    pub postgres: PostgresSection,
    /// `[cluster]`.
    pub cluster: ClusterSection,
    /// `[journal]`; zero capacity stands for the whole disk.
    pub journal: JournalConfig,
    /// `[http]`.
    pub http: HttpConfig,
    /// `[websocket]`.
    pub websocket: WebSocketConfig,
    /// `[amqp]`.
    pub amqp: AmqpConfig,
    /// `[gateway]`.
    pub gateway: GatewaySection,
    /// `[webhook]`.
    pub webhook: WebhookSection,
    /// `[peers]`.
    pub peers: PeersSection,
    /// `[tls]`.
    pub tls: TlsSection,
    /// `[security]`.
    pub security: SecuritySection,
    /// `[security.jwt]`.
    pub jwt: JwtSection,
    /// `[console]`.
    pub console: ConsoleSection,
    /// `[log]`.
    pub log: LogSection,
    /// `[metrics]`.
    pub metrics: MetricsSection,
    /// `[otlp]`.
    pub otlp: OtlpSection,
    /// `[[queues]]`.
    pub queues: Vec<QueueDeclaration>,
    /// `[[topics]]`.
    pub topics: Vec<TopicDeclaration>,
}

/// A list of tables in a file, by its key.
type Tables = (&'static str, fn(&mut Config, Value) -> Result<(), config::ConfigError>);

/// Every list of tables.
const TABLES: [Tables; 5] = [
    ("queues", |config, tables| tables.try_deserialize().map(|read| config.queues = read)),
    ("topics", |config, tables| tables.try_deserialize().map(|read| config.topics = read)),
    ("webhook.secrets", |config, tables| {
        tables.try_deserialize().map(|read| config.webhook.secrets = read)
    }),
    ("peers.tokens", |config, tables| {
        tables.try_deserialize().map(|read| config.peers.tokens = read)
    }),
    ("security.jwt.roles", |config, tables| {
        tables.try_deserialize().map(|read| config.jwt.roles = read)
    }),
];

impl ServerSection {
    /// Memory for messages that are kept in memory only.
    pub fn memory_bytes(&self) -> u64 {
        /// Assumed where the system does not report its memory.
        const UNKNOWN: u64 = 2 << 30;
        match self.ephemeral_bytes_max {
            0 => memory::available_bytes().unwrap_or(UNKNOWN) / 2,
            bytes => bytes,
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text for people.
    Text,
    /// JSON objects for programs.
    Json,
}

/// The kind of a durable store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// The journal in the data directory.
    Journal,
    /// A PostgreSQL database.
    Postgres,
}

/// A value that was given as a flag.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as users write it.
    pub name: &'static str,
    /// The key it sets.
    pub key: &'static str,
    /// The value.
    pub value: String,
}

/// The sources of the layers above the defaults.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The named file; none for `./peeklock.toml`, if it exists.
    pub file: Option<PathBuf>,
    /// Replaces the environment of the process, for tests.
    pub environment: Option<Map<String, String>>,
    /// The flags given.
    pub flags: Vec<Flag>,
    /// The options of a broker that replaces the emulator.
    pub emulator: Option<InPlace>,
}

/// A valid configuration.
#[derive(Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The options of a broker that replaces the emulator, with the notes about its file.
    pub emulator: Option<InPlace>,
    layers: Value,
}

/// Key, value and source of a configured value.
pub struct Row {
    /// The key, such as `http.address`.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// The source of the value; none for a default.
    pub source: Option<String>,
}

impl FromText for EntityGauges {
    const EXPECTED: &'static str = "\"all\", \"none\" or a number of entities such as \"top:100\"";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Loaded {
    /// Reads all layers and checks the result.
    pub fn load(layers: &Layers) -> Result<Self, ConfigError> {
        let unusable = |error: config::ConfigError| ConfigError::Environment(error.to_string());
        // Later layers override earlier ones; the emulator's layers come first.
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
        let mut builder = config::Config::builder();
        if named.get_bool("tls.enabled").unwrap_or(false) {
            builder = builder.add_source(tls::secure_defaults());
        }
        let layers = builder.add_source(named).build().map_err(unusable)?.cache;
        let config = Config::read(&layers).map_err(ConfigError::of_emulator)?;
        config.judge(&layers).map_err(ConfigError::of_emulator)?;
        Ok(Self { config, file, emulator, layers })
    }

    /// Returns the settings of the webhook forwarder; reads the named files again.
    pub fn webhook(&self) -> Result<WebhookConfig, ConfigError> {
        self.config.webhook.config().map_err(|wrong| self.invalid(wrong))
    }

    /// Returns the settings of the forwarder to other brokers; reads the named files again.
    pub fn peers(&self) -> Result<PeerConfig, ConfigError> {
        self.config.peers.config().map_err(|wrong| self.invalid(wrong))
    }

    /// Returns the settings for bearer tokens, if an issuer is set; reads the named files again.
    pub fn jwt(&self) -> Result<Option<JwtConfig>, ConfigError> {
        self.config.jwt.config().map_err(|wrong| self.invalid(wrong))
    }

    /// Returns the settings of the store in PostgreSQL; reads the named files again.
    pub fn postgres(&self) -> Result<PostgresConfig, ConfigError> {
        let config = self.config.postgres.config().map_err(|wrong| self.invalid(wrong))?;
        Ok(self.config.cluster.join(config))
    }

    /// Returns the settings for the export of traces and metrics, if a collector is set; reads the
    /// named files again.
    pub fn otlp(&self) -> Result<Option<OtlpConfig>, ConfigError> {
        self.config.otlp.config(self.config.gauged_entities()).map_err(|wrong| self.invalid(wrong))
    }

    /// Returns the certificate if TLS is enabled; creates the development authority if it is
    /// missing.
    pub fn tls(&self) -> Result<Option<Arc<Tls>>, ConfigError> {
        self.config.tls.open(&self.config.server.data_dir).map_err(|wrong| self.invalid(wrong))
    }

    /// The error for an invalid value, with its key and its place in the source file.
    pub fn invalid(&self, (key, detail): (String, String)) -> ConfigError {
        let source_name = source_of(&self.layers, &key);
        ConfigError::Invalid { source_name, key, detail }.of_emulator()
    }

    /// Every effective value, in the order of the documentation.
    pub fn rows(&self) -> Vec<Row> {
        let settings = sections::all().map(|setting| {
            let value = match (setting.value)(&self.config).written() {
                toml::Value::String(text) if !text.is_empty() => text,
                value => value.to_string(),
            };
            (setting.key.to_owned(), value)
        });
        let limits = limits::list(&self.config.settings.limits)
            .map(|(name, value)| (format!("limits.{name}"), value));
        let mut tables = Vec::new();
        for (key, _) in TABLES {
            if let Some(value) = find(&self.layers, key) {
                collect(key, value, &mut tables);
            }
        }
        let rows = settings.chain(limits).chain(tables);
        rows.map(|(key, value)| Row { source: source_of(&self.layers, &key), key, value }).collect()
    }
}

impl Config {
    /// The defaults of the server process.
    fn new() -> Self {
        let mut config = Self::default();
        let Self { http, websocket, amqp, journal, .. } = &mut config;
        for zero in [
            &mut http.workers,
            &mut http.connection_count_max,
            &mut websocket.workers,
            &mut websocket.connection_count_max,
            &mut amqp.workers,
            &mut amqp.connection_count_max,
        ] {
            *zero = 0;
        }
        journal.capacity_bytes = 0;
        config
    }

    /// Applies the values of all sources to the defaults.
    fn read(layers: &Value) -> Result<Self, ConfigError> {
        let mut config = Self::new();
        refuse_unknown_keys(layers, &known_keys())?;
        if let Some(tier) = find(layers, "namespace.tier") {
            let tier = tier.clone().try_deserialize::<Scalar<Tier>>();
            let Scalar(tier) = tier.map_err(|error| explain(&error, "namespace.tier", layers))?;
            config.settings.limits = Limits::of(tier);
        }
        for setting in sections::all() {
            if let Some(value) = find(layers, setting.key) {
                let read = (setting.value_mut)(&mut config).set(value.clone());
                read.map_err(|error| explain(&error, setting.key, layers))?;
            }
        }
        for limit in Limits::TABLE {
            let key = format!("limits.{}", limit.name);
            if let Some(value) = find(layers, &key) {
                limits::set(&mut config.settings.limits, limit, value.clone())
                    .map_err(|error| explain(&error, &key, layers))?;
            }
        }
        for (key, read) in TABLES {
            if let Some(tables) = find(layers, key) {
                read(&mut config, tables.clone()).map_err(|error| explain(&error, key, layers))?;
            }
        }
        Ok(config)
    }

    /// Checks each value by its row, then values that depend on each other.
    fn judge(&self, layers: &Value) -> Result<(), ConfigError> {
        let invalid = |(key, detail): (String, String)| {
            let source_name = source_of(layers, &key);
            ConfigError::Invalid { key, detail, source_name }
        };
        let of = |key: &str| {
            let key = key.to_owned();
            move |detail: String| invalid((key, detail))
        };
        for setting in sections::all() {
            setting.check(self).map_err(of(setting.key))?;
        }
        let limits = &self.settings.limits;
        limits.validate().map_err(|rejection| of("limits")(rejection.detail().to_owned()))?;
        self.settings.validate().map_err(|rejection| {
            of("namespace.auto_delete_on_idle")(rejection.detail().to_owned())
        })?;
        EnvFilter::builder().parse(&self.log.filter).map_err(|error| {
            let filter = &self.log.filter;
            of("log.filter")(format!(
                "`{filter}` is not a log filter: {error}; write a level such as info, or \
                 info,peeklock_core=debug"
            ))
        })?;
        self.judge_sizes().map_err(invalid)?;
        self.postgres.refuse_password().map_err(invalid)?;
        if self.store.kind == StoreKind::Postgres {
            self.postgres.config().map_err(invalid)?;
        }
        self.cluster.judge(self.store.kind).map_err(invalid)?;
        self.webhook.config().map_err(invalid)?;
        self.peers.config().map_err(invalid)?;
        self.jwt.config().map_err(invalid)?;
        self.otlp.config(self.gauged_entities()).map_err(invalid)?;
        self.tls.judge().map_err(invalid)?;
        for (key, address) in self.addresses() {
            self.judge_access(address).map_err(of(key))?;
        }
        let declaration = self.declaration().map_err(invalid)?;
        declaration
            .judge(&self.settings)
            .map_err(|wrong| of(&wrong.place)(wrong.rejection.detail().to_owned()))
    }

    /// Checks sizes that limit each other.
    fn judge_sizes(&self) -> Result<(), (String, String)> {
        let wrong = |key: &str, detail: String| Err((key.to_owned(), detail));
        // A message of the largest size must fit together with its frame header, or it can never be
        // sent.
        let (frame, together) = (self.websocket.frame_bytes_max, self.websocket.inbound_bytes_max);
        if frame as u64 > together {
            return wrong(
                "websocket.frame_bytes_max",
                format!(
                    "{frame} bytes for one frame exceed websocket.inbound_bytes_max = {together}, \
                     the limit for all frames together; lower one or raise the other"
                ),
            );
        }
        let Limits { connection_inbound_bytes_max: one, broker_inbound_bytes_max: all, .. } =
            self.settings.limits;
        if one > all {
            return wrong(
                "limits.connection_inbound_bytes_max",
                format!(
                    "{one} bytes for one connection exceed limits.broker_inbound_bytes_max = \
                     {all}, the limit for all together; lower one or raise the other"
                ),
            );
        }
        // Settlements use this reserve when the disk is full.
        let (floor, least) = (self.journal.free_bytes_min, 4 * self.journal.segment_bytes);
        if floor < least {
            return wrong(
                "journal.free_bytes_min",
                format!("{floor} is less than four segments; write at least {least} bytes"),
            );
        }
        Ok(())
    }

    /// The addresses of listeners, with their keys.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let own = [
            ("http.address", self.http.address),
            ("websocket.address", self.websocket.address),
            ("amqp.address", self.amqp.address),
        ];
        let gateway = self.gateway.address.map(|address| ("gateway.address", address));
        own.into_iter().chain(gateway).collect()
    }

    /// The host names that clients use for this broker, as configured.
    pub fn known_hosts(&self) -> Vec<String> {
        let url = self.http.public_url.as_deref().unwrap_or_default();
        let url = url.split_once("://").map_or("", |(_, rest)| rest);
        let public = url.split('/').next().and_then(split_host).map(|(host, _)| host.to_owned());
        let Self { http, websocket, amqp, .. } = self;
        let allowed = [&http.allowed_hosts, &websocket.allowed_hosts, &amqp.allowed_hosts];
        let hosts = allowed.into_iter().flatten();
        let hosts = hosts.filter_map(|host| split_host(host)).map(|(host, _)| host.to_owned());
        hosts.chain(public).collect()
    }

    /// Anonymous clients are served on loopback only, unless that is confirmed (SEC-17).
    fn judge_access(&self, address: SocketAddr) -> Result<(), String> {
        let SecuritySection { allow_anonymous, i_know, .. } = self.security;
        if !allow_anonymous || i_know || address.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "`{address}` is not a loopback address, and with security.allow_anonymous = true every \
             client that reaches it could read and delete every message; listen on 127.0.0.1, or \
             set security.allow_anonymous = false to require a token of a policy, or confirm with \
             security.i_know = true"
        ))
    }

    /// The declared queues and topics.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn declaration(&self) -> Result<Declaration, (String, String)> {
        entity::declaration(&self.queues, &self.topics)
    }

    /// Maximum memory for the content of entities; with messages if the broker is ephemeral.
    pub fn kept_bytes(&self) -> u64 {
        let messages = if self.server.ephemeral { self.server.memory_bytes() } else { 0 };
        self.settings.limits.resident_bytes_max().saturating_add(messages)
    }

    /// Number of entities with their own gauges.
    fn gauged_entities(&self) -> usize {
        let limits = &self.settings.limits;
        let all = limits.entity_count_max.saturating_add(limits.broker_subscription_count_max);
        self.metrics.entities.count_max().min(all)
    }

    /// Maximum open connections of HTTP, WebSocket and AMQP.
    pub fn connections(&self) -> [usize; 3] {
        let Self { http, websocket, amqp, .. } = self;
        [http.connection_count_max, websocket.connection_count_max, amqp.connection_count_max].map(
            |count| match count {
                0 => self.settings.limits.connection_count_max,
                count => count,
            },
        )
    }
}

/// Text of an error of a store, for a message that names the store itself.
pub fn store_text(error: &StoreError) -> String {
    match error {
        StoreError::Failed(text) => text.to_string(),
        other => other.to_string(),
    }
}

/// Every key that a source can set.
fn known_keys() -> Vec<String> {
    let settings = sections::all().map(|setting| setting.key.to_owned());
    let limits = Limits::TABLE.iter().map(|limit| format!("limits.{}", limit.name));
    settings.chain(limits).chain(TABLES.map(|(key, _)| key.to_owned())).collect()
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
