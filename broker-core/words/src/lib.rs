//! The words of Peeklock: plain values that everything else speaks with. What a message is, how entities
//! are named and described, which rules a subscription has, how long, how large and how many things may
//! be, and how it is said what went wrong.
//!
//! Nothing here knows an entity's state, a store, a thread or a clock.

pub mod amqp;
pub mod condition;
pub mod description;
pub mod error;
pub mod ids;
pub mod kind;
pub mod limits;
pub mod message;
pub mod path;
pub mod rule;
pub mod time;
