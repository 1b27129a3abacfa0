//! Ends a link in order.

use peeklock_core::command::LinkEnd;
use peeklock_link::Closing;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct Detach {
        link: u32,
        /// Releases the locks at once and counts them, as the loss of the connection does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release: bool,
    }
}

impl Conversation {
    pub(super) fn detach(&mut self, asked: &Asked, detach: &Detach) -> Done {
        let Detach { link: number, release } = *detach;
        self.link(number)?;
        let end = if release { LinkEnd::Broken } else { LinkEnd::Orderly };
        self.engine.links.detach(number, Closing { id: asked.id, end });
        Ok(())
    }
}
