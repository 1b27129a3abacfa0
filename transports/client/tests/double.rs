//! Tests of the handles over a test double of the port: requests are correct, and a wrong answer
//! becomes an error.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use peeklock_client::port::{
    AcceptedSession, Answer, Arrival, BoxAnswer, BoxFuture, Deliveries, Link, Managed, Management,
    Port, Request, Settlement, Verdict,
};
use peeklock_client::{
    Client, ConsumerOptions, Delivery, JobType, Refusal, RequestError, RequesterOptions,
    SessionConsumerOptions, SessionDelivery,
};
use peeklock_client_testing::TestDelivery;
use peeklock_core::command::{ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber, TrackingId};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};

/// Returns the given answers in order, and records the requests.
#[derive(Clone, Default)]
struct Double {
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<VecDeque<Result<Answer, Condition>>>>,
    /// Whether one session can be accepted; there is no second one.
    has_session: Arc<Mutex<bool>>,
    /// Notified when the lock of the session is to be renewed, which is never answered.
    renewing: Arc<Notify>,
    /// For each link with credit in turn: `Ok` is the reason for closing it, `Err` the error of
    /// attaching it.
    links: Arc<Mutex<VecDeque<Result<Condition, Condition>>>>,
    /// Whether the port reports that it is closed.
    is_closed: Arc<Mutex<bool>>,
    /// Messages to deliver, one per link. Such a link is closed on request, others immediately.
    brings: Arc<Mutex<VecDeque<ReceivedMessage>>>,
    closing: Arc<Notify>,
    /// Notified when a link has delivered its message.
    brought: Arc<Notify>,
}

/// A link with credit, which is closed immediately or on request. All settlements over it succeed.
struct Closed {
    double: Double,
    link: Arc<dyn Link>,
    brings: Option<ReceivedMessage>,
    closing: BoxFuture<'static, ()>,
    settled: VecDeque<u64>,
    reason: Option<Condition>,
    is_finished: bool,
}

fn error(rejection: Rejection) -> BrokerError {
    BrokerError::new(rejection, TrackingId(7), "q", Timestamp::NONE)
}

/// Returns a message under lock.
fn received(body: &str) -> ReceivedMessage {
    let message = Message::new(body.to_owned());
    let content = ContentRef::Loaded(message.encode().as_bytes().clone());
    let facts = *TestDelivery::of(message).received().facts();
    ReceivedMessage { facts, content, overlays: Vec::new() }
}

impl Double {
    fn client(answers: impl IntoIterator<Item = Result<Answer, Condition>>) -> (Self, Client) {
        let double = Self::default();
        double.answers.lock().unwrap().extend(answers);
        (double.clone(), Client::over(Arc::new(double)))
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn unused<T>(&self) -> BoxAnswer<'_, T> {
        Box::pin(async { Err(error(Rejection::not_implemented("this"))) })
    }
}

impl Port for Double {
    fn now(&self) -> Timestamp {
        Timestamp::NONE
    }

    fn refuse(&self, rejection: Rejection, _: &str) -> BrokerError {
        error(rejection)
    }

    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError> {
        self.note(format!("sender {path} {via:?}"));
        Ok(Arc::new(self.clone()))
    }

    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError> {
        self.note(format!("receiver {path} {mode:?}"));
        Ok(Arc::new(self.clone()))
    }

    fn session<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a str>,
        _: ReceiveMode,
        _: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession> {
        if *self.is_closed.lock().unwrap() {
            let lost = Rejection::new(Condition::CommunicationProblem, "it is closed");
            return Box::pin(async { Err(error(lost)) });
        }
        if !std::mem::take(&mut *self.has_session.lock().unwrap()) {
            return Box::pin(std::future::pending());
        }
        let link: Arc<dyn Link> = Arc::new(self.clone());
        let locked_until = Timestamp::NONE.plus(TimeSpan::from_minutes(1));
        Box::pin(async move { Ok(AcceptedSession { link, session_id: "s".into(), locked_until }) })
    }

    fn deliveries<'a>(&'a self, _: &'a str, _: u32) -> BoxAnswer<'a, Box<dyn Deliveries>> {
        let link: Arc<dyn Link> = Arc::new(self.clone());
        let attached = self.links.lock().unwrap().pop_front().unwrap();
        let attached = attached.map_err(|condition| error(Rejection::new(condition, "as asked")));
        let double = self.clone();
        Box::pin(async move {
            let reason = Some(attached?);
            let brings = double.brings.lock().unwrap().pop_front();
            let (asked_for, waits) = (Arc::clone(&double.closing), brings.is_some());
            let closing: BoxFuture<'static, ()> = Box::pin(async move {
                if waits {
                    asked_for.notified().await;
                }
            });
            let settled = VecDeque::new();
            let is_finished = false;
            let closed = Closed { double, link, brings, closing, settled, reason, is_finished };
            Ok(Box::new(closed) as Box<dyn Deliveries>)
        })
    }

    fn manage<'a>(&'a self, path: &'a str, asked: Management) -> BoxAnswer<'a, Managed> {
        self.note(format!("{path} {asked:?}"));
        Box::pin(async { Ok(Managed::Done) })
    }

    fn begin(&self, _: Reach) -> BoxAnswer<'_, TransactionId> {
        self.unused()
    }

    fn commit(&self, _: TransactionId, _: u32) -> BoxAnswer<'_, Vec<PartOutcome>> {
        self.unused()
    }

    fn roll_back(&self, _: TransactionId) -> BoxAnswer<'_, ()> {
        self.unused()
    }

    fn forget(&self, _: TransactionId) {}

    fn reached(&self, _: bool) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn is_closed(&self) -> bool {
        *self.is_closed.lock().unwrap()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Link for Double {
    fn path(&self) -> &str {
        "q"
    }

    fn mode(&self) -> ReceiveMode {
        ReceiveMode::PeekLock
    }

    fn now(&self) -> Timestamp {
        Timestamp::NONE
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        error(rejection)
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        if matches!(request, Request::RenewSession) {
            self.renewing.notify_one();
            return Box::pin(std::future::pending());
        }
        let what = match &request {
            Request::Settle(token, settlement) => format!("settle {} {settlement:?}", token.0),
            Request::SettleEach(tokens, Settlement::Release) => format!("release {}", tokens.len()),
            Request::SendEach(messages) => format!("send {}", messages.len()),
            _ => "else".to_owned(),
        };
        self.note(what);
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        let told = answer.map_err(|condition| error(Rejection::new(condition, "as asked")));
        Box::pin(async { told })
    }

    fn ask_until<'a>(&'a self, request: Request, _: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        self.ask(request)
    }

    fn give_back(&self, _: Vec<LockToken>) {}

    fn ask_in(&self, _: TransactionId, _: Request) -> BoxAnswer<'_, ()> {
        self.unused()
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        self.note("detach".to_owned());
        Box::pin(async { Ok(()) })
    }
}

impl Deliveries for Closed {
    fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>> {
        if let Some(tag) = self.settled.pop_front() {
            return Poll::Ready(Some(Arrival::Settled { tag, result: Ok(()) }));
        }
        if let Some(message) = self.brings.take() {
            self.double.brought.notify_one();
            return Poll::Ready(Some(Arrival::Delivered { tag: 0, message: Box::new(message) }));
        }
        if self.reason.is_none() || self.closing.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let Some(reason) = self.reason.take() else { return Poll::Pending };
        let reason = Rejection::new(reason, "as asked");
        Poll::Ready(Some(Arrival::Detached(error(reason))))
    }

    fn settle(&mut self, group: Vec<Verdict>) {
        for Verdict { tag, settlement, .. } in group {
            self.double.note(format!("verdict {settlement:?}"));
            self.settled.push_back(tag);
        }
    }

    fn stop(&mut self) {}

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        self.is_finished = true;
        self.double.note("finish".to_owned());
        Box::pin(async {})
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if !self.is_finished {
            self.double.note("drop".to_owned());
        }
    }
}

/// Handles send the documented requests to their port.
#[tokio::test]
async fn handles_ask_their_port() {
    let (double, client) = Double::client([
        Ok(Answer::Sent(vec![Ok(SequenceNumber(1)), Ok(SequenceNumber(2))])),
        Ok(Answer::Done),
    ]);
    let sender = client.sender_via("q", "other").unwrap();
    let sent = sender.send_many(vec![Message::new("a"), Message::new("b")]).await;
    assert!(sent.into_iter().map(Result::unwrap).eq([SequenceNumber(1), SequenceNumber(2)]));
    let receiver = client.receiver("q").unwrap();
    receiver.settle_token(LockToken(9), Err(Refusal::Release)).await.unwrap();
    receiver.close().await.unwrap();
    let asked = double.asked();
    let expected =
        ["sender q Some(\"other\")", "send 2", "receiver q PeekLock", "settle 9 Release", "detach"];
    assert_eq!(asked, expected);
}

/// An error of a whole list is the result of each item, and an unexpected answer is an error.
#[tokio::test]
async fn an_unexpected_answer_is_an_error() {
    let tokens = [LockToken(1), LockToken(2)];
    let (_, client) = Double::client([
        Err(Condition::CommunicationProblem),
        Ok(Answer::Each(vec![Ok(())])),
        Ok(Answer::Done),
    ]);
    let receiver = client.receiver("q").unwrap();
    for condition in [Condition::CommunicationProblem, Condition::InternalError] {
        let released = receiver.release_many(&tokens).await;
        let conditions: Vec<_> =
            released.into_iter().map(|result| result.unwrap_err().condition()).collect();
        assert_eq!(conditions, [condition, condition]);
    }
    let nothing = receiver.receive(TimeSpan::ZERO).await;
    assert_eq!(nothing.unwrap_err().condition(), Condition::InternalError);
    let queue = client.admin().queue("q").await;
    assert_eq!(queue.unwrap_err().condition(), Condition::InternalError);
}

/// SES-12, SES-14: a handler continues while the lock of its session is being renewed, for any
/// time, as over a lost connection.
#[tokio::test(start_paused = true)]
async fn a_handler_goes_on_while_its_session_lock_is_renewed() {
    let (double, client) = Double::client([
        Ok(Answer::Received(vec![received("a")])),
        Ok(Answer::Done),
        Ok(Answer::Received(Vec::new())),
    ]);
    *double.has_session.lock().unwrap() = true;
    let (done, mut is_done) = mpsc::unbounded_channel();
    let renewing = Arc::clone(&double.renewing);
    let handler = move |_: SessionDelivery| {
        let (renewing, done) = (Arc::clone(&renewing), done.clone());
        async move {
            renewing.notified().await;
            done.send(()).unwrap();
            Ok(())
        }
    };
    let options = SessionConsumerOptions::at_once(1);
    let consumer = client.consume_sessions("q", handler, options).await.unwrap();
    // The paused clock advances when no task can continue.
    let told = tokio::time::timeout(Duration::from_secs(600), is_done.recv()).await;
    assert_eq!(told, Ok(Some(())), "the handler stands still");
    consumer.stop().await;
    assert!(double.asked().contains(&"settle 1 Complete".to_owned()));
}

/// RCV-16: after a transient error a link is attached again, also if that fails at first. A
/// permanent error, or a stopping broker, ends the consumer with the reason.
#[tokio::test(start_paused = true)]
async fn a_consumer_ends_with_a_permanent_error() {
    for last in [Condition::EntityNotFound, Condition::Unauthorized, Condition::OperationCancelled]
    {
        for last in [Ok(last), Err(last)] {
            let (double, client) = Double::client([]);
            let links = [
                Ok(Condition::InternalError),
                Err(Condition::ServerBusy),
                Ok(Condition::ServerBusy),
                last,
            ];
            double.links.lock().unwrap().extend(links);
            let handler = |_: Delivery| std::future::ready(Ok(()));
            let consumer = client.consume("q", handler, ConsumerOptions::default()).await.unwrap();
            let why = consumer.ended().await.unwrap();
            assert_eq!(Ok(why.condition()), last.or_else(Ok::<_, Condition>));
            assert!(double.links.lock().unwrap().is_empty());
        }
    }
}

/// SET-28, RCV-16: even without prefetch a message waits while a handler still has a message of the
/// previous link. If its lock has expired meanwhile, no handler gets it, and it is delivered again.
#[tokio::test(start_paused = true)]
async fn a_message_is_not_started_after_its_lock_expired_in_the_wait() {
    let mut late = received("b");
    late.facts.lock.as_mut().unwrap().until = Timestamp::NONE;
    let (double, client) = Double::client([Ok(Answer::Done)]);
    double.links.lock().unwrap().extend([Ok(Condition::ServerBusy), Ok(Condition::ServerBusy)]);
    double.brings.lock().unwrap().extend([received("a"), late]);
    let (begun, mut bodies) = mpsc::unbounded_channel();
    let gate = Arc::new(Notify::new());
    let handler = {
        let gate = Arc::clone(&gate);
        move |order: Delivery| {
            begun.send(order.body().clone()).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(())
            }
        }
    };
    let options = ConsumerOptions::at_once(1).without_renewal();
    let consumer = client.consume("q", handler, options).await.unwrap();
    double.brought.notified().await;
    assert_eq!(bodies.recv().await.unwrap(), "a");
    double.closing.notify_one();
    double.brought.notified().await;
    gate.notify_one();
    consumer.stop().await;
    assert!(bodies.try_recv().is_err(), "nobody may work on what somebody else has");
    assert!(double.asked().contains(&"verdict Release".to_owned()));
}

/// RCV-16: the consumer of a closed client ends with its last error, even if that error is
/// transient elsewhere.
#[tokio::test(start_paused = true)]
async fn a_consumer_ends_with_its_client() {
    let (double, client) = Double::client([]);
    let lost = Condition::CommunicationProblem;
    double.links.lock().unwrap().extend([Ok(Condition::ServerBusy), Err(lost)]);
    double.brings.lock().unwrap().push_back(received("a"));
    let handler = |_: Delivery| std::future::ready(Err(Refusal::abandon()));
    let consumer = client.consume("q", handler, ConsumerOptions::default()).await.unwrap();
    double.brought.notified().await;
    *double.is_closed.lock().unwrap() = true;
    double.closing.notify_one();
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::ServerBusy);
    assert_eq!(double.links.lock().unwrap().len(), 1, "it has not asked again");
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    cups: u32,
}

impl JobType for Order {
    const NAME: &'static str = "order";
}

/// SES-34: the requester of a closed client ends with its last error, even if that error is
/// transient elsewhere: waiting requests get the error, and the session is not requested forever.
#[tokio::test(start_paused = true)]
async fn a_requester_ends_with_its_client() {
    let lost = Condition::CommunicationProblem;
    // The request is sent, and the receive of replies fails.
    let (double, client) = Double::client([Ok(Answer::Accepted(SequenceNumber(1))), Err(lost)]);
    *double.has_session.lock().unwrap() = true;
    let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
    *double.is_closed.lock().unwrap() = true;
    let order = Order { cups: 2 };
    let reply = requester.request::<_, Order>("q", &order, TimeSpan::from_minutes(5)).await;
    assert!(
        matches!(&reply, Err(RequestError::Closed(why)) if why.condition() == lost),
        "{reply:?}"
    );
    // The requester's task has ended.
    requester.close().await;
}

/// SET-21, SET-23: a closed link is kept next to its successor while a handler has one of its
/// messages, whose lock would end with it. Then it is ended in order.
#[tokio::test(start_paused = true)]
async fn a_closed_link_stays_while_its_messages_are_in_hand() {
    let (double, client) = Double::client([Ok(Answer::Done)]);
    double.links.lock().unwrap().extend([Ok(Condition::ServerBusy), Ok(Condition::ServerBusy)]);
    double.brings.lock().unwrap().extend([received("a"), received("b")]);
    let (begun, mut bodies) = mpsc::unbounded_channel();
    let gate = Arc::new(Notify::new());
    let handler = {
        let gate = Arc::clone(&gate);
        move |order: Delivery| {
            begun.send(order.body().clone()).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(())
            }
        }
    };
    let options = ConsumerOptions::at_once(1).without_renewal();
    let consumer = client.consume("q", handler, options).await.unwrap();
    double.brought.notified().await;
    assert_eq!(bodies.recv().await.unwrap(), "a");
    double.closing.notify_one();
    double.brought.notified().await;
    assert!(double.asked().is_empty(), "a handler has something of the first link");
    gate.notify_one();
    assert_eq!(bodies.recv().await.unwrap(), "b");
    gate.notify_one();
    consumer.stop().await;
    let asked = double.asked();
    assert_eq!(asked, ["settle 1 Complete", "finish", "verdict Complete", "finish"]);
}
