//! TLS with rustls, for all listeners and clients of a broker.
//!
//! ```text
//!  files ─► Tls ──► Acceptor ─► accept(socket) ─► Stream, with the identity of a client's certificate
//!    ▲       │        one for each listener         plain or TLS, to whom reads it the same
//!    └ Watch ┘ reads changed files again; a bad pair leaves the one in use
//!
//!  Roots ─► ClientTls ─► connect(host, socket)       who the other side is, or why it is not trusted
//! ```
//!
//! | File | Content |
//! |---|---|
//! | `config.rs` | settings |
//! | `files.rs` | reading of certificates and keys in PEM form |
//! | `certificate.rs` | content of a certificate: subject, names, validity |
//! | `source.rs`, `watch.rs` | the certificate and key in use, and their replacement |
//! | `standing.rs` | validity of a certificate, and when it is logged |
//! | `acceptor.rs` | the handshake, limited in time and number |
//! | `lines.rs` | limit on log lines that clients can cause |
//! | `stream.rs` | the stream that a listener reads and writes |
//! | `client.rs` | the client side |
//! | `place.rs` | address of a broker from a URL |
//! | `authority.rs` | a development authority (feature `authority`) |
//!
//! Deliberately absent: disabling verification, and rights of a certificate's subject, which an
//! [`Authorizer`](peeklock_core::contract::Authorizer) decides.

mod acceptor;
#[cfg(feature = "authority")]
pub mod authority;
mod certificate;
mod client;
mod config;
mod files;
mod lines;
pub mod place;
mod source;
mod standing;
mod stream;
mod watch;

pub use acceptor::{Acceptor, HandshakeError, Protocol};
pub use certificate::{Certificate, CertificateError};
pub use client::{ClientTls, ConnectError, client_config};
pub use config::{ClientCertificates, TlsConfig};
pub use files::{File, FileError, certificates};
pub use source::{Reloaded, Tls};
pub use standing::Validity;
pub use stream::Stream;
#[doc(no_inline)]
pub use tokio_rustls::rustls::pki_types::CertificateDer;
pub use watch::Watch;
