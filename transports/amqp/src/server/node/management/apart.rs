//! What is asked beside the connection: lists, and changes of rules, which are no single commands. Few at a
//! time, the others in order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::error::BrokerError;
use peeklock_core::permits::Permit;
use peeklock_link::{Mail, Size};

use super::super::reply::Asker;
use super::Answer;
use crate::server::conversation::{Conversation, Expect};

/// Something that is asked, and comes to an answer.
pub(in crate::server) type Asking =
    Pin<Box<dyn Future<Output = Result<Answer, BrokerError>> + Send>>;

/// The answer to something that was asked apart.
pub(in crate::server) struct Told {
    slot: usize,
    answer: Result<Answer, BrokerError>,
}

impl Conversation {
    /// Asks something apart, when few others are; until it is answered it counts as asked.
    pub(in crate::server) fn ask_apart(&mut self, asker: Asker, asking: Asking, permit: Permit) {
        let Some(asker) = self.still_waits(asker) else { return };
        let expect = Expect::Apart(asker);
        let slot = self.links.ask_of("".into(), 0, Some(Arc::new(permit)), expect);
        self.apart.push(Size::Long, (slot, asking));
        self.begin_apart();
    }

    /// Begins what waits, while there is room for its answers and little is under way.
    pub(in crate::server) fn begin_apart(&mut self) {
        while let Some((_, (slot, asking))) = self.apart.begin(self.may_answer()) {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move {
                let answer = asking.await;
                mailbox.put(Mail::Own(Told { slot, answer }));
            });
        }
    }

    /// What was asked apart is answered.
    pub(in crate::server) fn told(&mut self, told: Told) {
        self.apart.done(Size::Long);
        if let Some(pending) = self.links.answered(told.slot)
            && let Expect::Apart(asker) = pending.expect
        {
            let answer = told.answer.map_err(|error| crate::server::error::of(&error));
            self.answer_managed(asker, answer);
        }
        self.begin_apart();
    }
}
