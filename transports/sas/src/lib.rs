//! Connection strings, and the shared access signatures that clients make with the keys in them
//! (spec file 18).
//!
//! [`ConnectionString`] (`connection_string`) names a broker, and a key of a policy or a token.
//! [`sign`] (`signature`) makes a token with a key, and [`is_signed_with`] checks its signature. The
//! transports, the clients and the authorizer `peeklock-auth-sas` use this crate; only the
//! authorizer decides about the rights of a token.

mod connection_string;
mod signature;

pub use connection_string::{ConnectionString, Credential, Endpoint};
pub use signature::{LATEST_SECONDS, SCHEME, is_signed_with, sign};
