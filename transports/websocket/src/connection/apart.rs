//! What takes more than one command: carried out apart, so that the conversation goes on.

use std::future::Future;
use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::error::BrokerError;
use peeklock_core::permits::{COMMAND_BYTES, HeldTurn};
use peeklock_link::{Finished, Pending, Protocol as _, Size, Start, Working};

use super::{Asked, Conversation, Done};
use crate::frame::WireError;
use crate::operation::{Expect, Notice};

impl Conversation {
    /// Has something long done apart; its answer comes by mail.
    pub(crate) fn apart<F: Future<Output = Result<Notice, BrokerError>> + Send + 'static>(
        &mut self,
        asked: Asked,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Done {
        self.push_apart(asked, Size::Long, Box::new(move || without_turn(work())))
    }

    fn push_apart(&mut self, asked: Asked, size: Size, start: Start<Box<Notice>>) -> Done {
        let permit = Arc::clone(&asked.permit);
        let paid = Some(asked.permit);
        let slot = self.engine.links.ask_of("".into(), asked.id, paid, Expect::Own);
        self.engine.apart.push(size, slot, permit, start);
        self.start_apart();
        Ok(())
    }

    /// The same for what one thing of the namespace is asked.
    pub(crate) fn manage<F: Future<Output = Result<Notice, BrokerError>> + Send + 'static>(
        &mut self,
        asked: Asked,
        work: impl FnOnce(Access) -> F + Send + 'static,
    ) -> Done {
        let access = self.engine.access.clone();
        self.push_apart(asked, Size::Short, Box::new(move || without_turn(work(access))))
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
        let access = self.engine.access.clone();
        let start = move || -> Working<Box<Notice>> {
            let work = work(access);
            Box::pin(async move {
                match work.await {
                    Ok((notice, turn)) => (Some(turn), Box::new(notice)),
                    Err(refused) => (None, answer(Err(refused))),
                }
            })
        };
        self.push_apart(asked, Size::Long, Box::new(start))
    }

    /// Answers a request that was carried out apart.
    pub(super) fn answer_apart(&mut self, finished: Finished<Box<Notice>>) {
        self.begun_bytes += COMMAND_BYTES;
        if let Some(Pending { id, .. }) = self.engine.links.answered(finished.slot) {
            match finished.paid {
                Some((bytes, room)) => self.say_paid(id, *finished.result, bytes, room),
                None => self.say(id, *finished.result),
            }
        }
    }
}

/// The answer to a request that was carried out apart.
fn answer(result: Result<Notice, BrokerError>) -> Box<Notice> {
    Box::new(result.unwrap_or_else(|error| Notice::Error(WireError::from(&error))))
}

/// Work that takes no turn at anything.
fn without_turn(
    work: impl Future<Output = Result<Notice, BrokerError>> + Send + 'static,
) -> Working<Box<Notice>> {
    Box::pin(async move { (None, answer(work.await)) })
}
