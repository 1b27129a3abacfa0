//! The other end: what loads and tests that speak AMQP have in common. It has no socket either: bytes that came
//! are put into [`Frames`], and what is to be written is taken out of them.
//!
//! ```text
//!   bytes ─► Frames::hear ─► Performative ─► Session::heard     windows
//!   bytes ◄─ Frames::say, transfer ◄─ Session::transfer, flow   windows and ids
//!                                       ◄─ link                 what attaches
//!                                       ◄─ request, Reply       what is asked of a management node
//! ```
//!
//! Whoever drives it says what it likes in any order: nothing here knows what is allowed, but for the windows
//! of a session, which no client could send without.

mod delivered;
mod frames;
pub mod link;
mod parts;
pub mod request;
mod session;

pub use self::delivered::Delivered;
pub use self::frames::Frames;
pub use self::parts::Parts;
pub use self::request::Reply;
pub use self::session::{Outgoing, Session};
