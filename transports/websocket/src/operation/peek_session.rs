//! Looks at the messages of a session.

use peeklock_core::command::Command;
use peeklock_core::ids::SequenceNumber;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct PeekSession {
        link: u32,
        session_id: String,
        from: u64,
        max_count: u32,
    }
}

impl Conversation {
    /// Looks at the messages of any session, whoever holds it (PEK-07).
    pub(super) fn peek_session(&mut self, asked: Asked, peek: PeekSession) -> Done {
        self.receiver(peek.link)?;
        let command = Command::PeekSession {
            session: peek.session_id.into_boxed_str(),
            from: SequenceNumber(peek.from),
            count_max: peek.max_count,
        };
        self.look(asked, peek.link, command)
    }
}
