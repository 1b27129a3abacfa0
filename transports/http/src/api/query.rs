//! Values of the query, and instants of a body.

use peeklock_core::management::Page;
use peeklock_core::time::Timestamp;

use crate::error::Refusal;
use crate::route::parameter;
use crate::serve::Exchange;

/// Entries of a page if the request does not name a number.
const TOP_DEFAULT: usize = 100;

/// The page of a list that the query names (ENT-30).
pub(super) fn page(exchange: &Exchange) -> Result<Page, Refusal> {
    let most = exchange.site.broker.settings().limits.list_count_max.max(1);
    let skip = number(exchange, "skip")?.unwrap_or(0);
    let top = number(exchange, "top")?.unwrap_or(TOP_DEFAULT).min(most);
    Ok(Page { skip, top: Some(top) })
}

/// A number of the query.
pub(super) fn number<T: std::str::FromStr>(
    exchange: &Exchange,
    name: &str,
) -> Result<Option<T>, Refusal> {
    let Some(text) = parameter(exchange.query(), name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(Refusal::argument(format!(
            "the query parameter {name} must be a number in its range"
        ))),
    }
}

/// An instant of a request; `name` is its property.
pub(super) fn instant(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match Timestamp::parse(text) {
        Some(instant) => Ok(Some(instant)),
        None => Err(Refusal::argument(format!("{name} must be an RFC 3339 instant"))),
    }
}
