//! Looks at messages without receiving them.

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
}
