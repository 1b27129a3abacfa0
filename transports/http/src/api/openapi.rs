//! The OpenAPI document of the JSON API, made from the operations themselves.

use utoipa::OpenApi;

use super::{lock, messages, queues};

/// The JSON API of Peeklock. A queue is one percent-encoded path segment: the slashes of its path are
/// `%2F` (or `%5C`, a backslash, where a proxy takes offence), and a sub-queue has its suffix, as in
/// `orders%2F$deadletterqueue`. Every error is `application/problem+json`, whose `code` is for
/// programs; only what is not HTTP at all, and a head that is too large or does not arrive in time, is
/// answered with a bare 400, 431 or 408 and the end of the connection.
#[derive(OpenApi)]
#[openapi(
    info(title = "Peeklock", license(name = "MIT OR Apache-2.0")),
    servers((url = "/$api/v1")),
    paths(
        queues::list,
        queues::create,
        queues::get,
        queues::update,
        queues::delete,
        messages::send,
        messages::send_batch,
        messages::schedule,
        messages::cancel_scheduled,
        messages::receive,
        messages::receive_deferred,
        messages::peek,
        messages::delete_batch,
        messages::purge,
        messages::delete_deferred,
        lock::complete,
        lock::abandon,
        lock::defer,
        lock::dead_letter,
        lock::release,
        lock::renew,
    )
)]
struct Document;

/// The document as JSON text, as it is served at `/$api/v1/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    Document::openapi().to_json().unwrap_or_default()
}
