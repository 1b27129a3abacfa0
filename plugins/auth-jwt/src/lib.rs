//! Bearer tokens for Peeklock: a client that presents a token (JWT) signed by an identity provider
//! gets the rights of the roles in the token (spec file 18, SEC-27 to SEC-31). Microsoft Entra is
//! such a provider, as is any other that publishes its keys as in OpenID Connect.
//!
//! ```text
//!  text ─► Token::read ─► Keys::find ──────► Token::verify ─► Claims::judge ─► Roles::rights ─► Grant
//!           header         key of the issuer   signature        issuer, audience,  table of the
//!                          read again if       before anything  not before, expiry configuration
//!                          it is not known     is believed
//! ```
//!
//! [`JwtAuthorizer`] wraps another [`Authorizer`](peeklock_core::contract::Authorizer), such as the
//! authorizer for shared access signatures, and asks it about all clients without a bearer token.
//! The files, in the order in which a token passes them:
//!
//! | File | Content |
//! |---|---|
//! | `config.rs` | settings |
//! | `authorizer.rs` | rights of a token at a resource |
//! | `token.rs` | text, signature and claims of a token |
//! | `algorithm.rs` | algorithms, and the keys that fit them |
//! | `keys.rs` | the known keys of the issuer, and when they are read again |
//! | `key_set.rs` | parsing of a JSON key set |
//! | `source.rs` | reading key sets over HTTPS or from a file |
//! | `roles.rs` | rights of roles |
//! | `refused.rs` | reasons for refusing a token |
//!
//! Deliberately absent: the algorithm `none` and algorithms with a shared secret, which this crate
//! cannot verify; encrypted tokens; keys or key addresses inside a token; token introspection at
//! the issuer; obtaining tokens, which is the client's task.
//!
//! Signatures are verified with ring, which TLS also uses. The crate does not use a JWT library: it
//! would save few lines, and such libraries judge expiry by the system clock instead of the
//! broker's clock.

mod algorithm;
mod authorizer;
mod config;
mod key_set;
mod keys;
mod refused;
mod roles;
mod source;
mod token;

pub use algorithm::Algorithm;
pub use authorizer::JwtAuthorizer;
pub use config::JwtConfig;
pub use key_set::KeySetError;
pub use refused::TokenError;
pub use roles::Role;
pub use source::{KeySource, SourceError};

#[doc(no_inline)]
pub use peeklock_reach::certificates;
