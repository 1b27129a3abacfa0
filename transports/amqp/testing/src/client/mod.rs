//! The client end of AMQP, which load generators and tests share. It has no socket: the driver puts
//! received bytes into [`Frames`] and takes output from there.
//!
//! ```text
//!   bytes ─► Frames::hear ─► Performative ─► Session::heard     windows
//!   bytes ◄─ Frames::say, transfer ◄─ Session::transfer, flow   windows and ids
//!                                       ◄─ link                 attaches of links
//!                                       ◄─ request, Reply       requests to management nodes
//! ```
//!
//! The driver may send any performative in any order: this module knows no rules except the windows
//! of a session, without which no client could send.

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
