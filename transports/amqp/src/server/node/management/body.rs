//! Bodies of requests, read with the tolerance that clients need (AMQP-82). The planners of
//! management operations read their fields with it.

use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::time::Timestamp;
use peeklock_words::amqp::Scalar;

use crate::codec::value::{Map, Raw};
use crate::message::BATCH_COUNT_MAX;

/// Maximum number of locks, and of messages to receive, in one request.
pub(super) const ITEM_COUNT_MAX: usize = 4_096;

/// Body of a request: a map.
pub(super) struct Body(Map);

impl Body {
    /// Reads a body, which must be a map.
    pub(super) fn read(value: Option<Raw>) -> Result<Self, Rejection> {
        let value = value.ok_or_else(|| Rejection::argument("request body must be a value"))?;
        match Map::from_raw(value) {
            Ok(map) => Ok(Self(map)),
            Err(_) => Err(Rejection::argument("request body must be a map")),
        }
    }

    /// Wraps a map within a body.
    pub(super) fn of_map(map: Map) -> Self {
        Self(map)
    }

    /// Returns the value of a key; `None` if it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<Raw> {
        self.0.get(key).filter(|value| value.scalar() != Ok(Scalar::Null))
    }

    /// Returns a value that must be present.
    pub(super) fn required(&self, key: &str) -> Result<Raw, Rejection> {
        self.get(key).ok_or_else(|| Rejection::argument(format!("`{key}` is missing")))
    }

    /// Returns a text.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, Rejection> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.scalar() {
            Ok(Scalar::Text(text) | Scalar::Symbol(text)) => Ok(Some(text.to_owned())),
            _ => Err(wrong(key, "text")),
        }
    }

    /// Returns a text that must be present.
    pub(super) fn required_text(&self, key: &str) -> Result<String, Rejection> {
        self.text(key)?.ok_or_else(|| Rejection::argument(format!("`{key}` is missing")))
    }

    /// Returns a boolean; false if it is missing.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Rejection> {
        let Some(value) = self.get(key) else { return Ok(false) };
        match value.scalar() {
            Ok(Scalar::Bool(flag)) => Ok(flag),
            _ => Err(wrong(key, "a boolean")),
        }
    }

    /// Returns a number of any integer type.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, Rejection> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.scalar().ok().and_then(integer);
        number.map(Some).ok_or_else(|| wrong(key, "an integer"))
    }

    /// Returns a count; a negative number is out of range.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, Rejection> {
        let Some(number) = self.integer(key)? else { return Ok(None) };
        if number < 0 {
            return Err(Rejection::out_of_range(format!("`{key}` is {number}, less than 0")));
        }
        Ok(Some(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// Returns an instant.
    pub(super) fn instant(&self, key: &str) -> Result<Option<Timestamp>, Rejection> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.scalar() {
            Ok(Scalar::Timestamp(ms)) => Ok(Some(Timestamp::from_unix_ms(ms))),
            _ => Err(wrong(key, "a timestamp")),
        }
    }

    /// Returns at most `count_max` sequence numbers, from an array or a list.
    pub(super) fn sequences(&self, count_max: usize) -> Result<Vec<SequenceNumber>, Rejection> {
        self.items(("sequence-numbers", count_max), "integers", |item| {
            integer(item).and_then(|number| u64::try_from(number).ok()).map(SequenceNumber)
        })
    }

    /// Returns lock tokens, from an array or a list.
    pub(super) fn tokens(&self) -> Result<Vec<LockToken>, Rejection> {
        self.items(("lock-tokens", ITEM_COUNT_MAX), "uuids", |item| match item {
            Scalar::Uuid(token) => Some(LockToken(token)),
            _ => None,
        })
    }

    fn items<T>(
        &self,
        (key, count_max): (&str, usize),
        of: &str,
        read: impl Fn(Scalar<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Rejection> {
        let value = self.required(key)?;
        let not_these = || wrong(key, &format!("an array of {of}"));
        let mut items = Vec::new();
        for item in value.items().map_err(|_| not_these())? {
            bounded(key, items.len(), count_max)?;
            let item = item.ok().and_then(&read);
            items.push(item.ok_or_else(not_these)?);
        }
        if items.is_empty() {
            return Err(Rejection::argument(format!("`{key}` must not be empty")));
        }
        Ok(items)
    }

    /// Returns the maps of a list.
    pub(super) fn maps(&self, key: &str) -> Result<Vec<Self>, Rejection> {
        let value = self.required(key)?;
        let not_these = || wrong(key, "a list of maps");
        let mut maps = Vec::new();
        for item in value.raw_items().map_err(|_| not_these())? {
            bounded(key, maps.len(), BATCH_COUNT_MAX)?;
            maps.push(Self(Map::from_raw(item).map_err(|_| not_these())?));
        }
        if maps.is_empty() {
            return Err(Rejection::argument(format!("`{key}` must not be empty")));
        }
        Ok(maps)
    }

    /// Returns a map within the body.
    pub(super) fn map(&self, key: &str) -> Result<Option<Map>, Rejection> {
        let Some(value) = self.get(key) else { return Ok(None) };
        Map::from_raw(value).map(Some).map_err(|_| wrong(key, "a map"))
    }
}

fn bounded(key: &str, count: usize, count_max: usize) -> Result<(), Rejection> {
    if count < count_max {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "`{key}` has more than {count_max} items, the limit per request; send several requests"
    )))
}

fn wrong(key: &str, kind: &str) -> Rejection {
    Rejection::argument(format!("`{key}` must be {kind}"))
}

fn integer(value: Scalar<'_>) -> Option<i64> {
    match value {
        Scalar::I8(number) => Some(number.into()),
        Scalar::I16(number) => Some(number.into()),
        Scalar::I32(number) => Some(number.into()),
        Scalar::I64(number) => Some(number),
        Scalar::U8(number) => Some(number.into()),
        Scalar::U16(number) => Some(number.into()),
        Scalar::U32(number) => Some(number.into()),
        Scalar::U64(number) => i64::try_from(number).ok(),
        _ => None,
    }
}
