//! Work that takes more than one command. It runs next to the conversation, which goes on
//! meanwhile. Operations start it. The amount of concurrent work of a connection is limited.

use std::future::Future;
use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::admission::{COMMAND_BYTES, HeldTurn};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::management::Management;
use peeklock_link::{
    FinishedWork, PendingRequest, Protocol as _, ResultSize, RunningWork, StartWork,
};

use super::{AdmittedRequest, Conversation, Done};
use crate::frame::WireError;
use crate::operation::{ManageOperation, Notice, PendingAnswer, notice};

impl Conversation {
    /// Starts long work in the background; its answer arrives as mail.
    pub(crate) fn spawn_background<
        F: Future<Output = Result<Notice, BrokerError>> + Send + 'static,
    >(
        &mut self,
        admitted: AdmittedRequest,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Done {
        let start = move || -> RunningWork<Box<Notice>> {
            let work = work();
            Box::pin(async move { (None, answer(work.await)) })
        };
        self.push_background(admitted, ResultSize::Long, Box::new(start))
    }

    fn push_background(
        &mut self,
        admitted: AdmittedRequest,
        size: ResultSize,
        start: StartWork<Box<Notice>>,
    ) -> Done {
        let permit = Arc::clone(&admitted.permit);
        let paid = Some(admitted.permit);
        let slot = self.engine.links.add_unlinked_request(
            "".into(),
            admitted.id,
            paid,
            PendingAnswer::Own,
        );
        self.engine.background.push(size, slot, permit, start);
        self.start_background();
        Ok(())
    }

    /// Carries out a management operation in the background. An operation with a large answer waits
    /// for a turn ([`Access::turn_at`]) and keeps it until the broker has room for the answer; the
    /// number of turns is small, over all connections.
    pub(crate) fn manage(&mut self, admitted: AdmittedRequest, operation: ManageOperation) -> Done {
        let path = operation.path().unwrap_or_default().to_owned();
        let request = operation.into_request(&self.engine.broker)?;
        let access = self.engine.access.clone();
        let size = if request.is_large() { ResultSize::Long } else { ResultSize::Short };
        let start = move || -> RunningWork<Box<Notice>> {
            Box::pin(async move {
                let (turn, result) = managed(access, path, request).await;
                (turn, answer(result))
            })
        };
        self.push_background(admitted, size, Box::new(start))
    }

    /// Answers a request that was carried out in the background.
    pub(super) fn answer_background(&mut self, finished: FinishedWork<Box<Notice>>) {
        self.started_bytes += COMMAND_BYTES;
        if let Some(PendingRequest { id, .. }) = self.engine.links.remove_request(finished.slot) {
            match finished.room {
                Some((bytes, room)) => self.push_paid_item(id, *finished.result, bytes, room),
                None => self.push_item(id, *finished.result),
            }
        }
    }
}

/// Turns the result of background work into a notice.
fn answer(result: Result<Notice, BrokerError>) -> Box<Notice> {
    Box::new(result.unwrap_or_else(|error| Notice::Error(WireError::from(&error))))
}

async fn managed(
    access: Access,
    path: String,
    request: Management,
) -> (Option<HeldTurn>, Result<Notice, BrokerError>) {
    let answer = |managed| {
        let unexpected = || access.broker().refuse(Rejection::internal("unexpected answer"), &path);
        notice(managed).ok_or_else(unexpected)
    };
    if !request.is_large() {
        return (None, access.manage(&path, request).await.and_then(answer));
    }
    let made = async { access.turn_at(&path, request).await?.carry_out().await };
    match made.await {
        Ok((managed, turn)) => (Some(turn), answer(managed)),
        Err(refused) => (None, Err(refused)),
    }
}
