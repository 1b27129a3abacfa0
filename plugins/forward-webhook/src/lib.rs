//! Forwarder to webhooks: each message is posted as a CloudEvent 1.0 and leaves the broker once the
//! receiver has answered 2xx.
//!
//! ```
//! # mod peeklock { pub use peeklock_core::*; pub use peeklock_forward_webhook as forward_webhook; }
//! use peeklock::contract::Forwarder as _;
//! use peeklock::forward_webhook::{WebhookConfig, WebhookForwarder};
//!
//! let forwarder = WebhookForwarder::new(WebhookConfig::default());
//! // `ForwardTo` of a queue: a public URL with the prefix `webhook+`.
//! assert!(forwarder.check("webhook+https://hooks.example.com/orders?mode=structured").is_ok());
//! // Internal hosts must be permitted by the operator.
//! assert!(forwarder.check("webhook+https://169.254.169.254/latest/meta-data").is_err());
//! ```
//!
//! `docs/reference/forwarding.md` is the user documentation. The files, in the order in which a
//! message passes them:
//!
//! | File | Content |
//! |---|---|
//! | `config.rs` | settings, including signing secrets |
//! | `target.rs` | parsing of a destination: URL, mode, time limits |
//! | `event.rs` | conversion to a CloudEvent, in binary and in structured mode |
//! | `signature.rs` | the headers of Standard Webhooks |
//! | `connection.rs` | HTTP over a connection; `peeklock-reach` decides which hosts are permitted |
//! | `verdict.rs` | verdicts for the receiver's answers |
//! | `route.rs` | posts messages one after another |
//!
//! Deliberately absent: redirects, cookies, proxies, compression and HTTP/2. The receiver's answer,
//! except its status, is never shown, so that a webhook cannot be used to read from the broker's
//! network.

mod config;
mod connection;
mod event;
mod route;
mod signature;
mod target;
mod verdict;

pub use config::{SecretError, WebhookConfig};
#[doc(no_inline)]
pub use peeklock_reach::{HostError, HostPattern, Place, Reach, certificates};
pub use route::WebhookForwarder;
pub use signature::Secret;
