//! Pages of lists.

use super::query::number;
use crate::error::Refusal;
use crate::serve::Exchange;

/// Entities in one page if the request does not say.
const TOP_DEFAULT: usize = 100;

/// How many are left out, and how many of the others are asked for (ENT-30).
pub(super) fn page(exchange: &Exchange) -> Result<(usize, usize), Refusal> {
    let most = exchange.site.broker.settings().limits.list_count_max.max(1);
    let skip = number(exchange, "skip")?.unwrap_or(0);
    let top = number(exchange, "top")?.unwrap_or(TOP_DEFAULT).min(most);
    Ok((skip, top))
}
