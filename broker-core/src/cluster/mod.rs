//! One of several brokers over one store: which broker works, and for how long
//! (docs/explanation/scale-out.md, section 5).
//!
//! ```text
//!                 renews, takes                      Begin, Suspend, Resume, Lose
//!  Registry ◄──────────────────── Keeper ──► Ownership ──────────────────────────► Tenure
//!  (of the store)                 (a thread)  (pure)                                 │
//!                                                       every turn of an arbiter ────┘
//! ```
//!
//! A store without a registry has one broker, whose tenure never ends.

pub mod keeper;
pub mod ownership;
pub mod tenure;
