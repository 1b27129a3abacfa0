//! A link to one entity in process: it converts requests to commands, and outcomes to answers.
//! `in_process.rs` opens it. Outcomes are the same as over a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use peeklock_core::Entity;
use peeklock_core::call::submit_unanswered;
use peeklock_core::clients::LinkGuard;
use peeklock_core::command::{
    Command, LinkEnd, MessageReadError, Outcome, ReceiveMode, SessionCommand, Settlement as Decided,
};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::{TransactionId, Transactions};

use crate::port::{Answer, BoxAnswer, BoxFuture, Link, Request, Settlement};

/// Maximum bytes of a receive; further messages stay for the next (RCV-13).
const RECEIVE_BYTES_MAX: u64 = 64 << 20;

/// A link in process.
pub(super) struct EntityLink {
    pub(super) entity: Entity,
    transactions: Transactions,
    mode: ReceiveMode,
    /// Destination of messages that are only stored at the entity first (VIA-01).
    pub(super) destination: Option<Arc<str>>,
    /// Holder of received messages; `None` for a link that only sends.
    pub(super) holder: Option<ReceiverId>,
    /// The session that the link holds.
    pub(super) session: Option<Arc<str>>,
    /// Place of the link in the list of clients; none if the broker lists too many.
    pub(super) listed: Option<LinkGuard>,
    is_detached: AtomicBool,
}

impl EntityLink {
    pub(super) fn new(entity: Entity, transactions: Transactions, mode: ReceiveMode) -> Self {
        Self {
            entity,
            transactions,
            mode,
            destination: None,
            holder: None,
            session: None,
            listed: None,
            is_detached: AtomicBool::new(false),
        }
    }

    pub(super) fn unexpected(&self, outcome: &dyn std::fmt::Debug) -> BrokerError {
        self.entity.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")))
    }

    /// Converts a request to a command. [`Link::ask`] handles requests with lists.
    fn command(&self, request: Request) -> Result<Command, Rejection> {
        let mode = self.mode;
        let in_session = |command| self.in_session(command);
        Ok(match request {
            Request::Send(message) => self.send(*message),
            Request::SendBatch(messages) => self.send_batch(messages),
            Request::CancelScheduled(sequences) => Command::CancelScheduled { sequences },
            Request::Receive { count_max, wait } => {
                let (bytes_max, holder) = (RECEIVE_BYTES_MAX, self.holder);
                match &self.session {
                    None => Command::Receive { mode, count_max, bytes_max, wait, holder },
                    Some(_) => in_session(SessionCommand::Receive { count_max, bytes_max, wait }),
                }
            }
            Request::ReceiveDeferred(sequences) => match &self.session {
                None => Command::ReceiveDeferred { mode, sequences, holder: self.holder },
                Some(_) => in_session(SessionCommand::ReceiveDeferred { sequences }),
            },
            Request::Peek { session_id, from, count_max } => {
                let held = || self.session.as_deref().map(Box::from);
                match session_id.or_else(held) {
                    None => Command::Peek { from, count_max },
                    Some(session) => Command::PeekSession { session, from, count_max },
                }
            }
            Request::Settle(token, settlement) => {
                Command::Settle { token, settlement: self.decided(settlement)? }
            }
            Request::DeleteBatch { count_max, enqueued_before } => {
                self.delete_batch(count_max, enqueued_before)
            }
            Request::Purge => self.delete_batch(None, Some(self.now())),
            Request::RenewSession => in_session(SessionCommand::Renew),
            Request::SessionState => in_session(SessionCommand::GetState),
            Request::SetSessionState(state) => in_session(SessionCommand::SetState { state }),
            Request::Renew(tokens) => match tokens[..] {
                [token] => Command::RenewLock { token },
                _ => return Err(only_as_list()),
            },
            Request::SendEach(_) | Request::SettleEach(..) => return Err(only_as_list()),
        })
    }

    fn send(&self, message: Message) -> Command {
        let message = self.entity.broker().inbound(message);
        match &self.destination {
            None => Command::Send { message },
            Some(destination) => {
                let destination = Arc::clone(destination);
                Command::SendVia { destination, messages: vec![message] }
            }
        }
    }

    fn send_batch(&self, messages: Vec<Message>) -> Command {
        let broker = self.entity.broker();
        let messages = messages.into_iter().map(|message| broker.inbound(message)).collect();
        match &self.destination {
            None => Command::SendBatch { messages },
            Some(destination) => {
                Command::SendVia { destination: Arc::clone(destination), messages }
            }
        }
    }

    fn delete_batch(&self, count_max: Option<u32>, enqueued_before: Option<Timestamp>) -> Command {
        let most = self.entity.broker().settings().limits.batch_delete_count_max;
        let count_max = count_max.unwrap_or_else(|| u32::try_from(most).unwrap_or(u32::MAX));
        match &self.session {
            None => Command::DeleteBatch { count_max, enqueued_before },
            Some(_) => self.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before }),
        }
    }

    fn in_session(&self, command: SessionCommand) -> Command {
        // Without a holder there is no session; the entity returns the error.
        Command::InSession { receiver: self.holder.unwrap_or(ReceiverId(0)), command }
    }

    /// Converts a settlement to the entity's form.
    pub(super) fn decided(&self, settlement: Settlement) -> Result<Decided, Rejection> {
        Ok(match settlement {
            Settlement::Complete => Decided::Complete,
            Settlement::Abandon { properties, delay } => Decided::abandon(&properties, delay)?,
            Settlement::Defer { properties } => Decided::defer(&properties)?,
            Settlement::DeadLetter { reason, description, properties } => {
                let limits = &self.entity.broker().settings().limits;
                let (reason, description) = (reason.as_deref(), description.as_deref());
                Decided::dead_letter(reason, description, &properties, limits)?
            }
            Settlement::Release => Decided::Release,
        })
    }

    async fn carry_out(&self, command: Command) -> Result<Answer, BrokerError> {
        let outcome = self.entity.call(command).await?;
        self.answer(outcome).await
    }

    async fn answer(&self, outcome: Outcome) -> Result<Answer, BrokerError> {
        Ok(match outcome {
            Outcome::Done => Answer::Done,
            Outcome::Accepted(number) => Answer::Accepted(number),
            Outcome::AcceptedBatch(numbers) => Answer::Sent(numbers.into_iter().map(Ok).collect()),
            Outcome::Received(messages) => {
                if let Some(listed) = &self.listed {
                    listed.gauge().add_delivered(messages.len() as u64);
                }
                Answer::Received(messages)
            }
            Outcome::Peeked(messages) => Answer::Received(messages),
            Outcome::Renewed(until) => Answer::Renewed(vec![Ok(until)]),
            Outcome::Deleted(count) => Answer::Deleted(count),
            Outcome::SessionState(None) => Answer::State(None),
            Outcome::SessionState(Some(state)) => {
                let state = state.load().await.map_err(|error| {
                    tracing::error!(%error, "a session state cannot be read");
                    let error = MessageReadError::from(error);
                    self.entity.refuse(error.refusal("the state of a session"))
                })?;
                Answer::State(Some(state))
            }
            other => return Err(self.unexpected(&other)),
        })
    }

    /// Sends one message; with a transfer destination it is a batch with a single message.
    async fn accepted(&self, command: Command) -> Result<Answer, BrokerError> {
        let outcome = self.entity.call(command).await?;
        self.number(outcome).map(Answer::Accepted)
    }

    fn number(&self, outcome: Outcome) -> Result<SequenceNumber, BrokerError> {
        match outcome {
            Outcome::Accepted(number) => Ok(number),
            Outcome::AcceptedBatch(numbers) if numbers.len() == 1 => {
                Ok(numbers.first().copied().unwrap_or_default())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Repeats a deletion until nothing is left, and returns the sum (DEL-06).
    async fn purge(&self, delete: Command) -> Result<Answer, BrokerError> {
        let mut sum = 0;
        loop {
            match self.entity.call(delete.clone()).await? {
                Outcome::Deleted(0) => return Ok(Answer::Deleted(sum)),
                Outcome::Deleted(count) => sum += count,
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Calls many commands as one group.
    async fn each<T>(
        &self,
        commands: Vec<Command>,
        read: impl Fn(Outcome) -> Result<T, BrokerError>,
    ) -> Vec<Result<T, BrokerError>> {
        let results = self.entity.call_many(commands).await;
        results.into_iter().map(|result| read(result?)).collect()
    }
}

impl Link for EntityLink {
    fn path(&self) -> &str {
        self.entity.path()
    }

    fn mode(&self) -> ReceiveMode {
        self.mode
    }

    fn now(&self) -> Timestamp {
        self.entity.broker().now()
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.entity.refuse(rejection)
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        match request {
            Request::Send(message) => {
                let command = self.send(*message);
                Box::pin(self.accepted(command))
            }
            Request::SendEach(messages) => {
                let commands = messages.into_iter().map(|message| self.send(message)).collect();
                let read = |outcome| self.number(outcome);
                Box::pin(async move { Ok(Answer::Sent(self.each(commands, read).await)) })
            }
            Request::SettleEach(tokens, settlement) => Box::pin(async move {
                let settlement =
                    self.decided(settlement).map_err(|rejection| self.refuse(rejection))?;
                let settle = |token| Command::Settle { token, settlement: settlement.clone() };
                let commands = tokens.into_iter().map(settle).collect();
                Ok(Answer::Each(self.each(commands, |_| Ok(())).await))
            }),
            Request::Renew(tokens) => {
                let renew = |token| Command::RenewLock { token };
                let commands = tokens.into_iter().map(renew).collect();
                let read = |outcome| match outcome {
                    Outcome::Renewed(until) => Ok(until),
                    other => Err(self.unexpected(&other)),
                };
                Box::pin(async move { Ok(Answer::Renewed(self.each(commands, read).await)) })
            }
            request => {
                let is_purge = matches!(request, Request::Purge);
                let command = self.command(request).map_err(|rejection| self.refuse(rejection));
                Box::pin(async move {
                    match command? {
                        delete if is_purge => self.purge(delete).await,
                        command => self.carry_out(command).await,
                    }
                })
            }
        }
    }

    fn ask_until<'a>(&'a self, request: Request, stop: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        Box::pin(async move {
            let command = self.command(request).map_err(|rejection| self.refuse(rejection))?;
            let outcome = self.entity.call_until(command, stop).await?;
            self.answer(outcome).await
        })
    }

    fn give_back(&self, tokens: Vec<LockToken>) {
        let release = |token| Command::Settle { token, settlement: Decided::Release };
        submit_unanswered(&self.entity, tokens.into_iter().map(release).collect());
    }

    fn ask_in(&self, transaction: TransactionId, request: Request) -> BoxAnswer<'_, ()> {
        let command = self.command(request);
        Box::pin(async move {
            let question = match command {
                Ok(command) => self.transactions.issue(transaction, &self.entity, command).await,
                Err(rejection) => Err(rejection),
            };
            let question = question.map_err(|rejection| self.refuse(rejection))?;
            let outcome = question.entity.call(question.command).await?;
            question.issued.confirm(&outcome);
            Ok(())
        })
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        let holder = self.holder.filter(|_| !self.is_detached.swap(true, Ordering::AcqRel));
        Box::pin(async move {
            let Some(receiver) = holder else { return Ok(()) };
            let detach = Command::Detach { receiver, end: LinkEnd::Orderly };
            self.entity.call(detach).await.map(drop)
        })
    }
}

impl EntityLink {
    /// Ends the link immediately, without waiting; later calls do nothing.
    pub(super) fn end(&self, end: LinkEnd) {
        if let Some(receiver) = self.holder
            && !self.is_detached.swap(true, Ordering::AcqRel)
        {
            submit_unanswered(&self.entity, vec![Command::Detach { receiver, end }]);
        }
    }
}

impl Drop for EntityLink {
    fn drop(&mut self) {
        self.end(LinkEnd::Broken);
    }
}

fn only_as_list() -> Rejection {
    Rejection::invalid_operation("a list cannot be requested here")
}
