//! AMQP 1.0 for Peeklock: the protocol, without a socket, a clock or a broker. Bytes go in, events and
//! bytes come out, and a test is a script of bytes. The listener, which answers events with
//! a broker, is `server`, behind the feature of that name. The other end is the crate `peeklock-amqp-testing`.
//!
//! ```text
//!   bytes ─► Frame::split ─► Performative::read ─► Connection ─► session ─► link ─► Event
//!             frame           performative/         connection/   session/   link/
//!                             sasl, state, terminus
//!   bytes ◄─ Output ◄──────── Wire ◄──────────────── accept, refuse, grant, send, answer, dispose, detach …
//!             frame           connection/
//! ```
//!
//! The way of a frame:
//!
//! 1. [`Frame::split`](frame::Frame::split) cuts it off the bytes that came, without copying, after its
//!    size was judged.
//! 2. [`Performative::read`](performative::Performative::read) reads its fields, in the order of the
//!    standard, whose values are those of `peeklock_words::amqp`, the codec of content too.
//!    What is only passed on stays as it is encoded ([`codec::value`]).
//! 3. [`Connection::next_event`](connection::Connection::next_event) gives it to the machine that it is
//!    for. The files of `connection/`, `session/` and `link/` are named for what they do: `greeting`
//!    and `idle`, `deliveries`, `attach`, `incoming`, `outgoing`.
//! 4. What is to be known is an [`Event`](connection::Event). Whoever drives the connection answers by its
//!    methods, which write frames; [`Connection::output`](connection::Connection::output) is what
//!    to write, with messages in the pieces they are kept in.
//! 5. Messages are content as it is stored ([`message`]): sections that the broker owns are put before
//!    bytes that are neither read nor copied.
//!
//! Bounds: one frame is looked at a time, and none is while too much waits to be written; parts of
//! messages are handed out as they come; channels, handles, links, unsettled and unanswered
//! deliveries, and frames of both directions have limits ([`Config`](connection::Config)). Who breaks the
//! rules ends as the standard says: a link, a session or the connection, with the error ([`error`]).
//!
//! Absent on purpose: what addresses, filters, outcomes and management requests mean; who may do what; time,
//! which is passed in, counted from when the connection was accepted.

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
