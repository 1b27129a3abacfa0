//! Plain values that every other crate uses: messages, names and descriptions of entities, rules,
//! limits, instants and errors.
//!
//! Nothing here knows the state of an entity, a store, a thread or a clock.
//!
//! Modules in reading order:
//!
//! - [`ids`], [`time`], [`kind`]: identities, instants and durations, kinds of entities
//! - [`path`]: addresses of entities and their sub-queues
//! - [`condition`], [`error`]: the catalogue of errors, and the errors that callers see
//! - [`limits`]: configurable bounds
//! - [`description`]: properties of queues, topics and subscriptions
//! - [`amqp`]: the codec of AMQP values
//! - [`message`]: the content of messages, its sections and changes
//! - [`rule`]: filters and actions of subscriptions; `rule::sql` is their language
//! - [`policy`]: rights, keys and policies
//! - [`search`]: conditions of a search over messages, and groups of messages

pub mod amqp;
pub mod condition;
pub mod description;
pub mod error;
pub mod ids;
pub mod kind;
pub mod limits;
pub mod message;
pub mod path;
pub mod policy;
pub mod rule;
pub mod search;
pub mod time;
