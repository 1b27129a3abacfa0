//! Opens links, including links that send to one entity through another (VIA-01), and ends them in
//! order. `operation.rs` calls it.

use peeklock_core::command::{LinkEnd, ReceiveMode};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_link::PendingClose;
use serde::{Deserialize, Serialize};

use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::error::FrameError;
use crate::frame::wire::{Reader, Wire};
use crate::frame::{bodies, wire_choice};

/// Direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// Mode of a receiver: how received messages leave the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Mode {
    #[default]
    PeekLock,
    ReceiveAndDelete,
}

wire_choice!(Role, "role", [Sender, Receiver]);
wire_choice!(Mode, "mode", [PeekLock, ReceiveAndDelete]);

impl From<Role> for peeklock_link::LinkRole {
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
        /// Chosen by the client; must not be in use.
        link: u32,
        path: String,
        role: Role,
        /// Only for a receiver.
        #[serde(default)]
        mode: Mode,
        /// First credit of a receiver; without it, nothing is pushed.
        #[serde(skip_serializing_if = "Option::is_none")]
        credit: Option<u32>,
    }

    struct LinkOnly {
        link: u32,
    }
}

impl Conversation {
    pub(super) async fn attach(&mut self, admitted: AdmittedRequest, attach: Attach) -> Done {
        let Attach { link: number, path, role, mode, credit } = attach;
        self.refuse_link(number)?;
        let purpose = match role {
            Role::Sender => Action::Send,
            Role::Receiver => Action::Receive,
        };
        let entity = self.engine.access.entity(&path, purpose).await?;
        let path = entity.path().into();
        self.engine.links.attach(number, entity, path, role.into(), mode.into());
        match credit {
            Some(credit) if role == Role::Receiver => {
                self.engine.links.attach_flow(number, credit.into(), admitted.id, admitted.permit);
            }
            Some(_) | None => self.done(&admitted)?,
        }
        Ok(())
    }

    /// Checks that the number of a new link is free, and that the connection may have another link.
    pub(super) fn refuse_link(&self, number: u32) -> Result<(), Rejection> {
        if self.engine.links.get(number).is_some() {
            let detail = format!("link {number} is already attached");
            return Err(Rejection::invalid_operation(detail));
        }
        let count_max = self.site.config.link_count_max;
        if self.engine.links.len() >= count_max {
            let detail = format!(
                "the connection already has {count_max} links, the limit; use another connection"
            );
            return Err(Rejection::quota_exceeded(detail));
        }
        Ok(())
    }
}

bodies! {
    struct AttachVia {
        /// Chosen by the client; must not be in use.
        link: u32,
        /// Queue or topic that messages pass.
        path: String,
        /// Queue or topic that receives the messages.
        destination: String,
    }
}

impl Conversation {
    /// Requires the Send right on both entities, and fails at once if it is missing (VIA-02).
    pub(super) async fn attach_via(
        &mut self,
        admitted: AdmittedRequest,
        attach: AttachVia,
    ) -> Done {
        let AttachVia { link: number, path, destination } = attach;
        self.refuse_link(number)?;
        let entity = self.engine.access.entity(&path, Action::SendVia).await?;
        let (entity, destination) =
            self.engine.access.transfer_destination(&destination, &entity).await?;
        let path = entity.path().into();
        self.engine.links.attach(number, entity, path, Role::Sender.into(), ReceiveMode::PeekLock);
        self.engine.links.send_via(number, destination);
        self.done(&admitted)
    }
}

bodies! {
    struct Detach {
        link: u32,
        /// Releases the locks at once and increments the delivery counts, like the loss of the
        /// connection.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release: bool,
    }
}

impl Conversation {
    pub(super) fn detach(&mut self, admitted: &AdmittedRequest, detach: &Detach) -> Done {
        let Detach { link: number, release } = *detach;
        self.link(number)?;
        let end = if release { LinkEnd::Broken } else { LinkEnd::Orderly };
        self.engine.links.detach(number, PendingClose { id: admitted.id, end });
        Ok(())
    }
}
