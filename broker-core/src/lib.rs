//! The Peeklock broker: what a message is, what an entity does with it, and how both are driven.
//!
//! Read in the order of the modules. [`command`], [`change`] and [`effect`] are the model on three
//! pages; [`entity`] holds the pure state machines.

// Words: plain values.
pub mod condition;
pub mod description;
pub mod error;
pub mod ids;
pub mod limits;
pub mod message;
pub mod path;
pub mod rule;
pub mod time;
// The model.
pub mod change;
pub mod command;
pub mod effect;
pub mod entity;
pub mod transaction;
pub mod transfer;
// Where it is kept.
pub mod content_ref;
pub mod store;
// How it is driven.
pub mod actor;
pub mod clock;
pub mod inbound;
pub mod permits;
pub mod request;
pub mod shell;
pub mod telemetry;
// What extension authors implement, and what everybody uses.
pub mod broker;
pub mod builder;
pub mod call;
pub mod census;
pub mod contract;
mod forwarders;
// For tests of this workspace and of extensions.
#[cfg(feature = "testing")]
pub mod testing;

pub use broker::{Broker, Entity, Stalled};
pub use builder::{BrokerBuilder, StartError};
