//! What takes more than one command: carried out apart, so that the conversation goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::error::BrokerError;
use peeklock_core::permits::{COMMAND_BYTES, HeldTurn, Permit};
use peeklock_link::{Mail, Paid, Pending, Size, WORKING_MAX, do_apart};

use super::{Asked, Conversation, Done};
use crate::frame::WireError;
use crate::operation::{Expect, Notice};

/// What is done, and comes to an answer, with the turn at something large that this has taken.
type Working =
    Pin<Box<dyn Future<Output = (Option<HeldTurn>, Result<Notice, BrokerError>)> + Send>>;
/// Begins it. Until then it is as large as what was asked, which the frame has paid for; under way it may be several
/// times that.
type Begin = Box<dyn FnOnce() -> Working + Send>;

/// Something to be done apart.
pub(super) struct Work {
    slot: usize,
    begin: Begin,
    /// The room of what has asked for it, as long as anything of that is there.
    permit: Arc<Permit>,
}

/// What was done apart is answered with.
pub(crate) struct Own {
    slot: usize,
    size: Size,
    notice: Box<Notice>,
    paid: Paid,
}

impl Conversation {
    /// Has something long done apart; its answer comes by mail.
    pub(crate) fn apart<F: Future<Output = Result<Notice, BrokerError>> + Send + 'static>(
        &mut self,
        asked: Asked,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Done {
        let begin = move || without_turn(work());
        self.push_apart(asked, Size::Long, Box::new(begin))
    }

    fn push_apart(&mut self, asked: Asked, size: Size, begin: Begin) -> Done {
        let permit = Arc::clone(&asked.permit);
        let slot = self.links.ask_of("".into(), asked.id, Some(asked.permit), Expect::Own);
        self.apart.push(size, Work { slot, begin, permit });
        self.begin_apart();
        Ok(())
    }

    /// The same for what one thing of the namespace is asked.
    pub(crate) fn manage<F: Future<Output = Result<Notice, BrokerError>> + Send + 'static>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(Access) -> F + Send + 'static,
    ) -> Done {
        let access = self.access.clone();
        let begin = move || without_turn(work(access));
        self.push_apart(asked, Size::Short, Box::new(begin))
    }

    /// The same for what may make an answer of any size, with the turn in which that was made: few have one over all
    /// connections, each until the broker has room for what came of it.
    pub(crate) fn manage_in_turn<F>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(Access) -> F + Send + 'static,
    ) -> Done
    where
        F: Future<Output = Result<(Notice, HeldTurn), BrokerError>> + Send + 'static,
    {
        let access = self.access.clone();
        let begin = move || -> Working {
            let work = work(access);
            Box::pin(async move {
                match work.await {
                    Ok((notice, turn)) => (Some(turn), Ok(notice)),
                    Err(refused) => (None, Err(refused)),
                }
            })
        };
        self.push_apart(asked, Size::Long, Box::new(begin))
    }

    /// Begins what waits, while there is room for its answers and little is under way. What is not with an entity
    /// when the conversation ends, ends with it.
    pub(super) fn begin_apart(&mut self) {
        while let Some((size, work)) = self.apart.begin(self.may_answer()) {
            let Work { slot, begin, permit } = work;
            let work = begin();
            let mailbox = Arc::clone(&self.mailbox);
            let outbound = self.broker.outbound_pool();
            let free_bytes = self.account.free_bytes() / WORKING_MAX as u64;
            let alive = self.alive.subscribe();
            let encoding = self.encoding;
            tokio::spawn(async move {
                let _permit = permit;
                let weight = |notice: &Notice| notice.weight(encoding);
                let done = do_apart(alive, told(work), weight, free_bytes, &outbound).await;
                if let Some((notice, paid)) = done {
                    mailbox.put(Mail::Own(Own { slot, size, notice: Box::new(notice), paid }));
                }
            });
        }
    }

    /// Something was done apart.
    pub(super) fn done_apart(&mut self, own: Own) {
        self.apart.done(own.size);
        self.begun_bytes += COMMAND_BYTES;
        if let Some(Pending { id, .. }) = self.links.answered(own.slot) {
            match own.paid {
                Some((bytes, room)) => self.say_paid(id, *own.notice, bytes, room),
                None => self.say(id, *own.notice),
            }
        }
    }
}

/// What its client is told of a piece of work.
async fn told(work: Working) -> (Option<HeldTurn>, Notice) {
    let (turn, answer) = work.await;
    (turn, answer.unwrap_or_else(|error| Notice::Error(WireError::from(&error))))
}

/// What takes no turn at anything.
fn without_turn(
    work: impl Future<Output = Result<Notice, BrokerError>> + Send + 'static,
) -> Working {
    Box::pin(async move { (None, work.await) })
}
