//! Forwards messages to webhooks: each is posted as a CloudEvent 1.0 and leaves the broker once the
//! receiver has answered 2xx.
//!
//! ```
//! # mod peeklock { pub use peeklock_core::*; pub use peeklock_forward_webhook as forward_webhook; }
//! use peeklock::contract::Forwarder as _;
//! use peeklock::forward_webhook::{WebhookConfig, WebhookForwarder};
//!
//! let forwarder = WebhookForwarder::new(WebhookConfig::default());
//! // `ForwardTo` of a queue: as a public URL with `webhook+` in front.
//! assert!(forwarder.check("webhook+https://hooks.example.com/orders?mode=structured").is_ok());
//! // Only hosts that the operator has named may be internal ones.
//! assert!(forwarder.check("webhook+https://169.254.169.254/latest/meta-data").is_err());
//! ```
//!
//! `docs/reference/forwarding.md` is what a user follows. The files, in the order in which a message meets them:
//!
//! | File | What |
//! |---|---|
//! | `config.rs` | what an operator sets, signing secrets among it |
//! | `target.rs` | what a destination says: URL, mode, times |
//! | `event.rs` | the message as a CloudEvent, in binary and in structured mode |
//! | `signature.rs` | the headers of Standard Webhooks |
//! | `connection.rs` | HTTP over a connection; `peeklock-reach` says where it may lead to |
//! | `verdict.rs` | what an answer means for the message |
//! | `route.rs` | one message after the other |
//!
//! Absent on purpose: redirects, cookies, proxies, compression, HTTP/2; and what a receiver answers beside
//! its status, which nobody is shown, so that a webhook cannot be used to read from the network of the
//! broker.

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
