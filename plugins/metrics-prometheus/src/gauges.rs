//! Gauges of the broker and of single entities, rendered for each scrape. `recorder.rs` collects
//! the values. The number of entities with their own gauges is limited by the configuration.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use peeklock_core::telemetry::{
    CLOCK_OFFSET_SECONDS, ENTITY_MESSAGES as MESSAGES, ENTITY_MESSAGES_DELAYED as DELAYED,
    ENTITY_OLDEST_AGE as OLDEST, ENTITY_SIZE_BYTES as SIZE, Gauges, LEASE_SECONDS, READY, SHARDS,
    STANDBY, STORE_BYTES, STORE_FULL,
};
use peeklock_core::time::{TimeSpan, Timestamp};

/// Number of entities for `top` without a number.
const TOP_DEFAULT: usize = 100;

/// `metrics.entities`: selection of the entities with gauges of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntityGauges {
    /// No entity.
    None,
    /// The given number of entities with the most messages.
    Top(usize),
    /// Every entity; only for small namespaces.
    All,
}

impl Default for EntityGauges {
    fn default() -> Self {
        Self::Top(TOP_DEFAULT)
    }
}

/// Error for a text other than `none`, `all` or `top:N`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a selection of entities; write none, all or top:N")]
pub struct ParseError(String);

impl EntityGauges {
    /// Returns the maximum number of entities with gauges.
    #[must_use]
    pub const fn count_max(self) -> usize {
        match self {
            Self::None => 0,
            Self::Top(count) => count,
            Self::All => usize::MAX,
        }
    }
}

impl FromStr for EntityGauges {
    type Err = ParseError;

    /// Parses the setting: `none`, `all`, `top:100`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (text, text.strip_prefix("top:").map(str::parse)) {
            ("none", _) => Ok(Self::None),
            ("all", _) => Ok(Self::All),
            (_, Some(Ok(count))) => Ok(Self::Top(count)),
            _ => Err(ParseError(text.to_owned())),
        }
    }
}

impl fmt::Display for EntityGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Top(count) => write!(f, "top:{count}"),
            Self::All => f.write_str("all"),
        }
    }
}

/// Values of a broker for one scrape.
pub(crate) struct BrokerState {
    pub(crate) is_ready: bool,
    /// With a store for several brokers.
    pub(crate) ownership: Option<Ownership>,
    pub(crate) is_full: bool,
    pub(crate) store_bytes: Option<u64>,
    pub(crate) entities: Vec<Gauges>,
    pub(crate) now: Timestamp,
}

/// Ownership of the shards of a store.
pub(crate) struct Ownership {
    pub(crate) lease_left: TimeSpan,
    pub(crate) is_suspended: bool,
    pub(crate) shard_count: u16,
    pub(crate) clock_offset: TimeSpan,
}

/// Appends the gauges of a broker and of its entities to a page.
pub(crate) fn render(page: &mut String, state: BrokerState, which: EntityGauges) {
    let BrokerState { is_ready, ownership, is_full, store_bytes, entities, now } = state;
    render_ready(page, is_ready);
    if let Some(ownership) = ownership {
        render_ownership(page, &ownership);
    }
    head(page, STORE_FULL, "Whether the store is full and refuses new messages");
    line(page, format_args!("{STORE_FULL} {}", u8::from(is_full)));
    if let Some(bytes) = store_bytes {
        head(page, STORE_BYTES, "Bytes that the store uses on its medium");
        line(page, format_args!("{STORE_BYTES} {bytes}"));
    }
    if which == EntityGauges::None {
        return;
    }
    let entities = Gauges::largest(entities, which.count_max());
    head(page, MESSAGES, "Messages of an entity, by state");
    for gauges in &entities {
        let entity = escaped(&gauges.path);
        for (state, count) in gauges.states() {
            line(page, format_args!("{MESSAGES}{{entity=\"{entity}\",state=\"{state}\"}} {count}"));
        }
    }
    // Not a separate state: delayed messages are active, and a sum over states must count them
    // once.
    head(page, DELAYED, "Active messages of an entity that wait for another attempt");
    for Gauges { path, counts, .. } in &entities {
        let (entity, count) = (escaped(path), counts.delayed);
        line(page, format_args!("{DELAYED}{{entity=\"{entity}\"}} {count}"));
    }
    head(page, SIZE, "Sum of stored sizes of an entity");
    for Gauges { path, size_bytes, .. } in &entities {
        line(page, format_args!("{SIZE}{{entity=\"{}\"}} {size_bytes}", escaped(path)));
    }
    head(page, OLDEST, "Time for which the oldest message of an entity has waited for a receiver");
    for gauges in &entities {
        let (entity, age) = (escaped(&gauges.path), gauges.oldest_age_seconds(now));
        line(page, format_args!("{OLDEST}{{entity=\"{entity}\"}} {age}"));
    }
}

fn render_ownership(page: &mut String, ownership: &Ownership) {
    let Ownership { lease_left, is_suspended, shard_count, clock_offset } = ownership;
    render_standby(page, false);
    head(page, LEASE_SECONDS, "Seconds that are left of the lease of this broker");
    line(page, format_args!("{LEASE_SECONDS} {}", lease_left.as_seconds_f64()));
    head(page, SHARDS, "Shards that this broker owns, by state");
    for (state, is_so) in [("serving", !is_suspended), ("suspended", *is_suspended)] {
        let count = if is_so { *shard_count } else { 0 };
        line(page, format_args!("{SHARDS}{{state=\"{state}\"}} {count}"));
    }
    head(page, CLOCK_OFFSET_SECONDS, "Seconds by which the database is ahead of this broker");
    line(page, format_args!("{CLOCK_OFFSET_SECONDS} {}", clock_offset.as_seconds_f64()));
}

/// Page of a process that stands by for another broker. It names no entity.
#[must_use]
pub fn standby_page() -> String {
    let mut page = String::new();
    render_ready(&mut page, false);
    render_standby(&mut page, true);
    page
}

fn render_ready(page: &mut String, is_ready: bool) {
    head(page, READY, "Whether the broker is ready");
    line(page, format_args!("{READY} {}", u8::from(is_ready)));
}

fn render_standby(page: &mut String, is_standby: bool) {
    head(page, STANDBY, "Whether this process stands by for another broker");
    line(page, format_args!("{STANDBY} {}", u8::from(is_standby)));
}

fn head(page: &mut String, name: &str, help: &str) {
    line(page, format_args!("# HELP {name} {help}"));
    line(page, format_args!("# TYPE {name} gauge"));
}

fn line(page: &mut String, text: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(page, "{text}").unwrap_or_default();
}

/// Escapes a label value in the format of Prometheus: backslash, quote and line feed.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests;
