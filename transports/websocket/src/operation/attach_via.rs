//! Links whose messages are stored at one entity and moved on to another by the broker (VIA-01).

use peeklock_core::command::ReceiveMode;
use peeklock_core::contract::Action;
use peeklock_link::Role;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct AttachVia {
        /// Chosen by the client, not in use.
        link: u32,
        /// The queue or topic on the way.
        path: String,
        /// The queue or topic that messages are for.
        destination: String,
    }
}

impl Conversation {
    /// Takes the Send right on both; either that is not there is told now (VIA-02).
    pub(super) async fn attach_via(&mut self, asked: Asked, attach: AttachVia) -> Done {
        let AttachVia { link: number, path, destination } = attach;
        self.refuse_link(number)?;
        let entity = self.engine.access.entity(&path, Action::SendVia).await?;
        let (entity, destination) =
            self.engine.access.transfer_destination(&destination, &entity).await?;
        let path = entity.path().into();
        self.engine.links.attach(number, entity, path, Role::Sender, ReceiveMode::PeekLock);
        self.engine.links.send_on(number, destination);
        self.done(&asked)
    }
}
