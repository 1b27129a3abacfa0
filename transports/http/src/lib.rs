//! HTTP for Peeklock: the Service Bus REST data plane, a JSON API and the probes. (Data path,
//! step 1.)
//!
//! Read in the order of the modules. [`HttpTransport`] listens; `socket` keeps the bounds of a connection, in bytes
//! and in time; `serve` takes one request through
//! the checks that all share, as an `exchange`; `route` tells what a path means; `data` is the REST data plane of spec
//! file 22, `atom` the administration that the Service Bus SDKs speak, `api` the JSON API under `/$api/v1` with everything that has no REST form (HTP-10). Its
//! OpenAPI document is made from the code and served at `/$api/v1/openapi.json`.
//!
//! | Request | Operation |
//! |---|---|
//! | `POST /{queue}/messages` | send one message, or a batch by its Content-Type |
//! | `POST /{entity}/messages/head?timeout=` | receive under lock |
//! | `DELETE /{entity}/messages/head?timeout=` | receive and delete |
//! | `DELETE`, `PUT`, `POST /{entity}/messages/{sequence or id}/{token}` | complete, abandon, renew |
//! | `PUT`, `GET`, `DELETE /{entity}?api-version=`, `GET /$Resources/queues` | administration over Atom |
//! | `GET /$api/v1/queues`, and below it | everything, as JSON |
//! | `GET /livez`, `/readyz`, `/health`, `/metrics` | probes |
//!
//! In the data plane an entity is a queue's path with its slashes, or that of a sub-queue; in the
//! JSON API it is one segment, its slashes percent-encoded: `/$api/v1/queues/eu%2Forders`, or with
//! the backslash that counts as one (ADR-09) where a proxy takes offence: `eu%5Corders`.
//!
//! Names of HTTP headers have no case, and so have none the application properties that the data plane reads and
//! writes as headers (HTP-05): they are in lower case. A head has at most 96 headers, so a message with more
//! properties is sent in a batch (HTP-09) or over the JSON API, both of which keep names as they are.
//!
//! Every refusal is a problem+json (ERR-02), or what Atom has in its place (ADM-50), also of bytes that are not HTTP, and of a head that is too large or
//! does not arrive in time: `socket` judges a head before actix-web sees it.
//!
//! Absent on purpose: HTTP/2, which a proxy in front provides; cookies; CORS (SEC-23).

mod config;
mod entrance;
mod error;
mod listener;
mod places;
mod site;
mod socket;

mod body;
mod deadline;
mod exchange;
mod probe;
mod room;
mod route;
mod serve;

mod broker_properties;
mod delivery;
mod header_value;

mod api;
mod atom;
mod data;

#[cfg(test)]
mod tests;

pub use api::openapi_json;
pub use config::{HttpConfig, MetricsHook, Readiness};
pub use listener::HttpTransport;
