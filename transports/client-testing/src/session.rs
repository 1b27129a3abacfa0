//! A session made by hand, for tests of handlers without a broker. The test sets its state and
//! inspects changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber, TrackingId};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::TransactionId;

use super::FIRST_INSTANT;
use peeklock_client::SessionReceiver;
use peeklock_client::port::{
    AcceptedSession, Answer, BoxAnswer, BoxFuture, Link, Request, Settlement,
};

/// Duration of its lock.
const LOCK: TimeSpan = TimeSpan::from_minutes(1);
/// Path of its entity.
const PATH: &str = "test";

/// A session made by hand, for deliveries made by hand: it has a state, and records settlements
/// that a handler makes with it. It contains no messages.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::SessionDelivery;
/// use peeklock::message::Message;
/// use peeklock::port::Settlement;
/// use peeklock::testing::{TestDelivery, TestSession};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let remember = |step: SessionDelivery| async move {
///     step.session.set_state(Some(step.body().clone())).await?;
///     Ok(())
/// };
/// let order = TestSession::new("order-7");
/// let settled = TestDelivery::of(Message::new("paid")).given_in(&order, &remember).await;
/// assert_eq!(settled, Settlement::Complete);
/// assert_eq!(order.state().unwrap(), "paid");
/// # }
/// ```
pub struct TestSession {
    receiver: Arc<SessionReceiver>,
    link: Arc<HandLink>,
}

#[derive(Default)]
struct HandLink {
    state: Mutex<Option<Bytes>>,
    settled: Mutex<Vec<(SequenceNumber, Settlement)>>,
}

impl TestSession {
    /// Creates a session without a state.
    #[must_use]
    pub fn new(id: &str) -> Self {
        let link = Arc::<HandLink>::default();
        let accepted = AcceptedSession {
            link: Arc::clone(&link) as Arc<dyn Link>,
            session_id: id.into(),
            locked_until: FIRST_INSTANT.plus(LOCK),
        };
        Self { receiver: Arc::new(SessionReceiver::by_hand(accepted)), link }
    }

    /// Sets the state.
    #[must_use]
    pub fn with_state(self, state: impl Into<Bytes>) -> Self {
        *lock(&self.link.state) = Some(state.into());
        self
    }

    /// Returns the handle for handlers.
    #[must_use]
    pub const fn receiver(&self) -> &Arc<SessionReceiver> {
        &self.receiver
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> Option<Bytes> {
        lock(&self.link.state).clone()
    }

    /// Returns the settlements that handlers made with the handle, without the settlements of their
    /// outcomes.
    #[must_use]
    pub fn settled(&self) -> Vec<(SequenceNumber, Settlement)> {
        lock(&self.link.settled).clone()
    }
}

impl HandLink {
    fn settle(&self, tokens: &[LockToken], settlement: &Settlement) {
        // The token of a delivery made by hand is its sequence number.
        let number = |token: &LockToken| SequenceNumber(u64::try_from(token.0).unwrap_or_default());
        let settled = tokens.iter().map(|token| (number(token), settlement.clone()));
        lock(&self.settled).extend(settled);
    }

    fn carry_out(&self, request: Request) -> Result<Answer, BrokerError> {
        Ok(match request {
            Request::Settle(token, settlement) => {
                self.settle(&[token], &settlement);
                Answer::Done
            }
            Request::SettleEach(tokens, settlement) => {
                self.settle(&tokens, &settlement);
                Answer::Each(tokens.iter().map(|_| Ok(())).collect())
            }
            Request::SessionState => Answer::State(lock(&self.state).clone()),
            Request::SetSessionState(state) => {
                *lock(&self.state) = state;
                Answer::Done
            }
            Request::RenewSession => Answer::Renewed(vec![Ok(self.now().plus(LOCK))]),
            Request::Renew(tokens) => {
                Answer::Renewed(tokens.iter().map(|_| Ok(self.now().plus(LOCK))).collect())
            }
            Request::Receive { .. } | Request::Peek { .. } => Answer::Received(Vec::new()),
            Request::DeleteBatch { .. } | Request::Purge => Answer::Deleted(0),
            Request::Send(_)
            | Request::SendEach(_)
            | Request::SendBatch(_)
            | Request::CancelScheduled(_)
            | Request::ReceiveDeferred(_) => return Err(self.without_broker()),
        })
    }

    fn without_broker(&self) -> BrokerError {
        self.refuse(Rejection::not_implemented("this, in a session made by hand,"))
    }
}

impl Link for HandLink {
    fn path(&self) -> &str {
        PATH
    }

    fn mode(&self) -> ReceiveMode {
        ReceiveMode::PeekLock
    }

    fn now(&self) -> Timestamp {
        FIRST_INSTANT
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        BrokerError::new(rejection, TrackingId(0), PATH, self.now())
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        let answer = self.carry_out(request);
        Box::pin(async { answer })
    }

    fn ask_until<'a>(&'a self, request: Request, _: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        self.ask(request)
    }

    fn give_back(&self, tokens: Vec<LockToken>) {
        self.settle(&tokens, &Settlement::Release);
    }

    fn ask_in(&self, _: TransactionId, _: Request) -> BoxAnswer<'_, ()> {
        Box::pin(async { Err(self.without_broker()) })
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// Locks a mutex. A panic cannot leave its data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
