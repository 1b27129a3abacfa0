//! Shared access signatures for Peeklock: who shows a token that was signed with a key of a policy has the rights
//! of that policy (spec file 18).
//!
//! ```text
//!  token ─► Token::parse ─► policies of that name at the resource ─► signature ─► expiry ─► audience ─► Grant
//!             text            nearest first, then the namespace's      constant-time
//! ```
//!
//! [`SasAuthorizer`] is an [`Authorizer`](peeklock_core::contract::Authorizer) over the
//! [`Policies`](peeklock_core::policies::Policies) of a broker. [`ConnectionString`] and [`sign`], with which
//! clients begin, come from `peeklock-sas`. Absent on purpose: where policies are stored and how they are changed, which is the broker's; and
//! other kinds of tokens, which are refused by name.

mod audience;
mod authorizer;
mod config;
mod token;

pub use audience::Audience;
pub use authorizer::SasAuthorizer;
pub use config::SasConfig;
pub use peeklock_sas::{ConnectionString, Credential, Endpoint, sign};
pub use token::{Named, Refused, Token};
