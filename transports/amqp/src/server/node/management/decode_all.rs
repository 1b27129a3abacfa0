//! Entry point of tests and fuzzing: decodes arbitrary bytes in all ways in which requests are
//! decoded.

use bytes::Bytes;
use peeklock_core::limits::Limits;
use peeklock_core::message::Content;
use peeklock_words::amqp::Scalar;

use super::super::NodeRequest;
use super::body::{Body, ITEM_COUNT_MAX};
use super::rules::rule;
use crate::server::settlement::properties;

/// Keys in the bodies of all operations.
const KEYS: [&str; 12] = [
    "disposition-status",
    "enqueued-time-utc",
    "from-sequence-number",
    "last-session-id",
    "last-updated-time",
    "message-count",
    "omit-message-body",
    "receiver-settle-mode",
    "rule-name",
    "session-id",
    "skip",
    "top",
];

/// Reads `bytes` as a request, and its body as the body of each operation. Returns the number of
/// values that could be read.
#[must_use]
pub fn decode_all(bytes: Bytes) -> usize {
    let Ok(request) = NodeRequest::read(bytes) else { return 0 };
    let named = ["operation", "associated-link-name"].map(|name| request.text(name));
    let timeout_count = usize::from(request.timeout().is_some());
    let count = timeout_count + named.into_iter().flatten().count();
    let Ok(body) = Body::read(request.body()) else { return count };
    let keys: usize = KEYS.iter().map(|key| decodable_type_count(&body, key)).sum();
    let lists = [
        body.sequences(ITEM_COUNT_MAX).map_or(0, |numbers| numbers.len()),
        body.tokens().map_or(0, |tokens| tokens.len()),
        body.maps("messages").map_or(0, |maps| maps.iter().filter(|map| has_message(map)).count()),
    ];
    let count_max = Limits::default().rule_property_count_max;
    let is_rule =
        |map: &_| rule("r".to_owned(), &Body::of_map(Clone::clone(map)), count_max).is_ok();
    let rules = body.map("rule-description").ok().flatten().into_iter();
    let rules = rules.filter(is_rule).count();
    let changes = body.map("properties-to-modify").ok().flatten();
    let changes = properties(changes.as_ref()).map_or(0, |changes| changes.len());
    count + keys + lists.iter().sum::<usize>() + rules + changes
}

/// Number of types as which the value of a key can be read.
fn decodable_type_count(body: &Body, key: &str) -> usize {
    [
        matches!(body.text(key), Ok(Some(_))),
        matches!(body.flag(key), Ok(true)),
        matches!(body.integer(key), Ok(Some(_))),
        matches!(body.count(key), Ok(Some(_))),
        matches!(body.instant(key), Ok(Some(_))),
    ]
    .into_iter()
    .filter(|is_so| *is_so)
    .count()
}

fn has_message(map: &Body) -> bool {
    let Ok(value) = map.required("message") else { return false };
    match value.scalar() {
        Ok(Scalar::Binary(bytes)) => {
            Content::from_sender(value.as_bytes().slice_ref(bytes)).is_ok()
        }
        _ => false,
    }
}
