//! What links are attached to, one file each.

mod inlet;
mod outlet;
mod reply;
mod request;
mod tokens;

pub(super) use self::inlet::{Inbound, Inlet};
pub(super) use self::outlet::{Outlet, Waiting};
pub(super) use self::reply::Replies;
pub(super) use self::request::{Request, Requests};

/// What a link is attached to.
pub(super) enum Node {
    /// The client sends messages.
    Inlet(Inlet),
    /// The client receives messages.
    Outlet(Box<Outlet>),
    /// The client asks something.
    Requests(Requests),
    /// The client is answered.
    Replies(Replies),
}
