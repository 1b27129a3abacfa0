//! Bearer tokens for Peeklock: who shows a token (JWT) that an identity provider has signed has the rights of the roles in
//! it (spec file 18, SEC-27 to SEC-31). Microsoft Entra is such a provider, and so is whoever publishes keys as OpenID
//! Connect has it.
//!
//! ```text
//!  text ─► Token::read ─► Keys::find ──────► Token::verify ─► Claims::judge ─► Roles::rights ─► Grant
//!           header         key of the issuer   signature        issuer, audience,  table of the
//!                          read again if       before anything  not before, expiry configuration
//!                          it is not known     is believed
//! ```
//!
//! [`JwtAuthorizer`] stands before another [`Authorizer`](peeklock_core::contract::Authorizer), such as that of shared access
//! signatures, and asks it about everybody who shows no such token. The files, in the order in which a token meets them:
//!
//! | File | What |
//! |---|---|
//! | `config.rs` | what an operator sets |
//! | `authorizer.rs` | what a token is worth at a resource |
//! | `token.rs` | its text, its signature, what it says |
//! | `algorithm.rs` | algorithms, and the keys that fit them |
//! | `keys.rs` | the keys of the issuer as they are known here, and when they are read again |
//! | `key_set.rs` | such keys as JSON |
//! | `source.rs` | reading them, over HTTPS or from a file |
//! | `roles.rs` | what roles give |
//! | `refused.rs` | what is told about a token that is not good |
//!
//! Absent on purpose: the algorithm `none` and those with a shared secret, which nothing here can verify; encrypted tokens;
//! keys or addresses of keys that a token names itself; asking the issuer about a token; getting tokens, which is the business of clients.
//!
//! Signatures are verified with ring, which TLS stands on too. The libraries for JWT do the rest in as few lines as are here, and
//! judge by the clock of the system, where this judges by that of the broker.

mod algorithm;
mod authorizer;
mod config;
mod key_set;
mod keys;
mod refused;
mod roles;
mod source;
#[cfg(feature = "testing")]
pub mod testing;
mod token;

pub use algorithm::Algorithm;
pub use authorizer::JwtAuthorizer;
pub use config::JwtConfig;
pub use key_set::KeySetError;
pub use refused::Refused;
pub use roles::Role;
pub use source::{KeySource, SourceError};

#[doc(no_inline)]
pub use peeklock_reach::certificates;
