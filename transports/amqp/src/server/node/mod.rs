//! Nodes that links can be attached to; each kind has its own file. The events of a conversation
//! are dispatched to the node of their link.

mod browser;
mod management;
mod receiver;
mod reply;
mod request;
mod sender;
mod tokens;

pub(super) use self::browser::Browser;
pub(super) use self::management::{
    CommandPlan, ManagementAnswer, ManagementResult, PendingManagement,
};
#[cfg(feature = "testing")]
pub use self::management::{decode_all, operations};
pub(super) use self::receiver::{LostSession, ReceiverNode, WaitingDelivery, return_at};
pub(super) use self::reply::Replies;
pub(super) use self::request::{
    NodeRequest, REQUEST_CREDIT, Requests, TOKENS_NODE, management_node,
};
pub(super) use self::sender::SenderNode;

use std::borrow::Cow;

use peeklock_core::path::Address;
use percent_encoding::percent_decode_str;

use crate::link::Assembly;
use crate::performative::{Attach, Role};
use crate::terminus::Target;

/// Node of a link.
pub(super) enum Node {
    /// The client sends messages.
    Sender(SenderNode),
    /// The client receives messages.
    Receiver(Box<ReceiverNode>),
    /// The client browses messages.
    Browser(Box<Browser>),
    /// The client declares and ends transactions.
    Coordinator(Assembly),
    /// The client sends requests.
    Requests(Box<Requests>),
    /// The client receives replies.
    Replies(Box<Replies>),
}

impl Node {
    /// Received bytes of an incomplete message.
    pub(super) fn assembling_bytes(&self) -> u64 {
        match self {
            Self::Sender(sender) => sender.assembly.len() as u64,
            Self::Coordinator(assembly) => assembly.len() as u64,
            Self::Requests(requests) => requests.assembly.len() as u64,
            Self::Receiver(_) | Self::Browser(_) | Self::Replies(_) => 0,
        }
    }

    /// Path of the entity that requests on this link address.
    pub(in crate::server) fn path(&self) -> Option<&str> {
        match self {
            Self::Requests(requests) => Some(&requests.manager()?.path),
            Self::Sender(_)
            | Self::Coordinator(_)
            | Self::Receiver(_)
            | Self::Browser(_)
            | Self::Replies(_) => None,
        }
    }

    /// Returns whether messages are sent to the client on the link.
    pub(super) const fn is_sent_on(&self) -> bool {
        matches!(self, Self::Receiver(_) | Self::Browser(_) | Self::Replies(_))
    }

    /// Returns whether something waits for the client's credit or windows.
    pub(super) fn has_waiting(&self) -> bool {
        match self {
            Self::Receiver(receiver) => !receiver.waiting.is_empty(),
            Self::Browser(browser) => browser.has_waiting(),
            Self::Replies(replies) => replies.has_waiting(),
            Self::Sender(_) | Self::Coordinator(_) | Self::Requests(_) => false,
        }
    }

    /// Number of replies that wait for the client's credit or windows.
    fn waiting_replies(&self) -> usize {
        match self {
            Self::Replies(replies) => replies.waiting_count(),
            Self::Sender(_)
            | Self::Coordinator(_)
            | Self::Requests(_)
            | Self::Receiver(_)
            | Self::Browser(_) => 0,
        }
    }

    /// Drops incomplete messages and waiting requests.
    pub(super) fn forget_arriving(&mut self) {
        match self {
            Self::Sender(sender) => sender.assembly = Assembly::default(),
            Self::Coordinator(assembly) => *assembly = Assembly::default(),
            Self::Requests(requests) => requests.forget_arriving(),
            Self::Receiver(_) | Self::Browser(_) | Self::Replies(_) => {}
        }
    }
}

/// Returns whether the link is for putting tokens or for the replies to that.
pub(super) fn is_for_tokens(attach: &Attach) -> bool {
    matches!(Address::parse(&decoded(address_of(attach))), Ok(Address::Tokens))
}

/// Returns the address that the client wrote; empty for a coordinator or a missing address.
pub(super) fn address_of(attach: &Attach) -> &str {
    let address = match attach.role {
        Role::Sender => attach.target.as_ref().and_then(Target::address),
        Role::Receiver => attach.source.as_ref().and_then(|source| source.address()),
    };
    address.unwrap_or_default()
}

/// Decodes a percent-encoded address. An address that does not decode to text is returned
/// unchanged.
pub(super) fn decoded(address: &str) -> Cow<'_, str> {
    percent_decode_str(address).decode_utf8().unwrap_or(Cow::Borrowed(address))
}
