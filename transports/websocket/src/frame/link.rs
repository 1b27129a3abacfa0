//! Links: attaching, credit, and what is pushed over them.

use peeklock_core::command::ReceiveMode;
use serde::{Deserialize, Serialize};

use super::message::Delivered;
use super::wire::{Reader, Wire, wire};
use super::{WireError, bodies, wire_choice};
use crate::error::FrameError;

/// What a link is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// How received messages leave the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    #[default]
    PeekLock,
    ReceiveAndDelete,
}

wire_choice!(Role, "role", [Sender, Receiver]);
wire_choice!(Mode, "mode", [PeekLock, ReceiveAndDelete]);

impl From<Role> for peeklock_link::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Sender => Self::Sender,
            Role::Receiver => Self::Receiver,
        }
    }
}

impl From<Mode> for ReceiveMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::PeekLock => Self::PeekLock,
            Mode::ReceiveAndDelete => Self::ReceiveAndDelete,
        }
    }
}

impl From<ReceiveMode> for Mode {
    fn from(mode: ReceiveMode) -> Self {
        match mode {
            ReceiveMode::PeekLock => Self::PeekLock,
            ReceiveMode::ReceiveAndDelete => Self::ReceiveAndDelete,
        }
    }
}

bodies! {
    struct Attach {
        /// Chosen by the client, not in use.
        link: u32,
        path: String,
        role: Role,
        /// Of a receiver.
        #[serde(default)]
        mode: Mode,
        /// The first credit of a receiver; without it, it gets nothing pushed.
        #[serde(skip_serializing_if = "Option::is_none")]
        credit: Option<u32>,
    }

    struct LinkOnly {
        link: u32,
    }

    struct Detach {
        link: u32,
        /// Releases the locks at once and counts them, as the loss of the connection does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release: bool,
    }

    struct Credit {
        link: u32,
        /// The highest delivery number that may be sent.
        up_to: u32,
    }

    struct Drained {
        unused: u32,
    }

    struct Deliveries {
        link: u32,
        /// The number of the first message; the others follow.
        first: u32,
        messages: Vec<Delivered>,
    }

    struct Detached {
        link: u32,
        error: WireError,
    }
}
