//! Looking at messages without receiving them.

use peeklock_core::command::Command;
use peeklock_core::ids::SequenceNumber;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct Peek {
        link: u32,
        from: u64,
        max_count: u32,
    }

    struct PeekSession {
        link: u32,
        session_id: String,
        from: u64,
        max_count: u32,
    }
}

impl Conversation {
    pub(super) fn peek(&mut self, asked: Asked, peek: &Peek) -> Done {
        let (from, count_max) = (SequenceNumber(peek.from), peek.max_count);
        let command = match self.receiver(peek.link)?.session() {
            Some(session) => Command::PeekSession { session: session.into(), from, count_max },
            None => Command::Peek { from, count_max },
        };
        self.look(asked, peek.link, command)
    }

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
