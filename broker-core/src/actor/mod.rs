//! The actors: one owner per entity, a thin driver of its shell. (Data path, step 2.)
//!
//! ```text
//!  transport ─► Inlet (bounded by permits) ─knock─► EntityActor ─► Shell ─► Tree ─┐
//!      ▲                                               ▲ notice                    │ dirty
//!      └────────────── replies, deliveries ◄── Desk ◄──┴── completions ◄── store ◄─┘
//! ```
//!
//! A `Desk` (`desk.rs`) serves all trees of one arbiter: it submits their stages once everything that is
//! ready has run, and takes completions back; long turns wait there for each other
//! ([`LongTurns`](crate::admission::LongTurns)). The [`namespace::NamespaceActor`] is the parent of all entities: it creates, rebuilds
//! and retires them.

mod apart;
pub mod desk;
pub mod directory;
mod drive;
pub mod entity;
pub mod inlet;
pub(crate) mod messages;
pub mod namespace;
pub mod pulse;
mod route;
mod session;
mod transfer;
mod wakeups;
