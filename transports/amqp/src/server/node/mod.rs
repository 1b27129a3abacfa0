//! What links are attached to, one file each.

mod browser;
mod inlet;
mod management;
mod outlet;
mod reply;
mod request;
mod tokens;

pub(super) use self::browser::Browser;
pub(super) use self::inlet::Inlet;
pub(super) use self::management::{Answered, ManagementAnswer, Managing, Plan};
#[cfg(feature = "testing")]
pub use self::management::{operations, understand};
pub(super) use self::outlet::{Lapse, Outlet, Waiting, return_at};
pub(super) use self::reply::Replies;
pub(super) use self::request::{
    NodeRequest, REQUEST_CREDIT, Requests, TOKENS_NODE, management_node,
};

use std::borrow::Cow;

use peeklock_core::path::Address;
use percent_encoding::percent_decode_str;

use crate::link::Assembly;
use crate::performative::{Attach, Role};
use crate::terminus::Target;

/// What a link is attached to.
pub(super) enum Node {
    /// The client sends messages.
    Inlet(Inlet),
    /// The client receives messages.
    Outlet(Box<Outlet>),
    /// The client looks at messages.
    Browser(Box<Browser>),
    /// The client declares and ends transactions.
    Coordinator(Assembly),
    /// The client asks something.
    Requests(Box<Requests>),
    /// The client is answered.
    Replies(Box<Replies>),
}

impl Node {
    /// What is here of a message that has not arrived whole.
    pub(super) fn assembling_bytes(&self) -> u64 {
        match self {
            Self::Inlet(inlet) => inlet.assembly.len() as u64,
            Self::Coordinator(assembly) => assembly.len() as u64,
            Self::Requests(requests) => requests.assembly.len() as u64,
            Self::Outlet(_) | Self::Browser(_) | Self::Replies(_) => 0,
        }
    }

    /// The path of the entity that is asked by requests.
    pub(in crate::server) fn path(&self) -> Option<&str> {
        match self {
            Self::Requests(requests) => Some(&requests.manager()?.path),
            Self::Inlet(_)
            | Self::Coordinator(_)
            | Self::Outlet(_)
            | Self::Browser(_)
            | Self::Replies(_) => None,
        }
    }

    /// Whether the client is sent something on its link.
    pub(super) const fn is_sent_on(&self) -> bool {
        matches!(self, Self::Outlet(_) | Self::Browser(_) | Self::Replies(_))
    }

    /// Whether something waits until the client lets it be sent.
    pub(super) fn has_waiting(&self) -> bool {
        match self {
            Self::Outlet(outlet) => !outlet.waiting.is_empty(),
            Self::Browser(browser) => browser.has_waiting(),
            Self::Replies(replies) => replies.has_waiting(),
            Self::Inlet(_) | Self::Coordinator(_) | Self::Requests(_) => false,
        }
    }

    /// How many replies wait until the client lets them be sent.
    fn waiting_replies(&self) -> usize {
        match self {
            Self::Replies(replies) => replies.waiting_count(),
            Self::Inlet(_)
            | Self::Coordinator(_)
            | Self::Requests(_)
            | Self::Outlet(_)
            | Self::Browser(_) => 0,
        }
    }

    /// Forgets what has not arrived whole, and what was asked and waits.
    pub(super) fn forget_arriving(&mut self) {
        match self {
            Self::Inlet(inlet) => inlet.assembly = Assembly::default(),
            Self::Coordinator(assembly) => *assembly = Assembly::default(),
            Self::Requests(requests) => requests.forget_arriving(),
            Self::Outlet(_) | Self::Browser(_) | Self::Replies(_) => {}
        }
    }
}

/// Whether a link is attached at which its client shows who it is.
pub(super) fn is_for_tokens(attach: &Attach) -> bool {
    matches!(Address::parse(&decoded(address_of(attach))), Ok(Address::Tokens))
}

/// The address that the client wrote; of the coordinator, and where it wrote none, that of nothing.
pub(super) fn address_of(attach: &Attach) -> &str {
    let address = match attach.role {
        Role::Sender => attach.target.as_ref().and_then(Target::address),
        Role::Receiver => attach.source.as_ref().and_then(|source| source.address()),
    };
    address.unwrap_or_default()
}

/// An address may be percent-encoded, too. One that makes no text when it is decoded stands for itself.
pub(super) fn decoded(address: &str) -> Cow<'_, str> {
    percent_decode_str(address).decode_utf8().unwrap_or(Cow::Borrowed(address))
}
