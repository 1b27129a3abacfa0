//! State of a watched subject, and the difference to the state that was sent last.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::BuildHasher as _;

use peeklock_core::management::Managed;
use peeklock_json::{FindingsView, QueueView, SubscriptionView, TopicView};
use serde_json::{Map, Value};

/// Maximum bytes of a state in an event. Further rows are left out, and the state is marked. A
/// difference also names the rows that are gone, which adds at most a third.
pub(super) const STATE_BYTES_MAX: usize = 95 << 10;
/// Maximum bytes of keys and hashes that a stream keeps.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;
/// Bytes of a row that is kept, in addition to its key.
const ROW_BYTES: usize = 48;

/// Keys and hashes of the state that was sent last.
#[derive(Default)]
pub(super) struct Sent {
    values: BTreeMap<String, u64>,
    /// Rows in their order.
    order: Vec<Box<str>>,
    rows: BTreeMap<Box<str>, u64>,
}

impl Sent {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.order.iter().map(|key| 2 * key.len() + ROW_BYTES).sum()
    }
}

/// A state as it is now, as JSON text.
pub(super) struct State {
    /// Name of the rows; empty without rows.
    kind: String,
    values: BTreeMap<String, String>,
    rows: Vec<(Box<str>, String)>,
    is_truncated: bool,
}

impl State {
    /// Takes an answer apart. Rows beyond the room of an event, or of kept keys, are left out.
    pub(super) fn of(managed: Managed, kept_bytes_max: usize) -> Self {
        let mut state = Self {
            kind: String::new(),
            values: BTreeMap::new(),
            rows: Vec::new(),
            is_truncated: false,
        };
        let view = match managed {
            Managed::Findings(findings) => serde_json::to_value(FindingsView::from(*findings)),
            Managed::Queue(queue) => serde_json::to_value(QueueView::from(*queue)),
            Managed::Topic(topic) => serde_json::to_value(TopicView::from(*topic)),
            Managed::Subscription(one) => serde_json::to_value(SubscriptionView::from(*one)),
            _ => Ok(Value::Null),
        };
        let Ok(Value::Object(mut view)) = view else { return state };
        let named = (view.len() == 1).then(|| view.iter_mut().next()).flatten();
        if let Some((kind, Value::Object(page))) = named {
            state.kind = kind.clone();
            view = std::mem::take(page);
        }
        let rows = view.remove(&state.kind);
        // The clock has events of its own.
        let is_clock = |name: &str| name == "nowUtc" || name == "countedAtUtc";
        state.values = fields(view).filter(|(name, _)| !is_clock(name)).collect();
        let Some(Value::Array(rows)) = rows else { return state };
        let (mut bytes, mut kept) = (0, 0);
        for row in rows {
            let (key, text) = (key_of(&row), row.to_string());
            // An event may name the row twice: with its text, and in the order.
            bytes += text.len() + 2 * (quoted(&key).len() + 2);
            kept += 2 * key.len() + ROW_BYTES;
            if bytes > STATE_BYTES_MAX || kept > kept_bytes_max {
                state.is_truncated = true;
                break;
            }
            state.rows.push((key.into(), text));
        }
        state
    }

    /// Takes the sums out of a page of entities.
    pub(super) fn of_totals(managed: Managed) -> Self {
        let mut state = Self::of(managed, 0);
        let totals = state.values.remove("totals").unwrap_or_default();
        let totals = serde_json::from_str(&totals).unwrap_or_default();
        let count = state.values.remove("total");
        Self {
            kind: "totals".to_owned(),
            values: fields(totals).chain(count.map(|it| ("entityCount".to_owned(), it))).collect(),
            rows: Vec::new(),
            is_truncated: false,
        }
    }

    /// Returns the event that leads from the state that was sent to this one, and the keys to
    /// keep.
    pub(super) fn news(
        self,
        index: usize,
        before: Option<&Sent>,
        hasher: &RandomState,
    ) -> (Option<String>, Sent) {
        let sent = Sent {
            values: self
                .values
                .iter()
                .map(|(name, text)| (name.clone(), hasher.hash_one(text)))
                .collect(),
            order: self.rows.iter().map(|(key, _)| key.clone()).collect(),
            rows: self
                .rows
                .iter()
                .map(|(key, text)| (key.clone(), hasher.hash_one(text)))
                .collect(),
        };
        let text = match before {
            None => Some(self.whole(index)),
            Some(before) => self.change(index, before, &sent),
        };
        (text, sent)
    }

    fn whole(&self, index: usize) -> String {
        let mut text = format!("event: state\ndata: {{\"subject\":{index},\"state\":{{");
        let mut parts: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        if !self.kind.is_empty() && self.has_rows() {
            let rows: Vec<&str> = self.rows.iter().map(|(_, row)| row.as_str()).collect();
            parts.push(format!("{}:[{}]", quoted(&self.kind), rows.join(",")));
        }
        text.push_str(&parts.join(","));
        text.push('}');
        if self.is_truncated {
            text.push_str(",\"truncated\":true");
        }
        text.push_str("}\n\n");
        text
    }

    /// Whether the state is a list, even if it is empty now.
    fn has_rows(&self) -> bool {
        matches!(self.kind.as_str(), "entities" | "clients" | "locks" | "sessions")
    }

    fn change(&self, index: usize, before: &Sent, now: &Sent) -> Option<String> {
        let mut set = Map::new();
        for name in before.values.keys().filter(|name| !now.values.contains_key(*name)) {
            set.insert(name.clone(), Value::Null);
        }
        let changed =
            now.values.iter().filter(|(name, hash)| before.values.get(*name) != Some(hash));
        let changed: Vec<&String> = changed.map(|(name, _)| name).collect();
        let rows: Vec<&(Box<str>, String)> =
            self.rows.iter().filter(|(key, _)| before.rows.get(key) != now.rows.get(key)).collect();
        let there: BTreeSet<&str> = now.rows.keys().map(|key| &**key).collect();
        let gone: Vec<&str> =
            before.order.iter().map(|key| &**key).filter(|key| !there.contains(key)).collect();
        let has_order = before.order != now.order;
        if set.is_empty() && changed.is_empty() && rows.is_empty() && gone.is_empty() && !has_order
        {
            return None;
        }
        let mut text = format!("event: change\ndata: {{\"subject\":{index}");
        let mut values: Vec<String> =
            set.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        let changed = changed.into_iter().filter_map(|name| Some((name, self.values.get(name)?)));
        values.extend(changed.map(|(name, value)| format!("{}:{value}", quoted(name))));
        let rows: Vec<String> =
            rows.into_iter().map(|(key, row)| format!("{}:{row}", quoted(key))).collect();
        let keys = |keys: &[&str]| keys.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(",");
        let mut part = |name: &str, open: char, inner: &str, close: char| {
            // Writing into a string cannot fail.
            write!(text, ",\"{name}\":{open}{inner}{close}").unwrap_or_default();
        };
        if !values.is_empty() {
            part("set", '{', &values.join(","), '}');
        }
        if !rows.is_empty() {
            part("rows", '{', &rows.join(","), '}');
        }
        if !gone.is_empty() {
            part("gone", '[', &keys(&gone), ']');
        }
        if has_order {
            let order: Vec<&str> = now.order.iter().map(|key| &**key).collect();
            part("order", '[', &keys(&order), ']');
        }
        if self.is_truncated {
            text.push_str(",\"truncated\":true");
        }
        text.push_str("}\n\n");
        Some(text)
    }
}

/// Names and JSON texts of the members of an object.
fn fields(object: Map<String, Value>) -> impl Iterator<Item = (String, String)> {
    object.into_iter().map(|(name, value)| (name, value.to_string()))
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Key of a row, unique in its list.
fn key_of(row: &Value) -> String {
    let text = |name: &str| match &row[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let keys = ["path", "clientId", "sessionId", "sequenceNumber"];
    keys.map(text).into_iter().find(|key| !key.is_empty()).unwrap_or_default()
}
