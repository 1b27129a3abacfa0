//! Handles over a port of somebody else's, here the double of a test: it is asked what it should be, and what
//! it answers amiss is an error of the caller's and nothing worse.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use peeklock_client::port::{
    Accepted, Answer, Answering, Deliveries, Link, Managed, Management, Port, Request, Settlement,
    Waiting,
};
use peeklock_client::{Client, Refusal};
use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber, TrackingId};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};

/// Answers what it was given, in its order, and remembers what it was asked.
#[derive(Clone, Default)]
struct Double {
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<VecDeque<Result<Answer, Condition>>>>,
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
        self.unused()
    }

    fn deliveries<'a>(&'a self, _: &'a str, _: u32) -> Answering<'a, Box<dyn Deliveries>> {
        self.unused()
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
