//! The OpenAPI document of the JSON API, made from the operations themselves.

use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required};

use super::{lock, messages, queues, rules, sessions, subscriptions, topics};

/// The JSON API of Peeklock. A queue or a topic is one percent-encoded path segment: the slashes of its
/// path are `%2F` (or `%5C`, a backslash, where a proxy takes offence), and a sub-queue has its suffix,
/// as in `orders%2F$deadletterqueue`. Messages are sent to a queue or a topic, and received from a queue,
/// a subscription or a sub-queue of either. Every error is `application/problem+json`, whose `code` is
/// for programs; only what is not HTTP at all, and a head that is too large or does not arrive in time,
/// is answered with a bare 400, 431 or 408 and the end of the connection.
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
        topics::list,
        topics::create,
        topics::get,
        topics::update,
        topics::delete,
        subscriptions::list,
        subscriptions::create,
        subscriptions::get,
        subscriptions::update,
        subscriptions::delete,
        rules::list,
        rules::create,
        rules::get,
        rules::update,
        rules::delete,
        rules::explain,
        sessions::list,
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

const OF_QUEUE: &str = "/queues/{queue}/";
/// What is sent, and what is done to what was scheduled.
const OF_SENDERS: [&str; 4] =
    ["messages", "messages/batch", "messages/schedule", "messages/cancel-scheduled"];

/// The document as JSON text, as it is served at `/$api/v1/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    let mut document = Document::openapi();
    let paths = &mut document.paths.paths;
    let mut more = Vec::new();
    for (path, item) in &*paths {
        let Some(below) = path.strip_prefix(OF_QUEUE) else { continue };
        if OF_SENDERS.contains(&below) {
            let mut item = elsewhere(item, "topic", &["topic"]);
            // A topic holds nothing to look at.
            item.get = None;
            more.push((format!("/topics/{{topic}}/{below}"), item));
        }
        if !OF_SENDERS.contains(&below) || below == "messages" {
            let mut item = elsewhere(item, "subscription", &["topic", "subscription"]);
            if below == "messages" {
                item.post = None;
            }
            let path = format!("/topics/{{topic}}/subscriptions/{{subscription}}/{below}");
            more.push((path, item));
        }
    }
    paths.extend(more);
    document.to_json().unwrap_or_default()
}

/// The operations of a queue at another place, which these segments name.
fn elsewhere(item: &PathItem, what: &str, segments: &[&str]) -> PathItem {
    let mut item = item.clone();
    let operations =
        [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    for operation in operations.into_iter().flatten() {
        if let Some(id) = &mut operation.operation_id {
            id.push_str("_of_");
            id.push_str(what);
        }
        let parameters = operation.parameters.get_or_insert_default();
        parameters.retain(
            |parameter| !matches!(parameter, RefOr::T(parameter) if parameter.name == "queue"),
        );
        for (place, segment) in segments.iter().enumerate() {
            let parameter = ParameterBuilder::new()
                .name(*segment)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()));
            parameters.insert(place, RefOr::T(parameter.build()));
        }
    }
    item
}
