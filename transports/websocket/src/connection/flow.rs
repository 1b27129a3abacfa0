//! How far a receiver may be sent: credit and draining.

use super::Conversation;
use super::inbound::{Asked, Done};
use crate::frame::{Credit, Drained, Notice};

impl Conversation {
    pub(super) fn credit(&mut self, asked: &Asked, credit: &Credit) -> Done {
        let Credit { link: number, up_to } = *credit;
        self.receiver(number)?;
        self.links.credit(number, up_to);
        self.done(asked);
        Ok(())
    }

    pub(super) fn drain(&mut self, asked: Asked, number: u32) -> Done {
        self.receiver(number)?;
        if self.links.drain(number, asked.id, Some(asked.permit))?.is_some() {
            self.say(asked.id, Notice::Drained(Drained { unused: 0 }));
        }
        Ok(())
    }
}
