//! Turns the requests of a client into commands.

use std::collections::VecDeque;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::admission::{COMMAND_BYTES, Permit};
use peeklock_core::command::Command;
use peeklock_core::error::Rejection;
use peeklock_core::time::TimeSpan;
use peeklock_link::pending::correlation;
use peeklock_link::{Link, Phase};

use super::{AdmittedRequest, Conversation, Done, Refusal};
use crate::error::FrameError;
use crate::frame::{BadRequest, Request};
use crate::operation::{Notice, Operation, PendingAnswer, Subject};

/// Requests of a frame that was taken and that are still to be carried out.
pub(crate) struct Requests {
    pub(super) requests: VecDeque<Result<Request, BadRequest>>,
    pub(super) permit: Arc<Permit>,
}

impl Conversation {
    /// Carries out the requests of a frame in order, until one has no room for its answer.
    pub(crate) async fn carry_out(&mut self, frame: Requests) {
        let Requests { mut requests, permit } = frame;
        while let Some(request) = requests.front() {
            if !self.has_room_for(request) {
                self.engine.phase = Phase::NeedsRoom(Requests { requests, permit });
                return;
            }
            self.started_bytes += COMMAND_BYTES;
            if request.as_ref().is_ok_and(|it| !matches!(it.operation, Operation::Heartbeat(_))) {
                self.engine.standing.asks();
            }
            let (id, done) = match requests.pop_front() {
                Some(Ok(Request { id, .. })) if self.awaits(id) => {
                    let detail = format!("the id {id} is in use by an unanswered request");
                    // Under that id, the client would take the error for the answer to the other
                    // request.
                    (0, Err((Rejection::argument(detail).into(), Subject::Connection)))
                }
                Some(Ok(Request { id, operation })) => {
                    let subject = operation.subject();
                    let asked = AdmittedRequest { id, permit: Arc::clone(&permit) };
                    (id, self.operate(asked, operation).await.map_err(|it| (it, subject)))
                }
                Some(Err(bad)) => {
                    let rejection = match bad.error {
                        FrameError::TooMuch => Rejection::quota_exceeded(bad.error.to_string()),
                        error => Rejection::argument(format!("the request {error}")),
                    };
                    (bad.id, Err((rejection.into(), Subject::Connection)))
                }
                None => return,
            };
            match done {
                Ok(()) => {}
                Err((Refusal::Broker(error), _)) => {
                    self.push_item(id, Notice::Error((&error).into()))
                }
                Err((Refusal::Own(rejection), subject)) => {
                    let path = self.path_of(subject);
                    self.fail(id, rejection, &path);
                }
            }
            self.engine.steps.add(1);
            self.engine.steps.yield_if_due().await;
        }
    }

    /// Whether a request with this id is not answered yet.
    fn awaits(&self, id: u32) -> bool {
        self.engine.links.has_pending(id)
            || self.commits.iter().any(|commit| commit.has_request_id(id))
    }

    /// Answers `done` at once, if the client asked for an answer.
    pub(crate) fn done(&mut self, asked: &AdmittedRequest) -> Done {
        if asked.id != 0 {
            self.push_item(asked.id, Notice::Done(Default::default()));
        }
        Ok(())
    }

    pub(crate) fn link(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        self.engine
            .links
            .get(number)
            .filter(|link| link.is_open())
            .ok_or_else(|| Rejection::invalid_operation(format!("no link {number} is attached")))
    }

    /// Returns the link if it is a receiver, which may receive, settle and peek.
    pub(crate) fn receiver(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        let link = self.link(number)?;
        if link.role == peeklock_link::Role::Receiver {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a sender, not a receiver")))
    }

    /// Returns the link if it is a sender.
    pub(crate) fn sender(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        let link = self.link(number)?;
        if link.role == peeklock_link::Role::Sender {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a receiver, not a sender")))
    }

    /// Adds a request whose answer is awaited; returns its slot.
    pub(crate) fn await_answer(
        &mut self,
        asked: AdmittedRequest,
        link: u32,
        expect: PendingAnswer,
    ) -> usize {
        self.engine.links.add_request(link, asked.id, Some(asked.permit), expect)
    }

    /// Carries out a request that is one command.
    pub(crate) fn command(
        &mut self,
        asked: AdmittedRequest,
        link: u32,
        command: Command,
        expect: PendingAnswer,
    ) -> Done {
        self.link(link)?;
        let slot = self.await_answer(asked, link, expect);
        self.engine.links.submit(link, command, correlation(slot, 0));
        Ok(())
    }

    /// Carries out a request that is one command and is answered with messages.
    pub(crate) fn send_peek(
        &mut self,
        asked: AdmittedRequest,
        link: u32,
        command: Command,
    ) -> Done {
        self.link(link)?;
        self.engine.links.browse(link, command, asked.id, Some(asked.permit));
        Ok(())
    }

    /// Returns the time that a request may wait: as requested, or zero while the connection is
    /// about to end.
    pub(crate) fn bounded_wait(&self, seconds: f64) -> Result<TimeSpan, Rejection> {
        let Some(wait) = TimeSpan::from_seconds_f64(seconds) else {
            return Err(Rejection::out_of_range("waitSeconds must be 0 or more"));
        };
        if wait == TimeSpan::ZERO || self.engine.stop_deadline().is_some() {
            return Ok(TimeSpan::ZERO);
        }
        let count = self.engine.links.waiting_count();
        if count >= self.command_count_max() {
            let detail = format!(
                "{count} requests already wait on this connection, the limit; wait for answers"
            );
            return Err(Rejection::quota_exceeded(detail));
        }
        Ok(wait)
    }
}
