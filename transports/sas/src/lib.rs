//! Connection strings, and the shared access signatures that clients make with the keys in them (spec file 18).
//!
//! [`ConnectionString`] names a broker, and a key of a policy or a token. [`sign`] makes a
//! token with a key, and [`is_signed_with`] checks its signature. This crate lies below the transports and below the
//! authorizer `peeklock-auth-sas`, which decides about the rights of a token.

mod connection_string;
mod signature;

pub use connection_string::{ConnectionString, Credential, Endpoint};
pub use signature::{LATEST_SECONDS, SCHEME, is_signed_with, sign};
