//! What takes more than one command: carried out apart, so that the conversation goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::error::BrokerError;
use peeklock_link::{Mail, Pending};

use super::{Asked, Conversation, Done};
use crate::frame::WireError;
use crate::operation::{Expect, Notice};

/// Something to be done apart.
pub(super) struct Work {
    slot: usize,
    work: Pin<Box<dyn Future<Output = Result<Notice, BrokerError>> + Send>>,
}

/// What was done apart is answered with.
pub(super) struct Own {
    slot: usize,
    notice: Box<Notice>,
}

impl Conversation {
    /// Has something done apart; its answer comes by mail.
    pub(crate) fn apart(
        &mut self,
        asked: Asked,
        work: impl Future<Output = Result<Notice, BrokerError>> + Send + 'static,
    ) -> Done {
        let slot = self.links.ask_of("".into(), asked.id, Some(asked.permit), Expect::Own);
        self.apart.push(Work { slot, work: Box::pin(work) });
        self.begin_apart();
        Ok(())
    }

    /// The same for what is asked of the namespace.
    pub(crate) fn manage<F: Future<Output = Result<Notice, BrokerError>> + Send + 'static>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(Access) -> F,
    ) -> Done {
        let work = work(self.access.clone());
        self.apart(asked, work)
    }

    /// Begins what waits, while there is room for its answers and little is under way.
    pub(super) fn begin_apart(&mut self) {
        while let Some(Work { slot, work }) = self.apart.begin(self.may_answer()) {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move {
                let notice = match work.await {
                    Ok(notice) => notice,
                    Err(error) => Notice::Error(WireError::from(&error)),
                };
                mailbox.put(Mail::Own(Own { slot, notice: Box::new(notice) }));
            });
        }
    }

    /// Something was done apart.
    pub(super) fn done_apart(&mut self, own: Own) {
        self.apart.done();
        if let Some(Pending { id, .. }) = self.links.answered(own.slot) {
            self.say(id, *own.notice);
        }
    }
}
