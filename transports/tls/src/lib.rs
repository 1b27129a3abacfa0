//! TLS by rustls, once for all listeners and clients of a broker.
//!
//! ```text
//!  files ─► Tls ──► Acceptor ─► accept(socket) ─► Stream, with the identity of a client's certificate
//!    ▲       │        one for each listener         plain or TLS, to whom reads it the same
//!    └ Watch ┘ reads changed files again; a bad pair leaves the one in use
//!
//!  Roots ─► ClientTls ─► connect(host, socket)       who the other side is, or why it is not trusted
//! ```
//!
//! | File | What |
//! |---|---|
//! | `config.rs` | what an operator sets |
//! | `files.rs` | certificates and keys in PEM form |
//! | `certificate.rs` | what a certificate says: subject, names, times |
//! | `source.rs`, `watch.rs` | the pair in use, and the next one |
//! | `standing.rs` | when it is said that a certificate ends |
//! | `acceptor.rs`, `handshakes.rs` | the handshake, bounded in time and number |
//! | `stream.rs` | what a listener reads and writes |
//! | `client.rs` | the side of a client |
//! | `authority.rs` | an authority for development (feature `authority`) |
//!
//! Absent on purpose: a way to switch verification off, and what a certificate's subject may do, which is an
//! [`Authorizer`](peeklock_core::contract::Authorizer)'s to say.

mod acceptor;
#[cfg(feature = "authority")]
pub mod authority;
mod certificate;
mod client;
mod config;
mod files;
mod handshakes;
mod lines;
mod source;
mod standing;
mod stream;
mod watch;

pub use acceptor::{Acceptor, Protocol, Refused};
pub use certificate::{Certificate, CertificateError};
pub use client::{ClientTls, ConnectError, client_config};
pub use config::{ClientCertificates, TlsConfig};
pub use files::{File, FileError, certificates};
pub use handshakes::{Handshake, Handshakes};
pub use source::{Reloaded, Tls};
pub use standing::Standing;
pub use stream::Stream;
#[doc(no_inline)]
pub use tokio_rustls::rustls::pki_types::CertificateDer;
pub use watch::Watch;
