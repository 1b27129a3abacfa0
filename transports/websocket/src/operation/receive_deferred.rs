//! Receives deferred messages by number, all or none.

use peeklock_core::command::{Command, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_link::Source;

use super::Numbered;
use crate::connection::{Asked, Conversation, Done};

impl Conversation {
    pub(super) fn receive_deferred(&mut self, asked: Asked, numbered: Numbered) -> Done {
        if asked.id == 0 {
            let detail = "receiveDeferred needs an id for its answer";
            return Err(Rejection::argument(detail).into());
        }
        let link = self.receiver(numbered.link)?;
        let number = numbered.link;
        let bytes = self.numbered_bytes(numbered.count());
        let sequences: Vec<SequenceNumber> = numbered.into();
        let command = match link.source {
            Source::Session(_) => link.in_session(SessionCommand::ReceiveDeferred { sequences }),
            Source::Queue | Source::Awaited => {
                Command::ReceiveDeferred { mode: link.mode, sequences, holder: Some(link.receiver) }
            }
        };
        let Asked { id, permit } = asked;
        self.engine.links.receive_numbered(number, command, bytes, id, Some(permit));
        Ok(())
    }
}
