//! Takes the frames of a client: pays the cost of a frame, decodes it, and turns its requests into
//! commands. The cost covers its bytes, the values decoded from them, and large answers.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::Entity;
use peeklock_core::admission::{COMMAND_BYTES, Permit};
use peeklock_core::command::Command;
use peeklock_core::error::Rejection;
use peeklock_core::time::TimeSpan;
use peeklock_link::pending::correlation;
use peeklock_link::{Link, Phase};

use super::{AdmittedRequest, Conversation, Done, Refusal, SocketEnd};
use crate::error::{Close, FrameError};
use crate::frame::{BadRequest, ClientFrame, Request, cost_of};
use crate::operation::{Notice, Operation, PendingAnswer, Subject};

/// Requests of a frame that was taken and that are still to be carried out.
pub(crate) struct Requests {
    pub(super) requests: VecDeque<Result<Request, BadRequest>>,
    pub(super) permit: Arc<Permit>,
}

/// Cost of a frame in the budget for commands.
#[derive(Clone, Copy)]
pub(crate) struct FrameCost {
    commands: u64,
    /// Computed from the bytes of the frame.
    made_bytes: u64,
    /// Computed from the decoded requests; 0 until the frame is decoded.
    answer_bytes: u64,
}

impl FrameCost {
    const fn bytes(self) -> u64 {
        self.made_bytes.saturating_add(self.answer_bytes)
    }
}

impl Conversation {
    /// Decodes a frame as soon as its cost is paid.
    pub(super) async fn pay_frame(&mut self, bytes: Bytes) -> Result<(), SocketEnd> {
        // The cost is known and paid before anything is decoded.
        let (commands, made_bytes) = cost_of(self.encoding, &bytes);
        let cost = FrameCost { commands, made_bytes, answer_bytes: 0 };
        let Some(permit) = self.engine.budget.try_take_list(commands, cost.bytes()) else {
            self.postpone(bytes, cost);
            return Ok(());
        };
        self.decode(bytes, permit, cost).await
    }

    /// Decodes a frame that has a permit, and carries it out. If its peeks cost more than the
    /// permit covers, the decoded requests are dropped, and the frame is decoded again under a
    /// larger permit. Most frames have no such peeks.
    pub(super) async fn decode(
        &mut self,
        bytes: Bytes,
        permit: Permit,
        cost: FrameCost,
    ) -> Result<(), SocketEnd> {
        let frame = ClientFrame::decode(self.encoding, &bytes)
            .map_err(|error| SocketEnd::Refused(Close::of_frame(&error)))?;
        // Confirmed even if the frame has to wait, since confirmed frames release room.
        self.confirm(frame.seen);
        let whole = FrameCost { answer_bytes: frame.answer_bytes(), ..cost };
        let permit = if whole.answer_bytes > cost.answer_bytes {
            // A frame that waits for room holds no part.
            drop(permit);
            let Some(permit) = self.engine.budget.try_take_list(whole.commands, whole.bytes())
            else {
                self.postpone(bytes, whole);
                return Ok(());
            };
            permit
        } else {
            permit
        };
        // From here on the frame counts as taken: a client that comes back does not send it again.
        self.seen += 1;
        let (requests, permit) = (frame.requests.into(), Arc::new(permit));
        self.carry_out(Requests { requests, permit }).await;
        Ok(())
    }

    /// Makes a frame wait for its room; nothing is read until it has it.
    fn postpone(&mut self, bytes: Bytes, cost: FrameCost) {
        self.engine.wait_for_permit((bytes, cost), cost.commands, cost.bytes());
    }

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
                self.engine.place.asks();
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
                    let admitted = AdmittedRequest { id, permit: Arc::clone(&permit) };
                    (id, self.operate(admitted, operation).await.map_err(|it| (it, subject)))
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
    pub(crate) fn done(&mut self, admitted: &AdmittedRequest) -> Done {
        if admitted.id != 0 {
            self.push_item(admitted.id, Notice::Done(Default::default()));
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
        if link.role == peeklock_link::LinkRole::Receiver {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a sender, not a receiver")))
    }

    /// Returns the link if it is a sender.
    pub(crate) fn sender(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        let link = self.link(number)?;
        if link.role == peeklock_link::LinkRole::Sender {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a receiver, not a sender")))
    }

    /// Adds a request whose answer is awaited; returns its slot.
    pub(crate) fn await_answer(
        &mut self,
        admitted: AdmittedRequest,
        link: u32,
        expect: PendingAnswer,
    ) -> usize {
        self.engine.links.add_request(link, admitted.id, Some(admitted.permit), expect)
    }

    /// Carries out a request that is one command.
    pub(crate) fn command(
        &mut self,
        admitted: AdmittedRequest,
        link: u32,
        command: Command,
        expect: PendingAnswer,
    ) -> Done {
        self.link(link)?;
        let slot = self.await_answer(admitted, link, expect);
        self.engine.links.submit(link, command, correlation(slot, 0));
        Ok(())
    }

    /// Carries out a request that is one command and is answered with messages.
    pub(crate) fn send_peek(
        &mut self,
        admitted: AdmittedRequest,
        link: u32,
        command: Command,
    ) -> Done {
        self.link(link)?;
        self.engine.links.browse(link, command, admitted.id, Some(admitted.permit));
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

#[cfg(test)]
mod tests {
    use peeklock_core::command::peeked_bytes;

    use super::*;
    use crate::frame::Encoding;

    /// PEK-08, DESIGN D6: a frame pays for the answers to its peeks, also those of a session,
    /// in addition to its commands. An answer that fits into the cost of a command, and any other
    /// operation, costs nothing more.
    #[test]
    fn a_frame_pays_for_its_peeks() {
        let answers = |requests: &[String]| {
            let text = format!(r#"{{"seen":0,"requests":[{}]}}"#, requests.join(","));
            ClientFrame::decode(Encoding::Json, &Bytes::from(text)).unwrap().answer_bytes()
        };
        let peek =
            |count: u32| format!(r#"{{"id":1,"peek":{{"link":1,"from":0,"maxCount":{count}}}}}"#);
        let receive =
            r#"{"id":2,"receive":{"link":1,"maxCount":250,"waitSeconds":0.0}}"#.to_owned();
        let of_session =
            r#"{"id":3,"peekSession":{"link":1,"sessionId":"s","from":0,"maxCount":250}}"#
                .to_owned();
        let most = peeked_bytes(250) - COMMAND_BYTES;
        assert_eq!(answers(&[peek(1), receive.clone()]), 0);
        assert_eq!(answers(&[peek(250)]), most);
        assert_eq!(answers(&[of_session, peek(u32::MAX), receive, peek(250)]), 3 * most);
    }
}
