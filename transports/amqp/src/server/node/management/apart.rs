//! Requests that take more than one command: lists, and changes of rules. They are carried out apart from the connection.

use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::permits::Permit;
use peeklock_link::{Finished, Protocol as _, Size, Working};

use super::super::reply::Asker;
use super::ManagementAnswer;
use crate::server::conversation::{Conversation, Expect};

/// The result of such a request.
pub(in crate::server) type Answered = Result<ManagementAnswer, BrokerError>;

impl Conversation {
    /// Carries a request out apart; until it is answered it counts as pending.
    pub(in crate::server) fn ask_apart(
        &mut self,
        asker: Asker,
        asking: Working<Answered>,
        permit: Permit,
    ) {
        let Some(asker) = self.still_waits(asker) else { return };
        let permit = Arc::new(permit);
        let paid = Some(Arc::clone(&permit));
        let slot = self.engine.links.ask_of("".into(), 0, paid, Expect::Apart(asker));
        self.engine.apart.push(Size::Long, slot, permit, Box::new(|| asking));
        self.start_apart();
    }

    /// Answers a request that was carried out apart.
    pub(in crate::server) fn answer_apart(&mut self, finished: Finished<Answered>) {
        let mut held_bytes = 0;
        if let Some((bytes, room)) = finished.paid {
            self.engine.account.hold_paid(bytes, room);
            held_bytes = bytes;
        }
        if let Some(pending) = self.engine.links.answered(finished.slot)
            && let Expect::Apart(asker) = pending.expect
        {
            let answer = finished.result.map_err(|error| crate::server::error::of(&error));
            self.answer_managed(asker, answer);
        }
        // Not before: the reply is counted by now, and keeps the room that it had.
        self.engine.account.release(held_bytes);
    }
}
