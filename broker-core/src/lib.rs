//! The Peeklock broker: what drives the state machines of its entities, and what it offers to transports, to
//! extensions and to those who embed it. With it, by name, all that lies below:
//!
//! ```text
//!   words <- model <- machine        what is said; what can be asked and happen; what an entity does
//!             record <- store        keys and records; where they are kept
//!   words <- admission               how much of it there may be at once
//!            machine + store + admission <- this crate
//! ```
//!
//! Read in the order of the modules. [`command`], [`change`] and [`effect`] are the model on three pages;
//! [`entity`] holds the pure state machines.

// Words: plain values.
pub use peeklock_words::{
    condition, description, error, ids, kind, limits, message, path, rule, time,
};
// The model.
pub use peeklock_model::{change, effect};
/// What can be asked of an entity, and what it answers.
pub mod command {
    pub use peeklock_model::command::*;

    pub use crate::request::{LoadedMessage, Outcome, ReceivedMessage, Unreadable};
}
// The machines, one for each kind of entity.
pub use peeklock_machine as entity;
// What goes over several commands, or from one entity to another.
pub mod transaction;
pub mod transfer;
// How much of it there may be at once.
pub use peeklock_admission as admission;
// Where it is kept.
pub use peeklock_store as store;
pub use peeklock_store::content_ref;
// How it is driven.
pub mod actor;
pub mod clock;
pub mod edge;
pub mod request;
pub mod shell;
pub mod telemetry;
// What extension authors implement, and what everybody uses.
pub mod access;
pub mod activity;
pub mod broker;
pub mod builder;
pub mod call;
pub mod census;
pub mod contract;
pub mod declaration;
mod forwarders;
mod grant;
pub mod management;
pub mod policies;
mod refusals;
mod shared;
mod traced;

pub use access::{Access, InTurn, KeysIn};
pub use broker::{Broker, Entity, Stalled, Update};
pub use builder::{BrokerBuilder, StartError};
pub use shared::Namespace;
