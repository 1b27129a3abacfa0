//! Gives back credit that cannot be used at once.

use super::{LinkOnly, Notice};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;

bodies! {
    struct Drained {
        unused: u32,
    }
}

impl Conversation {
    pub(super) fn drain(&mut self, asked: Asked, only: &LinkOnly) -> Done {
        self.receiver(only.link)?;
        if self.engine.links.drain(only.link, asked.id, Some(asked.permit))?.is_some() {
            self.say(asked.id, Notice::Drained(Drained { unused: 0 }));
        }
        Ok(())
    }
}
