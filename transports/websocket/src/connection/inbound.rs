//! What a client asks for: from requests to commands.

use std::collections::VecDeque;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::command::{Command, LinkEnd, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::permits::Permit;
use peeklock_core::time::TimeSpan;
use peeklock_link::pending::correlation;
use peeklock_link::{Closing, Link, Source};

use super::pending::Expect;
use super::{Conversation, Held};
use crate::error::FrameError;
use crate::frame::text::Instant;
use crate::frame::{
    Attach, BadRequest, Detach, LIST_COUNT_MAX, Notice, Operation, Receive, Request, Role,
    WireError,
};

/// Why a request is not carried out.
pub(super) enum Refusal {
    Broker(BrokerError),
    Own(Rejection),
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Own(rejection)
    }
}

pub(super) type Done = Result<(), Refusal>;

/// A request on its way, with what it needs.
pub(super) struct Asked {
    pub(super) id: u32,
    pub(super) permit: Arc<Permit>,
}

impl Conversation {
    /// Carries out what a frame asks for, in its order, as far as there is room for the answers.
    pub(super) async fn carry_out(
        &mut self,
        mut requests: VecDeque<Result<Request, BadRequest>>,
        permit: Arc<Permit>,
    ) {
        while let Some(request) = requests.front() {
            if !self.may_ask(request) {
                self.held = Some(Held::Requests(requests, permit));
                return;
            }
            let (id, done) = match requests.pop_front() {
                Some(Ok(Request { id, .. })) if self.awaits(id) => {
                    let detail =
                        format!("the id {id} is in use by a request that is not answered yet");
                    // Under that id it would be taken for the answer to the other request.
                    (0, Err((Rejection::argument(detail).into(), None)))
                }
                Some(Ok(Request { id, operation })) => {
                    let entity = entity_of(self, &operation);
                    let asked = Asked { id, permit: Arc::clone(&permit) };
                    (id, self.operate(asked, operation).await.map_err(|it| (it, entity)))
                }
                Some(Err(bad)) => {
                    let rejection = match bad.error {
                        FrameError::TooMuch => Rejection::quota_exceeded(bad.error.to_string()),
                        error => Rejection::argument(format!("the request {error}")),
                    };
                    (bad.id, Err((rejection.into(), None)))
                }
                None => return,
            };
            if let Err((refusal, entity)) = done {
                let error = match refusal {
                    Refusal::Broker(error) => WireError::from(&error),
                    Refusal::Own(rejection) => {
                        self.wire_error(rejection, entity.as_deref().unwrap_or_default())
                    }
                };
                self.say(id, Notice::Error(error));
            }
        }
    }

    /// Whether a request with this id is not answered yet.
    fn awaits(&self, id: u32) -> bool {
        self.links.awaits(id) || self.commits.iter().any(|commit| commit.is_asked_as(id))
    }

    async fn operate(&mut self, asked: Asked, operation: Operation) -> Done {
        match operation {
            Operation::Hello(_) => {
                Err(Rejection::invalid_operation("hello was said already").into())
            }
            Operation::Authenticate(authenticate) => {
                let shown = self.access.principal().map(|shown| (*shown).clone());
                self.access.renew(shown.unwrap_or_default().with_token(authenticate.token)).await;
                self.done(&asked);
                Ok(())
            }
            Operation::Heartbeat(_) => {
                self.done(&asked);
                Ok(())
            }
            Operation::Attach(attach) => self.attach(asked, attach).await,
            Operation::Detach(detach) => self.detach(&asked, &detach),
            Operation::Credit(credit) => self.credit(&asked, &credit),
            Operation::Drain(only) => self.drain(asked, only.link),
            Operation::Send(send) => self.send(asked, send),
            Operation::SendBatch(send) => self.send_batch(asked, send),
            Operation::Forward(forward) => self.forward(asked, forward),
            Operation::CancelScheduled(numbered) => {
                self.sender(numbered.link)?;
                let command =
                    Command::CancelScheduled { sequences: sequences(numbered.sequence_numbers) };
                self.command(asked, numbered.link, command, Expect::Done)
            }
            Operation::Receive(receive) => self.receive(asked, &receive),
            Operation::Withdraw(withdraw) => {
                self.links.withdraw(withdraw.request);
                self.done(&asked);
                Ok(())
            }
            Operation::ReceiveDeferred(_) if asked.id == 0 => {
                Err(Rejection::argument("receiveDeferred needs an id, to be answered").into())
            }
            Operation::ReceiveDeferred(numbered) => {
                let link = self.receiver(numbered.link)?;
                let sequences = sequences(numbered.sequence_numbers);
                let command = match link.source {
                    Source::Session(_) => {
                        link.in_session(SessionCommand::ReceiveDeferred { sequences })
                    }
                    Source::Queue | Source::Awaited => Command::ReceiveDeferred {
                        mode: link.mode,
                        sequences,
                        holder: Some(link.receiver),
                    },
                };
                self.look(asked, numbered.link, command)
            }
            Operation::Settle(settle) => self.settle(asked, settle),
            Operation::Renew(renew) => self.renew(asked, &renew),
            Operation::Peek(peek) => {
                let (from, count_max) = (SequenceNumber(peek.from), peek.max_count);
                let command = match self.receiver(peek.link)?.session() {
                    Some(session) => {
                        Command::PeekSession { session: session.into(), from, count_max }
                    }
                    None => Command::Peek { from, count_max },
                };
                self.look(asked, peek.link, command)
            }
            Operation::DeleteBatch(delete) => {
                let count_max = delete.max_count.unwrap_or_else(|| self.delete_count_max());
                let enqueued_before = delete.enqueued_before_utc.map(|Instant(at)| at);
                let link = self.receiver(delete.link)?;
                let command = super::session::delete_batch(link, count_max, enqueued_before);
                self.command(asked, delete.link, command, Expect::Deleted)
            }
            Operation::DeleteDeferred(delete) => {
                let command =
                    Command::DeleteDeferred { sequence: SequenceNumber(delete.sequence_number) };
                self.command(asked, delete.link, command, Expect::Done)
            }
            Operation::Purge(purge) => self.purge(asked, &purge),
            Operation::CreateQueue(create) => self.create_queue(asked, create),
            Operation::GetQueue(only) => self.get_queue(asked, &only.path),
            Operation::UpdateQueue(update) => self.update_queue(asked, update),
            Operation::DeleteQueue(only) => self.delete(asked, &only.path, EntityKind::Queue),
            Operation::ListQueues(list) => self.list_queues(asked, &list),
            Operation::AcceptSession(accept) => self.accept_session(asked, accept).await,
            Operation::RenewSession(only) => self.renew_session(asked, only.link),
            Operation::GetSessionState(only) => self.session_state(asked, only.link),
            Operation::SetSessionState(set) => self.set_session_state(asked, set),
            Operation::PeekSession(peek) => self.peek_session(asked, peek),
            Operation::ListSessions(list) => self.list_sessions(asked, list).await,
            Operation::DeleteUnlocked(delete) => self.delete_unlocked(asked, delete).await,
            Operation::CreateTopic(create) => self.create_topic(asked, create),
            Operation::GetTopic(only) => self.get_topic(asked, &only.path),
            Operation::UpdateTopic(update) => self.update_topic(asked, update),
            Operation::DeleteTopic(only) => self.delete(asked, &only.path, EntityKind::Topic),
            Operation::ListTopics(list) => self.list_topics(asked, &list),
            Operation::CreateSubscription(create) => self.create_subscription(asked, create),
            Operation::GetSubscription(only) => self.get_subscription(asked, &only.path),
            Operation::UpdateSubscription(update) => self.update_subscription(asked, update),
            Operation::DeleteSubscription(only) => {
                self.delete(asked, &only.path, EntityKind::Subscription)
            }
            Operation::ListSubscriptions(list) => self.list_subscriptions(asked, &list),
            Operation::CreateRule(set) => self.create_rule(asked, set),
            Operation::GetRule(named) => self.get_rule(asked, named),
            Operation::UpdateRule(set) => self.update_rule(asked, set),
            Operation::DeleteRule(named) => self.delete_rule(asked, named),
            Operation::ListRules(list) => self.list_rules(asked, &list),
            Operation::Explain(explain) => self.explain(asked, explain),
            Operation::BeginTransaction(begin) => self.begin_transaction(&asked, &begin),
            Operation::SendIn(send) => self.send_in(asked, send).await,
            Operation::SettleIn(settle) => self.settle_in(asked, settle).await,
            Operation::RenewIn(renew) => self.renew_in(asked, renew).await,
            Operation::Commit(commit) => self.commit(asked, &commit),
            Operation::RollBack(only) => self.roll_back(&asked, &only),
        }
    }

    /// Answers at once that it is done, if an answer is asked for.
    pub(super) fn done(&mut self, asked: &Asked) {
        if asked.id != 0 {
            self.say(asked.id, Notice::Done(Default::default()));
        }
    }

    pub(super) fn delete_count_max(&self) -> u32 {
        u32::try_from(self.broker.settings().limits.batch_delete_count_max).unwrap_or(u32::MAX)
    }

    pub(super) fn link(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        self.links
            .get(number)
            .filter(|link| link.is_open())
            .ok_or_else(|| Rejection::invalid_operation(format!("no link {number} is attached")))
    }

    /// A link of the role that receives, settles and looks.
    pub(super) fn receiver(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        let link = self.link(number)?;
        if link.role == peeklock_link::Role::Receiver {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a sender, not a receiver")))
    }

    /// A link of the role that sends.
    pub(super) fn sender(&self, number: u32) -> Result<&Link<Entity>, Rejection> {
        let link = self.link(number)?;
        if link.role == peeklock_link::Role::Sender {
            return Ok(link);
        }
        Err(Rejection::invalid_operation(format!("link {number} is a receiver, not a sender")))
    }

    /// Adds a request whose answer is awaited.
    pub(super) fn await_answer(&mut self, asked: Asked, link: u32, expect: Expect) -> usize {
        self.links.ask(link, asked.id, Some(asked.permit), expect)
    }

    /// Carries out a request that is one command.
    pub(super) fn command(
        &mut self,
        asked: Asked,
        link: u32,
        command: Command,
        expect: Expect,
    ) -> Done {
        self.link(link)?;
        let slot = self.await_answer(asked, link, expect);
        self.links.submit(link, command, correlation(slot, 0));
        Ok(())
    }

    /// Carries out a request that is one command and is answered with messages.
    pub(super) fn look(&mut self, asked: Asked, link: u32, command: Command) -> Done {
        self.link(link)?;
        self.links.look(link, command, asked.id, Some(asked.permit));
        Ok(())
    }

    async fn attach(&mut self, asked: Asked, attach: Attach) -> Done {
        let Attach { link: number, path, role, mode, credit } = attach;
        self.refuse_link(number)?;
        let purpose = match role {
            Role::Sender => Action::Send,
            Role::Receiver => Action::Receive,
        };
        let entity = self.access.entity(&path, purpose).await?;
        let path = entity.path().into();
        self.links.attach(number, entity, path, role.into(), mode.into());
        match credit {
            Some(credit) if role == Role::Receiver => {
                self.links.attach_flow(number, credit, asked.id, asked.permit);
            }
            Some(_) | None => self.done(&asked),
        }
        Ok(())
    }

    /// A new link needs a number that is free, and a place.
    pub(super) fn refuse_link(&self, number: u32) -> Result<(), Rejection> {
        if self.links.get(number).is_some() {
            let detail = format!("link {number} is attached already");
            return Err(Rejection::invalid_operation(detail));
        }
        let count_max = self.site.config.link_count_max;
        if self.links.len() >= count_max {
            let detail = format!("the connection has its {count_max} links already");
            return Err(Rejection::quota_exceeded(detail));
        }
        Ok(())
    }

    fn receive(&mut self, asked: Asked, receive: &Receive) -> Done {
        if asked.id == 0 {
            return Err(Rejection::argument("receive needs an id, to be answered").into());
        }
        let number = receive.link;
        self.receiver(number)?;
        let wait = self.wait_of(receive.wait_seconds)?;
        let count_max = receive.max_count;
        if count_max as usize > LIST_COUNT_MAX {
            let detail = format!("maxCount is {count_max}, not 1 to {LIST_COUNT_MAX}");
            return Err(Rejection::out_of_range(detail).into());
        }
        let Asked { id, permit } = asked;
        self.links.receive(number, count_max, wait, self.room_bytes(), id, Some(permit));
        Ok(())
    }

    /// How long a request may wait: as said, but not while the connection is about to end.
    pub(super) fn wait_of(&self, seconds: f64) -> Result<TimeSpan, Rejection> {
        let Some(wait) = TimeSpan::from_seconds_f64(seconds) else {
            return Err(Rejection::out_of_range("waitSeconds is less than 0"));
        };
        if wait == TimeSpan::ZERO || self.deadline.is_some() {
            return Ok(TimeSpan::ZERO);
        }
        let count = self.links.waiting_count();
        if count >= self.command_count_max() {
            let detail = format!("{count} requests wait on this connection already");
            return Err(Rejection::quota_exceeded(detail));
        }
        Ok(wait)
    }

    fn detach(&mut self, asked: &Asked, detach: &Detach) -> Done {
        let Detach { link: number, release } = *detach;
        self.link(number)?;
        let end = if release { LinkEnd::Broken } else { LinkEnd::Orderly };
        self.links.detach(number, Closing { id: asked.id, end });
        Ok(())
    }
}

/// The entity that an operation names, for errors.
fn entity_of(conversation: &Conversation, operation: &Operation) -> Option<Arc<str>> {
    let link = match operation {
        Operation::Attach(attach) => return Some(attach.path.as_str().into()),
        Operation::CreateQueue(create) => return Some(create.path.as_str().into()),
        Operation::UpdateQueue(update) => return Some(update.path.as_str().into()),
        Operation::GetQueue(only)
        | Operation::DeleteQueue(only)
        | Operation::GetTopic(only)
        | Operation::DeleteTopic(only)
        | Operation::GetSubscription(only)
        | Operation::DeleteSubscription(only) => return Some(only.path.as_str().into()),
        Operation::CreateTopic(create) => return Some(create.path.as_str().into()),
        Operation::UpdateTopic(update) => return Some(update.path.as_str().into()),
        Operation::CreateSubscription(create) => return Some(create.topic.as_str().into()),
        Operation::UpdateSubscription(update) => return Some(update.path.as_str().into()),
        Operation::ListSubscriptions(list) | Operation::ListRules(list) => {
            return Some(list.path.as_str().into());
        }
        Operation::CreateRule(set) | Operation::UpdateRule(set) => {
            return Some(set.path.as_str().into());
        }
        Operation::GetRule(named) | Operation::DeleteRule(named) => {
            return Some(named.path.as_str().into());
        }
        Operation::Explain(explain) => return Some(explain.path.as_str().into()),
        Operation::Detach(detach) => detach.link,
        Operation::Drain(only) => only.link,
        Operation::Credit(credit) => credit.link,
        Operation::Send(send) | Operation::SendBatch(send) => send.link,
        Operation::Forward(forward) => forward.link,
        Operation::CancelScheduled(numbered) | Operation::ReceiveDeferred(numbered) => {
            numbered.link
        }
        Operation::Receive(receive) => receive.link,
        Operation::Settle(settle) => settle.link,
        Operation::Renew(renew) => renew.link,
        Operation::Peek(peek) => peek.link,
        Operation::DeleteBatch(delete) => delete.link,
        Operation::Purge(purge) => purge.link,
        Operation::DeleteDeferred(delete) => delete.link,
        Operation::AcceptSession(accept) => return Some(accept.path.as_str().into()),
        Operation::ListSessions(list) => return Some(list.path.as_str().into()),
        Operation::DeleteUnlocked(delete) => return Some(delete.path.as_str().into()),
        Operation::RenewSession(only) | Operation::GetSessionState(only) => only.link,
        Operation::SetSessionState(set) => set.link,
        Operation::PeekSession(peek) => peek.link,
        Operation::SendIn(sent) => sent.send.link,
        Operation::SettleIn(settle) => settle.settle.link,
        Operation::RenewIn(renew) => renew.renew.link,
        Operation::BeginTransaction(_)
        | Operation::Commit(_)
        | Operation::RollBack(_)
        | Operation::Hello(_)
        | Operation::Authenticate(_)
        | Operation::Withdraw(_)
        | Operation::ListQueues(_)
        | Operation::ListTopics(_)
        | Operation::Heartbeat(_) => return None,
    };
    conversation.links.get(link).map(|link| Arc::clone(&link.path))
}

fn sequences(numbers: Vec<u64>) -> Vec<SequenceNumber> {
    numbers.into_iter().map(SequenceNumber).collect()
}

pub(super) fn place(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
