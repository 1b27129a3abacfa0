//! HTTP transport for Peeklock: the Service Bus REST data plane, a JSON API and the probes. (Data
//! path, step 1.)
//!
//! The modules in reading order: `config`, `error` and [`HttpTransport`] in `listener`;
//! `room` and `deadline` limit memory and time. `socket` enforces the bounds of a
//! connection in bytes and in time. `serve` takes one request through the common checks, as an
//! `exchange` with its `body`; `route` parses the path, and `probe` answers probes. `delivery`,
//! `broker_properties` and `header_value` convert messages. `site` is the state of a listener, and
//! `entrance` takes connections from the gateway. `data` is the REST data plane of file 22 of the
//! specification, `atom` the administration API that the Service Bus SDKs use, and `api` the JSON
//! API under `/$api/v1` with all operations that have no REST form (HTP-10). Its OpenAPI document
//! is generated from the code and served at `/$api/v1/openapi.json`.
//!
//! | Request | Operation |
//! |---|---|
//! | `POST /{queue}/messages` | send one message, or a batch by its Content-Type |
//! | `POST /{entity}/messages/head?timeout=` | receive under lock |
//! | `DELETE /{entity}/messages/head?timeout=` | receive and delete |
//! | `DELETE`, `PUT`, `POST /{entity}/messages/{sequence or id}/{token}` | complete, abandon, renew |
//! | `PUT`, `GET`, `DELETE /{entity}?api-version=`, `GET /$Resources/queues` | administration over Atom |
//! | `GET /$api/v1/queues`, and below it | everything, as JSON |
//! | `GET /$console/` | the files of the console |
//! | `GET /livez`, `/readyz`, `/health`, `/metrics` | probes |
//!
//! In the data plane an entity is the path of a queue or sub-queue with its slashes. In the JSON
//! API it is one segment with percent-encoded slashes: `/$api/v1/queues/eu%2Forders`. If a proxy
//! rejects `%2F`, use a backslash, which counts as a slash (ADR-09): `eu%5Corders`.
//!
//! Names of HTTP headers are case-insensitive, so the application properties that the data plane
//! reads and writes as headers are in lower case (HTP-05). A head has at most 96 headers; a message
//! with more properties must be sent in a batch (HTP-09) or over the JSON API, both of which
//! preserve the case of names.
//!
//! Each refusal is a problem+json (ERR-02), or its equivalent in the Atom API (ADM-50). This
//! includes bytes that are not HTTP, and a head that is too large or late: `socket` checks heads
//! before actix-web sees them.
//!
//! Absent on purpose: HTTP/2, which a proxy in front can provide; cookies; CORS (SEC-23).

mod config;
mod entrance;
mod error;
mod listener;
mod site;
mod socket;
mod standby;

mod body;
mod console;
mod deadline;
mod exchange;
mod probe;
mod room;
mod route;
mod serve;

mod broker_properties;
mod delivery;
mod downloads;
mod header_value;

mod api;
mod atom;
mod data;

#[cfg(test)]
mod tests;

pub use api::openapi_json;
pub use config::{
    ConsoleFile, ConsoleHook, DeclarationHook, DeclarationText, DeclaredPart, HttpConfig,
    MetricsHook, PlaceHook, ReadDeclaration, Readiness,
};
pub use listener::HttpTransport;
pub use standby::{StandbyHook, StandbyProbes, StandbyReport};
