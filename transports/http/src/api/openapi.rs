//! The OpenAPI document of the JSON API, generated from the operations. `api/mod.rs` serves it.

use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required};

use peeklock_json::PlanResultView;

use super::{
    act, audit, checks, content, declaration_text, filters, inspect, job, journey, lock, messages,
    namespace, operate, policies, queues, rules, search, sessions, sign_in, subscriptions, topics,
    watch,
};
use crate::error::PROBLEM;

/// Description of all operations.
const DESCRIPTION: &str = "The JSON API of Peeklock.

A queue or a topic is one percent-encoded path segment: the slashes of its path are `%2F` (or \
`%5C`, a backslash, if a proxy refuses `%2F`), and a sub-queue has its suffix, as in \
`orders%2F$deadletterqueue` or `orders%2F$Transfer%2F$deadletterqueue`. Messages are sent to a \
queue or a topic, and received from a queue, a subscription or a sub-queue of either. To receive \
from sessions, use WebSocket: it needs a link, which HTTP does not have. Here you can list \
sessions and peek into them.

You may leave out a body if everything in it is optional. Unknown query parameters are refused.

Every error is `application/problem+json`; programs use its `code`. Three errors end the \
connection: bytes that are not HTTP (400), a head that does not arrive in time (408), and a head \
that is too large (431: 128 KiB, or more than 96 headers).

The same address also serves the Service Bus REST data plane: `POST /{queue}/messages` sends, \
`POST` and `DELETE /{entity}/messages/head?timeout=` receive under lock and receive and delete, \
and `DELETE`, `PUT` and `POST /{entity}/messages/{sequence number}/{lock token}` complete, \
abandon and renew. There the slashes of a path are not encoded, broker properties are in the \
header `BrokerProperties`, and each application property is a separate header, so its name is in \
lower case.";

/// The document before it is completed.
#[derive(OpenApi)]
#[openapi(
    info(title = "Peeklock", description = DESCRIPTION, license(name = "MIT OR Apache-2.0")),
    servers((url = "/$api/v1")),
    paths(
        namespace::get,
        namespace::declare,
        sessions::list,
        messages::send::send,
        messages::send::send_batch,
        messages::send::schedule,
        messages::send::cancel_scheduled,
        messages::receive::receive,
        messages::receive::receive_deferred,
        messages::receive::peek,
        messages::delete::delete_batch,
        messages::delete::purge,
        messages::delete::delete_unlocked,
        messages::delete::delete_deferred,
        lock::complete,
        lock::abandon,
        lock::defer,
        lock::dead_letter,
        lock::release,
        lock::renew,
    ),
    components(schemas(PlanResultView))
)]
struct Document;

const OF_QUEUE: &str = "/queues/{queue}/";
/// Operations on sent messages and on scheduled ones, which topics have too.
const OF_SENDERS: [&str; 4] =
    ["messages", "messages/batch", "messages/schedule", "messages/cancel-scheduled"];

/// Operations on messages that wait at a topic, which subscriptions have too.
const OF_TOPICS: [&str; 6] = [
    "heads",
    "messages/{sequenceNumber}/body",
    "messages/{sequenceNumber}/head",
    "messages/{sequenceNumber}/journey",
    "series",
    "timeline",
];

/// Returns the OpenAPI document as JSON text, as it is served at `/$api/v1/openapi.json`.
#[must_use]
pub fn openapi_json() -> String {
    let mut document = Document::openapi();
    for operations in [
        queues::Operations::openapi(),
        topics::Operations::openapi(),
        subscriptions::Operations::openapi(),
        rules::Operations::openapi(),
        policies::Operations::openapi(),
        inspect::Operations::openapi(),
        content::Operations::openapi(),
        watch::Operations::openapi(),
        search::Operations::openapi(),
        audit::Operations::openapi(),
        sign_in::Operations::openapi(),
        operate::Operations::openapi(),
        act::Operations::openapi(),
        job::Operations::openapi(),
        checks::Operations::openapi(),
        declaration_text::Operations::openapi(),
        journey::Operations::openapi(),
        filters::Operations::openapi(),
    ] {
        document.merge(operations);
    }
    let paths = &mut document.paths.paths;
    let mut more = Vec::new();
    for (path, item) in &*paths {
        if path.starts_with("/policies") {
            for (kind, entity) in [("queues", "queue"), ("topics", "topic")] {
                let path = format!("/{kind}/{{{entity}}}{path}");
                more.push((path, copied_to(item, entity, &[entity])));
            }
        }
        let Some(below) = path.strip_prefix(OF_QUEUE) else { continue };
        if OF_SENDERS.contains(&below) {
            let mut item = copied_to(item, "topic", &["topic"]);
            // A topic holds no messages to peek at.
            item.get = None;
            more.push((format!("/topics/{{topic}}/{below}"), item));
        }
        if OF_TOPICS.contains(&below) {
            let item = copied_to(item, "topic", &["topic"]);
            more.push((format!("/topics/{{topic}}/{below}"), item));
        }
        if !OF_SENDERS.contains(&below) || below == "messages" {
            let mut item = copied_to(item, "subscription", &["topic", "subscription"]);
            if below == "messages" {
                item.post = None;
            }
            let path = format!("/topics/{{topic}}/subscriptions/{{subscription}}/{below}");
            more.push((path, item));
        }
    }
    paths.extend(more);
    let Ok(mut document) = serde_json::to_value(&document) else { return String::new() };
    set_error_type(&mut document);
    let optional = optional_bodies(&document);
    for path in optional {
        if let Some(required) = document.pointer_mut(&path) {
            *required = false.into();
        }
    }
    document.to_string()
}

/// Sets the media type of errors, `application/problem+json`.
fn set_error_type(document: &mut Value) {
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for item in paths.values_mut() {
        let Some(operations) = item.as_object_mut() else { continue };
        for operation in operations.values_mut() {
            let error = operation.pointer_mut("/responses/default/content");
            if let Some(content) = error.and_then(Value::as_object_mut)
                && let Some(problem) = content.remove("application/json")
            {
                content.insert(PROBLEM.to_owned(), problem);
            }
        }
    }
}

/// Returns the places where the document requires a body although all its properties are optional.
fn optional_bodies(document: &Value) -> Vec<String> {
    let mut optional = Vec::new();
    let Some(paths) = document["paths"].as_object() else { return optional };
    for (path, item) in paths {
        let Some(operations) = item.as_object() else { continue };
        for (method, operation) in operations {
            let body = &operation["requestBody"];
            let schema = body["content"]["application/json"]["schema"]["$ref"].as_str();
            let Some(schema) = schema.and_then(|at| document.pointer(at.trim_start_matches('#')))
            else {
                continue;
            };
            if schema.get("required").is_none() && body.get("required").is_some() {
                let path = path.replace('~', "~0").replace('/', "~1");
                optional.push(format!("/paths/{path}/{method}/requestBody/required"));
            }
        }
    }
    optional
}

/// Copies the operations of a queue to another resource with these path segments.
fn copied_to(item: &PathItem, entity: &str, segments: &[&str]) -> PathItem {
    let mut item = item.clone();
    let operations =
        [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    for operation in operations.into_iter().flatten() {
        if let Some(id) = &mut operation.operation_id {
            id.push_str("_of_");
            id.push_str(entity);
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
