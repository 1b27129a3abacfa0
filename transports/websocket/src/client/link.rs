//! Implements the link of the port: turns requests into operations and notices into answers.
//! Handles call it through the port, and the driver resolves its answers.

use peeklock_client::port::{self, Answer, BoxAnswer, BoxFuture, Request, Settlement};
use peeklock_core::command::{RETRY_DELAY_PROPERTY, ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Overlay, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::TransactionId;
use tokio::sync::oneshot;

use super::core::{HandleRequest, Link};
use crate::frame::message::{DeliveredContent, DeliveredMessage, Properties, SentMessage};
use crate::frame::text::{Instant, Token};
use crate::frame::{LIST_COUNT_MAX, Run};
use crate::operation::{
    CancelScheduledIn, Decision, Delay, DeleteBatch, FailedRange, LinkOnly, Notice, Numbered,
    Operation, Peek, PeekSession, Purge, Receive, Renew, RenewIn, Send, SendIn, SetSessionState,
    SetSessionStateIn, Settle, SettleDelayed, SettleIn,
};

/// Number of locks in one request; fewer than `commandCountMax` of any broker.
const PART_COUNT: usize = 512;

impl port::Link for Link {
    fn path(&self) -> &str {
        &self.path
    }

    fn mode(&self) -> ReceiveMode {
        self.mode
    }

    fn now(&self) -> Timestamp {
        self.core.now()
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.core.refuse(rejection, &self.path)
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        match request {
            // Sends that are under way together share a frame, as do completions.
            Request::Send(message) => {
                let begun = self.begin_send(*message);
                Box::pin(async move { self.sent(begun).await.map(Answer::Accepted) })
            }
            Request::SendEach(messages) => {
                let begun: Vec<_> =
                    messages.into_iter().map(|message| self.begin_send(message)).collect();
                Box::pin(async move {
                    let mut results = Vec::with_capacity(begun.len());
                    for begun in begun {
                        results.push(self.sent(begun).await);
                    }
                    Ok(Answer::Sent(results))
                })
            }
            Request::Settle(token, Settlement::Complete) => {
                let begun = self.begin_complete(token);
                Box::pin(async move { self.completed(begun).await.map(|()| Answer::Done) })
            }
            Request::Settle(token, settlement) => Box::pin(async move {
                let settle = self.settle(vec![Token(token)], settlement);
                let mut results = self.settled(settle, 1).await?;
                results.pop().unwrap_or(Ok(())).map(|()| Answer::Done)
            }),
            Request::SettleEach(tokens, Settlement::Complete) => {
                let begun: Vec<_> =
                    tokens.into_iter().map(|token| self.begin_complete(token)).collect();
                Box::pin(async move {
                    let mut results = Vec::with_capacity(begun.len());
                    for begun in begun {
                        results.push(self.completed(begun).await);
                    }
                    Ok(Answer::Each(results))
                })
            }
            Request::SettleEach(tokens, settlement) => Box::pin(async move {
                let mut results = Vec::with_capacity(tokens.len());
                for part in tokens.chunks(PART_COUNT) {
                    let settle = self.settle(wire_tokens(part), settlement.clone());
                    results.extend(self.settled(settle, part.len()).await?);
                }
                Ok(Answer::Each(results))
            }),
            Request::Renew(tokens) => Box::pin(async move {
                let mut results = Vec::with_capacity(tokens.len());
                for part in tokens.chunks(PART_COUNT) {
                    results.extend(self.renewed(part).await?);
                }
                Ok(Answer::Renewed(results))
            }),
            request => Box::pin(async move {
                let sent_count = match &request {
                    Request::SendBatch(messages) => messages.len(),
                    _ => 0,
                };
                let answer = self.call(self.operation(request)).await?;
                self.answer(answer, sent_count)
            }),
        }
    }

    fn ask_until<'a>(&'a self, request: Request, stop: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        Box::pin(async move {
            let operation = self.operation(request);
            match self.core.call_until(Some(self.number), &self.path, operation, stop).await {
                Ok(answer) => self.answer(answer, 0),
                // The receive was withdrawn before it was sent.
                Err(error) if error.condition() == Condition::OperationCancelled => {
                    Ok(Answer::Received(Vec::new()))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn give_back(&self, tokens: Vec<LockToken>) {
        for part in tokens.chunks(PART_COUNT) {
            self.send_unanswered(Operation::Settle(
                self.settle(wire_tokens(part), Settlement::Release),
            ));
        }
    }

    fn ask_in(&self, transaction: TransactionId, request: Request) -> BoxAnswer<'_, ()> {
        Box::pin(async move {
            let TransactionId(transaction) = transaction;
            let operation = match self.operation(request) {
                Operation::Send(send) | Operation::SendBatch(send) => {
                    Operation::SendIn(SendIn { transaction, send })
                }
                Operation::Settle(settle) => Operation::SettleIn(SettleIn { transaction, settle }),
                Operation::SettleDelayed(delayed) => Operation::SettleIn(SettleIn {
                    transaction,
                    settle: delay_as_property(delayed),
                }),
                Operation::Renew(renew) => Operation::RenewIn(RenewIn { transaction, renew }),
                Operation::CancelScheduled(cancel_scheduled) => {
                    Operation::CancelScheduledIn(CancelScheduledIn {
                        transaction,
                        cancel_scheduled,
                    })
                }
                Operation::SetSessionState(set_session_state) => {
                    Operation::SetSessionStateIn(SetSessionStateIn {
                        transaction,
                        set_session_state,
                    })
                }
                _ => {
                    let detail = "a transaction can only send, settle, renew a message lock, cancel a schedule and set the \
                                  state of a session (TXN-02)";
                    return Err(port::Link::refuse(self, Rejection::invalid_operation(detail)));
                }
            };
            match self.call(operation).await? {
                Notice::Settled(mut settled) => match settled.failed.pop() {
                    Some(failed) => Err(failed.error.into_error()),
                    None => Ok(()),
                },
                Notice::Done(_) | Notice::Accepted(_) => Ok(()),
                _ => Err(self.unexpected()),
            }
        })
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        Box::pin(self.end())
    }
}

impl Link {
    pub(super) fn begin_send(
        &self,
        message: Message,
    ) -> oneshot::Receiver<Result<u64, BrokerError>> {
        let (answer, answered) = oneshot::channel();
        // Encoded here, so that the work is done in the task of the caller.
        let message = SentMessage::Content(message.encode().as_bytes().clone());
        self.core.submit(HandleRequest::Send { link: self.number, message, answer });
        answered
    }

    async fn sent(
        &self,
        begun: oneshot::Receiver<Result<u64, BrokerError>>,
    ) -> Result<SequenceNumber, BrokerError> {
        self.core.answered(begun, &self.path).await.map(SequenceNumber)
    }

    pub(super) fn begin_complete(
        &self,
        token: LockToken,
    ) -> oneshot::Receiver<Result<(), BrokerError>> {
        let (answer, answered) = oneshot::channel();
        self.core.submit(HandleRequest::Complete {
            link: self.number,
            token: Token(token),
            answer,
        });
        answered
    }

    pub(super) async fn completed(
        &self,
        begun: oneshot::Receiver<Result<(), BrokerError>>,
    ) -> Result<(), BrokerError> {
        self.core.answered(begun, &self.path).await
    }

    /// Returns the operation that corresponds to a request.
    fn operation(&self, request: Request) -> Operation {
        let link = self.number;
        let numbers = |sequences: Vec<SequenceNumber>| {
            let sequence_numbers = sequences.into_iter().map(|number| number.0).collect();
            Numbered { link, sequence_numbers }
        };
        match request {
            Request::Send(message) => Operation::Send(self.messages(vec![*message])),
            Request::SendEach(messages) => Operation::Send(self.messages(messages)),
            Request::SendBatch(messages) => Operation::SendBatch(self.messages(messages)),
            Request::CancelScheduled(sequences) => Operation::CancelScheduled(numbers(sequences)),
            Request::Receive { count_max, wait } => {
                let most = u32::try_from(LIST_COUNT_MAX).unwrap_or(u32::MAX);
                let (max_count, wait_seconds) = (count_max.min(most), wait.as_seconds_f64());
                Operation::Receive(Receive { link, max_count, wait_seconds })
            }
            Request::ReceiveDeferred(sequences) => Operation::ReceiveDeferred(numbers(sequences)),
            Request::Peek { session_id: None, from, count_max } => {
                Operation::Peek(Peek { link, from: from.0, max_count: count_max })
            }
            Request::Peek { session_id: Some(session_id), from, count_max } => {
                let (session_id, from) = (session_id.into(), from.0);
                let max_count = count_max;
                Operation::PeekSession(PeekSession { link, session_id, from, max_count })
            }
            Request::Settle(token, settlement) => {
                settling(self.settle(vec![Token(token)], settlement))
            }
            Request::SettleEach(tokens, settlement) => {
                settling(self.settle(wire_tokens(&tokens), settlement))
            }
            Request::Renew(tokens) => {
                let lock_tokens = wire_tokens(&tokens);
                Operation::Renew(Renew { link, ranges: Vec::new(), lock_tokens })
            }
            Request::DeleteBatch { count_max, enqueued_before } => {
                let enqueued_before_utc = enqueued_before.map(Instant);
                let max_count = count_max;
                Operation::DeleteBatch(DeleteBatch { link, max_count, enqueued_before_utc })
            }
            Request::Purge => Operation::Purge(Purge { link, enqueued_before_utc: None }),
            Request::RenewSession => Operation::RenewSession(LinkOnly { link }),
            Request::SessionState => Operation::GetSessionState(LinkOnly { link }),
            Request::SetSessionState(state) => {
                Operation::SetSessionState(SetSessionState { link, state })
            }
        }
    }

    fn messages(&self, messages: Vec<Message>) -> Send {
        let messages =
            messages.into_iter().map(|message| SentMessage::Typed(Box::new(message))).collect();
        Send { link: self.number, messages }
    }

    fn settle(&self, lock_tokens: Vec<Token>, settlement: Settlement) -> Settle {
        let none = Vec::new();
        let mut delay_milliseconds = Delay::NONE;
        let (decision, properties, reason, description) = match settlement {
            Settlement::Complete => (Decision::Complete, none, None, None),
            Settlement::Abandon { properties, delay } => {
                delay_milliseconds = Delay(delay.map(TimeSpan::as_ms));
                (Decision::Abandon, properties, None, None)
            }
            Settlement::Defer { properties } => (Decision::Defer, properties, None, None),
            Settlement::DeadLetter { reason, description, properties } => {
                (Decision::DeadLetter, properties, reason, description)
            }
            Settlement::Release => (Decision::Release, none, None, None),
        };
        let some = |properties: Vec<(String, Value)>| {
            (!properties.is_empty()).then_some(Properties(properties))
        };
        let (link, ranges, properties) = (self.number, Vec::new(), some(properties));
        Settle {
            link,
            decision,
            ranges,
            lock_tokens,
            properties,
            reason,
            description,
            delay_milliseconds,
        }
    }

    async fn settled(
        &self,
        settle: Settle,
        count: usize,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        match self.call(settling(settle)).await? {
            Notice::Settled(settled) => Ok(each(count, (), &settled.failed)),
            _ => Err(self.unexpected()),
        }
    }

    async fn renewed(
        &self,
        tokens: &[LockToken],
    ) -> Result<Vec<Result<Timestamp, BrokerError>>, BrokerError> {
        let (link, ranges, lock_tokens) = (self.number, Vec::new(), wire_tokens(tokens));
        let renew = Operation::Renew(Renew { link, ranges, lock_tokens });
        match self.call(renew).await? {
            Notice::Renewed(renewed) => {
                // This is the earliest end of all; if it is absent, each renewal has failed.
                let until = renewed.locked_until_utc.map_or(Timestamp::NONE, |Instant(at)| at);
                Ok(each(tokens.len(), until, &renewed.failed))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn answer(&self, notice: Notice, sent_count: usize) -> Result<Answer, BrokerError> {
        Ok(match notice {
            Notice::Done(_) => Answer::Done,
            Notice::Accepted(accepted) => {
                let numbers = Run::expand(&accepted.sequence_numbers, sent_count);
                Answer::Sent(numbers.into_iter().map(|number| Ok(SequenceNumber(number))).collect())
            }
            Notice::Received(messages) => {
                let messages = messages.messages.into_iter().map(|message| {
                    let mut message = received(message);
                    message.facts.sub_queue = self.sub_queue;
                    message
                });
                Answer::Received(messages.collect())
            }
            Notice::Renewed(renewed) => match renewed.locked_until_utc {
                Some(Instant(until)) => Answer::Renewed(vec![Ok(until)]),
                None => return Err(self.unexpected()),
            },
            Notice::Deleted(deleted) => Answer::Deleted(deleted.count),
            Notice::SessionState(state) => Answer::State(state.state),
            _ => return Err(self.unexpected()),
        })
    }
}

/// Converts a delivery to the type of the in-process handles.
pub(super) fn received(delivered: DeliveredMessage) -> ReceivedMessage {
    let (content, overlays) = match delivered.carried {
        DeliveredContent::Stored { content, overlays } => (content, overlays),
        DeliveredContent::Typed { message, dead_letter_source } => {
            let source = dead_letter_source.as_deref().map(Overlay::dead_letter_source);
            let overlays = source.iter().map(|overlay| overlay.as_bytes().clone()).collect();
            (message.encode().as_bytes().clone(), overlays)
        }
    };
    ReceivedMessage {
        facts: delivered.facts,
        content: ContentRef::Loaded(content),
        overlays: overlays.into_iter().map(ContentRef::Loaded).collect(),
    }
}

fn wire_tokens(tokens: &[LockToken]) -> Vec<Token> {
    tokens.iter().copied().map(Token).collect()
}

/// Returns a result for each of `count` elements: the error of its range if it failed, else `done`.
fn each<T: Copy>(count: usize, done: T, failed: &[FailedRange]) -> Vec<Result<T, BrokerError>> {
    let mut results: Vec<_> = (0..count).map(|_| Ok(done)).collect();
    for FailedRange { from, to, error } in failed {
        let from = usize::try_from(*from).unwrap_or(usize::MAX);
        let to = usize::try_from(*to).unwrap_or(usize::MAX).min(count.saturating_sub(1));
        for result in results.iter_mut().take(to.saturating_add(1)).skip(from) {
            *result = Err(error.clone().into_error());
        }
    }
    results
}

/// Returns the operation of a settlement; one with a delay has its own operation (RTY-26).
fn settling(mut settle: Settle) -> Operation {
    let Delay(delay) = std::mem::take(&mut settle.delay_milliseconds);
    match delay.and_then(|delay| u64::try_from(delay).ok()) {
        Some(delay_milliseconds) => {
            Operation::SettleDelayed(SettleDelayed { delay_milliseconds, settle })
        }
        None => Operation::Settle(settle),
    }
}

/// Moves the delay to a property, as transactions require (RTY-28).
fn delay_as_property(delayed: SettleDelayed) -> Settle {
    let SettleDelayed { delay_milliseconds, mut settle } = delayed;
    let Properties(mut properties) = settle.properties.take().unwrap_or(Properties(Vec::new()));
    properties.retain(|(name, _)| name != RETRY_DELAY_PROPERTY);
    properties.push((RETRY_DELAY_PROPERTY.to_owned(), Value::U64(delay_milliseconds)));
    settle.properties = Some(Properties(properties));
    settle
}
