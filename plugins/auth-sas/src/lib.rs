//! Shared access signatures for Peeklock: a client that presents a token signed with a key of a
//! policy has the rights of that policy (spec file 18).
//!
//! ```text
//!  token ─► Token::parse ─► policies of that name at the resource ─► signature ─► expiry ─► audience ─► Grant
//!             text            nearest first, then the namespace's      constant-time
//! ```
//!
//! [`SasAuthorizer`] is an [`Authorizer`](peeklock_core::contract::Authorizer) over the
//! [`Policies`](peeklock_core::policies::Policies) of a broker. [`ConnectionString`] and [`sign`]
//! are for clients and come from `peeklock-sas`. The modules in reading order: `config` (settings),
//! `token` (text and signature), `audience` (resource of a token) and `authorizer` (the decision).
//!
//! Deliberately absent: storing and changing policies, which is the broker's task; and other kinds
//! of tokens, which are refused with their own text.

mod audience;
mod authorizer;
mod config;
mod token;

pub use audience::Audience;
pub use authorizer::SasAuthorizer;
pub use config::SasConfig;
pub use peeklock_sas::{ConnectionString, Credential, Endpoint, sign};
pub use token::{PolicyName, Token, TokenError};
