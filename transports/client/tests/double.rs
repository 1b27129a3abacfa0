//! Handles over a port of somebody else's, here the double of a test: it is asked what it should be, and what
//! it answers amiss is an error of the caller's and nothing worse.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use peeklock_client::port::{
    Accepted, Answer, Answering, Arrival, Deliveries, Link, Managed, Management, Port, Request,
    Settlement, Verdict, Waiting,
};
use peeklock_client::testing::TestDelivery;
use peeklock_client::{
    Client, ConsumerOptions, Delivery, Refusal, SessionConsumerOptions, SessionDelivery,
};
use peeklock_core::command::{ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber, TrackingId};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};
use tokio::sync::{Notify, mpsc};

/// Answers what it was given, in its order, and remembers what it was asked.
#[derive(Clone, Default)]
struct Double {
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<VecDeque<Result<Answer, Condition>>>>,
    /// Whether a session can be accepted; no second one comes.
    has_session: Arc<Mutex<bool>>,
    /// Told when the lock of the session is to be renewed, which is never answered.
    renewing: Arc<Notify>,
    /// What links with credit are closed for, one after the other, or what attaching them is refused for.
    links: Arc<Mutex<VecDeque<Result<Condition, Condition>>>>,
}

/// A link that is closed at once.
struct Closed {
    link: Arc<dyn Link>,
    reason: Option<Condition>,
}

fn error(rejection: Rejection) -> BrokerError {
    BrokerError::new(rejection, TrackingId(7), "q", Timestamp::NONE)
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

    fn unused<T>(&self) -> Answering<'_, T> {
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
    ) -> Answering<'a, Accepted> {
        if !std::mem::take(&mut *self.has_session.lock().unwrap()) {
            return Box::pin(std::future::pending());
        }
        let link: Arc<dyn Link> = Arc::new(self.clone());
        let locked_until = Timestamp::NONE.plus(TimeSpan::from_minutes(1));
        Box::pin(async move { Ok(Accepted { link, session_id: "s".into(), locked_until }) })
    }

    fn deliveries<'a>(&'a self, _: &'a str, _: u32) -> Answering<'a, Box<dyn Deliveries>> {
        let link: Arc<dyn Link> = Arc::new(self.clone());
        let attached = self.links.lock().unwrap().pop_front().unwrap();
        let attached = attached.map_err(|condition| error(Rejection::new(condition, "as asked")));
        Box::pin(async move {
            Ok(Box::new(Closed { link, reason: Some(attached?) }) as Box<dyn Deliveries>)
        })
    }

    fn manage<'a>(&'a self, path: &'a str, asked: Management) -> Answering<'a, Managed> {
        self.note(format!("{path} {asked:?}"));
        Box::pin(async { Ok(Managed::Done) })
    }

    fn begin(&self, _: Reach) -> Answering<'_, TransactionId> {
        self.unused()
    }

    fn commit(&self, _: TransactionId, _: u32) -> Answering<'_, Vec<PartOutcome>> {
        self.unused()
    }

    fn roll_back(&self, _: TransactionId) -> Answering<'_, ()> {
        self.unused()
    }

    fn forget(&self, _: TransactionId) {}

    fn reached(&self, _: bool) -> Waiting<'_, ()> {
        Box::pin(async {})
    }

    fn close(&self) -> Waiting<'_, ()> {
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

    fn ask(&self, request: Request) -> Answering<'_, Answer> {
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

    fn ask_until<'a>(&'a self, request: Request, _: Waiting<'a, ()>) -> Answering<'a, Answer> {
        self.ask(request)
    }

    fn give_back(&self, _: Vec<LockToken>) {}

    fn ask_in(&self, _: TransactionId, _: Request) -> Answering<'_, ()> {
        self.unused()
    }

    fn detach(&self) -> Answering<'_, ()> {
        self.note("detach".to_owned());
        Box::pin(async { Ok(()) })
    }
}

impl Deliveries for Closed {
    fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let Some(reason) = self.reason.take() else { return Poll::Pending };
        let reason = Rejection::new(reason, "as asked");
        Poll::Ready(Some(Arrival::Detached(error(reason))))
    }

    fn settle(&mut self, _: Vec<Verdict>) {}

    fn stop(&mut self) {}

    fn finish(self: Box<Self>) -> Waiting<'static, ()> {
        Box::pin(async {})
    }
}

/// A handle asks its port for what it promises.
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

/// What concerns a whole list is the result of each, and what answers something else is an error.
#[tokio::test]
async fn an_answer_amiss_is_an_error() {
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

/// SES-12, SES-14: a handler goes on while the lock of its session is being renewed, however long that takes, as it does over
/// a connection that is lost.
#[tokio::test(start_paused = true)]
async fn a_handler_goes_on_while_its_session_lock_is_renewed() {
    let message = Message::new("a");
    let content = ContentRef::Loaded(message.encode().as_bytes().clone());
    let facts = *TestDelivery::of(message).received().facts();
    let received = ReceivedMessage { facts, content, overlays: Vec::new() };
    let (double, client) = Double::client([
        Ok(Answer::Received(vec![received])),
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
    // The time of the runtime passes where nobody can go on.
    let told = tokio::time::timeout(Duration::from_secs(600), is_done.recv()).await;
    assert_eq!(told, Ok(Some(())), "the handler stands still");
    consumer.stop().await;
    assert!(double.asked().contains(&"settle 1 Complete".to_owned()));
}

/// RCV-16: a link that was closed for what can pass is made anew, also when that fails at first, and a consumer ends with the
/// reason that cannot, or when its broker is stopped.
#[tokio::test(start_paused = true)]
async fn a_consumer_ends_with_what_cannot_pass() {
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
