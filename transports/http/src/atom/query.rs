//! What stands in the query of a request (ADM-03, ADM-04, ADM-23).

use crate::error::Refusal;
use crate::route::parameter;
use crate::serve::Exchange;

/// Entries of one page, if the request does not say and at most.
pub(super) const TOP_MAX: usize = 100;
/// What clients are told that have not said their version.
const VERSION_DEFAULT: &str = "2021-05";
/// A version is a date, with a suffix at most.
const VERSION_CHARS_MAX: usize = 32;

/// Which part of a list is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) skip: usize,
    pub(super) top: usize,
}

/// Reads `$skip` and `$top`.
///
/// # Errors
/// `ArgumentError` for what is no number.
pub(super) fn page(exchange: &Exchange) -> Result<Page, Refusal> {
    let skip = number(exchange, "$skip")?.unwrap_or(0);
    let top = number(exchange, "$top")?.unwrap_or(TOP_MAX).min(TOP_MAX);
    Ok(Page { skip, top })
}

/// The version that the client speaks, to be repeated in the addresses that it is told.
pub(super) fn version(exchange: &Exchange) -> String {
    let is_plain = |text: &String| {
        text.len() <= VERSION_CHARS_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    parameter(exchange.query(), "api-version")
        .filter(is_plain)
        .unwrap_or_else(|| VERSION_DEFAULT.to_owned())
}

fn number(exchange: &Exchange, name: &str) -> Result<Option<usize>, Refusal> {
    let Some(text) = parameter(exchange.query(), name) else { return Ok(None) };
    match text.trim().parse::<u64>() {
        // More than can be is all there is.
        Ok(number) => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
        Err(_) => Err(Refusal::argument(format!("{name} must be a number of entries"))),
    }
}
