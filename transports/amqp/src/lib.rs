//! AMQP 1.0 for Peeklock: the protocol, without a socket, a clock or a broker. Bytes go in, events
//! and bytes come out, so a test is a script of bytes. The feature `server` adds the listener,
//! which answers the events with a broker. Clients for tests and loads, and the entry points of the
//! fuzz targets, are in the crate `peeklock-amqp-testing`.
//!
//! ```text
//!   bytes ─► Frame::split ─► Performative::read ─► Connection ─► session ─► link ─► Event
//!             frame           performative/         connection/   session/   link/
//!                             sasl, state, terminus
//!   bytes ◄─ Output ◄──────── Wire ◄──────────────── accept, refuse, grant, send, …
//!             frame           connection/
//! ```
//!
//! Modules in reading order:
//!
//! | Module | Content |
//! |---|---|
//! | [`codec`] | described lists field by field, and values that stay encoded |
//! | [`error`] | errors on the wire and their conditions |
//! | [`frame`] | protocol headers, frames, the bytes to be written |
//! | [`performative`], [`state`], [`terminus`], [`sasl`] | the bodies of frames and their parts |
//! | [`message`] | content to messages of AMQP and back |
//! | [`connection`] | the machine of a connection; `session` and [`link`] are its parts |
//! | [`serial`] | comparison of counters that wrap |
//! | `server` | the listener: connections of this crate on a broker |
//!
//! A frame passes these steps:
//!
//! 1. [`Frame::split`](frame::Frame::split) checks its size and cuts it off the received bytes,
//!    without copying.
//! 2. [`Performative::read`](performative::Performative::read) reads its fields in the order of the
//!    standard. `peeklock_words::amqp` decodes the values, as it does for content.
//!    Values that are only passed on stay encoded ([`codec::value`]).
//! 3. [`Connection::next_event`](connection::Connection::next_event) passes it to the session or
//!    link that it addresses. The files of `connection/`, `session/` and `link/` are named for
//!    their task: `greeting`, `idle`, `deliveries`, `attach`, `incoming`, `outgoing`.
//! 4. The connection reports an [`Event`](connection::Event). The caller answers with methods of
//!    the connection, which write frames. [`Connection::output`](connection::Connection::output)
//!    returns the bytes to be written, with messages in the pieces in which they are stored.
//! 5. Messages are stored content ([`message`]): the broker's own sections are put before bytes
//!    that are neither read nor copied.
//!
//! Bounds: the connection handles one frame at a time, and none while too many bytes wait to be
//! written. Parts of messages are reported as they arrive. Channels, handles, links, unsettled and
//! unanswered deliveries, and frames of both directions have limits
//! ([`Config`](connection::Config)). If a peer breaks a rule, the link, the session or the
//! connection ends with the [`error`] that the standard names.
//!
//! Absent on purpose: the meaning of addresses, filters, outcomes and management requests; rights;
//! a clock. The caller passes in the time since the connection was accepted.

pub mod codec;
pub mod connection;
pub mod error;
pub mod frame;
pub mod link;
pub mod message;
pub mod performative;
pub mod sasl;
pub mod serial;
#[cfg(feature = "server")]
pub mod server;
mod session;
pub mod state;
pub mod terminus;

#[cfg(test)]
mod tests;
