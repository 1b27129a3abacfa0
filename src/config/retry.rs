//! `retry_policy` of a queue or subscription: a table, or `"none"`, which removes it (RTY-16).
//! `entity.rs` reads and writes it as a property.

use std::fmt;

use peeklock::description::{Jitter, RetryKind, RetryPolicy};
use peeklock::time::TimeSpan;
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::Scalar;

/// The word for no policy.
const NONE: &str = "none";

/// A policy, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDeclaration(Option<Table>);

/// The delay before a failed message is delivered again.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with a retry policy, or \"none\"")]
struct Table {
    kind: Scalar<RetryKind>,
    delay: Scalar<TimeSpan>,
    delay_max: Option<Scalar<TimeSpan>>,
    jitter: Option<Scalar<Jitter>>,
}

impl RetryDeclaration {
    pub(super) fn policy(self) -> Option<RetryPolicy> {
        let Table { kind, delay, delay_max, jitter } = self.0?;
        Some(RetryPolicy {
            kind: kind.0,
            delay: delay.0,
            delay_max: delay_max.map(|Scalar(most)| most),
            jitter: jitter.map_or(Jitter::NONE, |Scalar(jitter)| jitter),
        })
    }
}

impl From<Option<RetryPolicy>> for RetryDeclaration {
    fn from(policy: Option<RetryPolicy>) -> Self {
        Self(policy.map(|RetryPolicy { kind, delay, delay_max, jitter }| Table {
            kind: Scalar(kind),
            delay: Scalar(delay),
            delay_max: delay_max.map(Scalar),
            jitter: (jitter != Jitter::NONE).then_some(Scalar(jitter)),
        }))
    }
}

impl Serialize for RetryDeclaration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(table) => table.serialize(serializer),
            None => serializer.serialize_str(NONE),
        }
    }
}

impl<'de> Deserialize<'de> for RetryDeclaration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = RetryDeclaration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a retry policy, such as { kind = \"exponential\", delay = \"1s\", delay_max = \"5m\", jitter = 0.2 }, or \
             \"none\"",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RetryDeclaration, E> {
        if text == NONE {
            return Ok(RetryDeclaration(None));
        }
        Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RetryDeclaration, A::Error> {
        Table::deserialize(MapAccessDeserializer::new(map))
            .map(|table| RetryDeclaration(Some(table)))
    }
}
