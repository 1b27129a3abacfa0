//! The actors: one for each entity, a thin driver of its shell. Step 2 of the data path.
//!
//! ```text
//!  transport ─► Inlet (bounded by permits) ─knock─► EntityActor ─► Shell ─► Tree ─┐
//!      ▲                                               ▲ notice                    │ dirty
//!      └────────────── replies, deliveries ◄── Desk ◄──┴── completions ◄── store ◄─┘
//! ```
//!
//! A `Desk` (`desk.rs`) serves all trees of an arbiter. It submits their stages when all ready work
//! has run, and takes completions back. Long turns wait for each other at
//! [`admission::LongTurns`](crate::admission::LongTurns). The [`namespace::NamespaceActor`] is the
//! parent of all entities: it creates, rebuilds and retires them.

mod background;
mod courier;
pub mod desk;
pub mod directory;
mod drive;
pub mod entity;
pub mod inlet;
pub(crate) mod messages;
pub mod namespace;
mod own_commits;
pub mod pulse;
mod route;
mod session;
mod wakeups;
