//! What is asked beside the connection: lists, and changes of rules, which are no single commands. Few at a
//! time, the others in order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::permits::{HeldTurn, Permit};
use peeklock_link::{LONG_MAX, Mail, Paid, Size, do_apart};

use super::super::reply::Asker;
use super::ManagementAnswer;
use crate::server::conversation::{Conversation, Expect};

/// Something that is asked, and comes to an answer, with the turn at something large that this has taken.
pub(in crate::server) type Asking =
    Pin<Box<dyn Future<Output = (Option<HeldTurn>, Result<ManagementAnswer, BrokerError>)> + Send>>;

/// One that may be begun.
pub(in crate::server) struct ToAsk {
    slot: usize,
    asking: Asking,
    /// The room of what has asked for it, as long as anything of that is there.
    permit: Arc<Permit>,
}

/// The answer to something that was asked apart.
pub(in crate::server) struct Told {
    slot: usize,
    answer: Result<ManagementAnswer, BrokerError>,
    paid: Paid,
}

impl Conversation {
    /// Asks something apart, when few others are; until it is answered it counts as asked.
    pub(in crate::server) fn ask_apart(&mut self, asker: Asker, asking: Asking, permit: Permit) {
        let Some(asker) = self.still_waits(asker) else { return };
        let expect = Expect::Apart(asker);
        let permit = Arc::new(permit);
        let slot = self.links.ask_of("".into(), 0, Some(Arc::clone(&permit)), expect);
        self.apart.push(Size::Long, ToAsk { slot, asking, permit });
        self.begin_apart();
    }

    /// Begins what waits, while there is room for its answers and little is under way. What is not with an entity when
    /// the connection ends, ends with it.
    pub(in crate::server) fn begin_apart(&mut self) {
        loop {
            let has_room = self.account.held_bytes() < self.account.bytes_max();
            let begun = self.apart.begin(has_room && self.may_answer());
            let Some((_, ToAsk { slot, asking, permit })) = begun else { return };
            let mailbox = Arc::clone(&self.mailbox);
            let outbound = self.broker.outbound_pool();
            let free_bytes = self.account.free_bytes() / LONG_MAX as u64;
            let alive = self.alive.subscribe();
            tokio::spawn(async move {
                let _permit = permit;
                let asked = do_apart(alive, asking, bytes_of, free_bytes, &outbound).await;
                if let Some((answer, paid)) = asked {
                    mailbox.put(Mail::Own(Told { slot, answer, paid }));
                }
            });
        }
    }

    /// What was asked apart is answered.
    pub(in crate::server) fn told(&mut self, told: Told) {
        self.apart.done(Size::Long);
        let mut held_bytes = 0;
        if let Some((bytes, room)) = told.paid {
            self.account.hold_paid(bytes, room);
            held_bytes = bytes;
        }
        if let Some(pending) = self.links.answered(told.slot)
            && let Expect::Apart(asker) = pending.expect
        {
            let answer = told.answer.map_err(|error| crate::server::error::of(&error));
            self.answer_managed(asker, answer);
        }
        // Not before: the reply is counted by now, and keeps the room that it had.
        self.account.release(held_bytes);
        self.begin_apart();
    }
}

fn bytes_of(answer: &Result<ManagementAnswer, BrokerError>) -> u64 {
    answer.as_ref().map_or(0, ManagementAnswer::len)
}
