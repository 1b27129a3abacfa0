//! State that all handles of a client share: calls that wait for the driver, and links. Handles and
//! the driver share it behind a lock.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::task::AtomicWaker;
use peeklock_core::command::{ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::TrackingId;
use peeklock_core::path::{EntityAddress, SubQueue};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use super::backoff::random_bits;
use crate::frame::message::SentMessage;
use crate::frame::text::Token;
use crate::operation::{
    AcceptSession, Attach, AttachVia, Credit, Detach, Notice, Operation, Role, SessionAccepted,
};

/// Sends the answer to a call.
pub(super) type AnswerSender = oneshot::Sender<Result<Notice, BrokerError>>;

/// A request of a handle to the driver.
pub(super) enum HandleRequest {
    /// One operation.
    Operation {
        key: u64,
        link: Option<u32>,
        operation: Box<Operation>,
        answer: Option<AnswerSender>,
    },
    /// One send, which may share a frame with others.
    Send { link: u32, message: SentMessage, answer: oneshot::Sender<Result<u64, BrokerError>> },
    /// One completion, which may share a frame with others.
    Complete { link: u32, token: Token, answer: oneshot::Sender<Result<(), BrokerError>> },
    /// Acceptance of a session, with the number of its link.
    Accept { key: u64, accept: Box<AcceptSession>, answer: AnswerSender },
    /// The caller has dropped the call.
    Withdraw { key: u64 },
    /// The handle of the link was dropped.
    Forget { link: u32, release: bool },
}

/// Client state of a link, which outlives connections.
pub(super) struct LinkState {
    /// Operation that attaches the link on a new connection; none if the link is bound to a
    /// session, since its lock does not survive the connection.
    pub(super) attach: Option<Operation>,
    /// Receiver of pushed deliveries.
    pub(super) pushed: Option<mpsc::UnboundedSender<PushEvent>>,
}

impl LinkState {
    /// Whether a consumer takes pushed deliveries of this link.
    pub(super) fn is_pushed(&self) -> bool {
        self.pushed.as_ref().is_some_and(|pushed| !pushed.is_closed())
    }

    /// Returns the operation that attaches the link on a new connection. Without a consumer for
    /// pushed deliveries it gives no credit.
    pub(super) fn attach_again(&self) -> Option<Operation> {
        let mut attach = self.attach.clone()?;
        if let Operation::Attach(attach) = &mut attach
            && !self.is_pushed()
        {
            attach.credit = None;
        }
        Some(attach)
    }
}

/// An event for a consumer of pushed deliveries.
pub(super) enum PushEvent {
    /// A message.
    Message(Box<ReceivedMessage>),
    /// The link was attached to a new session of the connection: delivery numbers start again, and
    /// locks are lost.
    Fresh,
    /// The entity no longer delivers to the link.
    Detached(BrokerError),
}

/// The part of a client that handles and driver share.
pub(super) struct Core {
    state: Mutex<State>,
    pub(super) waker: AtomicWaker,
    next_link: AtomicU32,
    next_key: AtomicU64,
    /// Lead of the broker's clock over the local clock, in ticks.
    ahead: AtomicI64,
    is_connected: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    queued: VecDeque<HandleRequest>,
    links: BTreeMap<u32, LinkState>,
    /// Whether there is a link with pushed deliveries that the driver has not seen.
    has_new_link: bool,
    /// Reason why the client no longer carries out calls.
    closed: Option<Rejection>,
    closing: bool,
    closed_waiters: Vec<oneshot::Sender<()>>,
}

/// Shared by all handles; dropping the last one closes the connection in order.
pub(super) struct Lifeline {
    pub(super) core: Arc<Core>,
}

/// The link of a handle; dropping it detaches the link.
pub(super) struct Link {
    pub(super) core: Arc<Lifeline>,
    pub(super) number: u32,
    pub(super) path: Arc<str>,
    pub(super) sub_queue: SubQueue,
    pub(super) mode: ReceiveMode,
    /// Whether dropping it releases its locks and increments the delivery counts (SET-23).
    release_on_drop: AtomicBool,
}

impl Core {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            waker: AtomicWaker::new(),
            next_link: AtomicU32::new(1),
            next_key: AtomicU64::new(1),
            ahead: AtomicI64::new(0),
            is_connected: watch::Sender::new(true),
        }
    }

    /// Makes an error with a tracking id of this client, for failures that the broker did not
    /// report.
    pub(super) fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        let part = || u128::from(random_bits());
        let id = part() << 96 | part() << 64 | part() << 32 | part();
        BrokerError::new(rejection, TrackingId(id), entity, self.now())
    }

    /// Returns the time of the broker's clock, estimated from the last welcome.
    pub(super) fn now(&self) -> Timestamp {
        let ticks = local_now().ticks().saturating_add(self.ahead.load(Ordering::Relaxed));
        Timestamp::from_ticks(ticks)
    }

    pub(super) fn learn_clock(&self, now: Timestamp) {
        self.ahead.store(now.ticks() - local_now().ticks(), Ordering::Relaxed);
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.send_replace(is_connected);
    }

    /// Waits until the client is connected, or until it is not.
    pub(super) async fn until(&self, is_connected: bool) {
        let mut connected = self.is_connected.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _closed = connected.wait_for(|is| *is == is_connected).await;
    }

    pub(super) fn key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a request to the driver.
    pub(super) fn submit(&self, ask: HandleRequest) {
        let mut state = self.lock();
        if let Some(rejection) = state.closed.clone() {
            drop(state);
            self.fail(ask, &rejection);
            return;
        }
        state.queued.push_back(ask);
        drop(state);
        self.waker.wake();
    }

    /// Sends one operation and waits for the answer.
    pub(super) async fn call(
        self: &Arc<Self>,
        link: Option<u32>,
        path: &str,
        operation: Operation,
    ) -> Result<Notice, BrokerError> {
        let key = self.key();
        let (answer, answered) = oneshot::channel();
        let operation = Box::new(operation);
        self.submit(HandleRequest::Operation { key, link, operation, answer: Some(answer) });
        let withdrawal = Withdrawal { core: Arc::clone(self), key: Some(key) };
        let answer = self.answered(answered, path).await;
        withdrawal.disarm();
        answer
    }

    /// Same as [`Core::call`], but withdraws the call when `stop` completes. The answer is then the
    /// messages that the call has received until now.
    pub(super) async fn call_until(
        self: &Arc<Self>,
        link: Option<u32>,
        path: &str,
        operation: Operation,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Notice, BrokerError> {
        let key = self.key();
        let (answer, answered) = oneshot::channel();
        let operation = Box::new(operation);
        self.submit(HandleRequest::Operation { key, link, operation, answer: Some(answer) });
        let withdrawal = Withdrawal { core: Arc::clone(self), key: Some(key) };
        let mut answer = pin!(self.answered(answered, path));
        let mut stop = pin!(stop);
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = &mut stop => {
                self.submit(HandleRequest::Withdraw { key });
                answer.await
            }
        };
        withdrawal.disarm();
        answer
    }

    pub(super) async fn answered<T>(
        &self,
        answered: oneshot::Receiver<Result<T, BrokerError>>,
        path: &str,
    ) -> Result<T, BrokerError> {
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(self.refuse(lost("the connection ended"), path)),
        }
    }

    /// Moves the requests of handles to the driver.
    pub(super) fn take(&self, into: &mut VecDeque<HandleRequest>) {
        let mut state = self.lock();
        state.has_new_link = false;
        into.append(&mut state.queued);
    }

    /// Whether there are requests that the driver has not taken.
    pub(super) fn has_new_requests(&self, is_told_to_close: bool) -> bool {
        let state = self.lock();
        !state.queued.is_empty() || state.has_new_link || (state.closing && !is_told_to_close)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Whether the client no longer carries out calls.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    pub(super) fn links<R>(&self, look: impl FnOnce(&mut BTreeMap<u32, LinkState>) -> R) -> R {
        look(&mut self.lock().links)
    }

    /// Closes the connection in order and waits until it is closed.
    pub(super) async fn close(&self) {
        let (sender, closed) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.closed.is_some() {
                return;
            }
            state.closing = true;
            state.closed_waiters.push(sender);
        }
        self.waker.wake();
        closed.await.ok();
    }

    /// Closes the connection in order without waiting.
    pub(super) fn begin_close(&self) {
        self.lock().closing = true;
        self.waker.wake();
    }

    /// Ends the client; all calls fail with this rejection.
    pub(super) fn end(&self, rejection: &Rejection) {
        let (queued, waiters) = {
            let mut state = self.lock();
            state.closed = Some(rejection.clone());
            state.links.clear();
            (std::mem::take(&mut state.queued), std::mem::take(&mut state.closed_waiters))
        };
        for ask in queued {
            self.fail(ask, rejection);
        }
        for waiter in waiters {
            waiter.send(()).ok();
        }
    }

    /// Fails a call with this rejection.
    pub(super) fn fail(&self, ask: HandleRequest, rejection: &Rejection) {
        let error = || self.refuse(rejection.clone(), "");
        match ask {
            HandleRequest::Operation { answer: Some(answer), .. } => {
                drop(answer.send(Err(error())))
            }
            HandleRequest::Send { answer, .. } => drop(answer.send(Err(error()))),
            HandleRequest::Complete { answer, .. } => drop(answer.send(Err(error()))),
            HandleRequest::Accept { answer, .. } => drop(answer.send(Err(error()))),
            HandleRequest::Operation { answer: None, .. }
            | HandleRequest::Withdraw { .. }
            | HandleRequest::Forget { .. } => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lifeline {
    /// Makes a link.
    pub(super) fn attach(
        self: &Arc<Self>,
        path: &str,
        role: Role,
        mode: ReceiveMode,
    ) -> Result<Link, BrokerError> {
        self.attach_pushed(path, role, mode, None)
    }

    /// Makes a link with credit whose deliveries go to `pushed`.
    pub(super) fn attach_pushed(
        self: &Arc<Self>,
        path: &str,
        role: Role,
        mode: ReceiveMode,
        pushed: Option<(u32, mpsc::UnboundedSender<PushEvent>)>,
    ) -> Result<Link, BrokerError> {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        let (credit, pushed) = pushed.unzip();
        let attach =
            Attach { link: number, path: path.to_owned(), role, mode: mode.into(), credit };
        self.keep(number, path, Operation::Attach(attach), pushed)?;
        Ok(self.link(number, path, mode, role == Role::Receiver))
    }

    /// Makes a link that sends to one entity through another (VIA-01).
    pub(super) fn attach_via(
        self: &Arc<Self>,
        destination: &str,
        via: &str,
    ) -> Result<Link, BrokerError> {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        let (path, destination) = (via.to_owned(), destination.to_owned());
        let attach = Operation::AttachVia(AttachVia { link: number, path, destination });
        self.keep(number, via, attach, None)?;
        Ok(self.link(number, via, ReceiveMode::PeekLock, false))
    }

    fn keep(
        &self,
        number: u32,
        path: &str,
        attach: Operation,
        pushed: Option<mpsc::UnboundedSender<PushEvent>>,
    ) -> Result<(), BrokerError> {
        let mut state = self.lock();
        if let Some(rejection) = state.closed.clone() {
            drop(state);
            return Err(self.refuse(rejection, path));
        }
        state.has_new_link |= pushed.is_some();
        state.links.insert(number, LinkState { attach: Some(attach), pushed });
        drop(state);
        self.waker.wake();
        Ok(())
    }

    fn link(
        self: &Arc<Self>,
        number: u32,
        path: &str,
        mode: ReceiveMode,
        release_on_drop: bool,
    ) -> Link {
        let address = EntityAddress::parse(path);
        Link {
            core: Arc::clone(self),
            number,
            path: path.into(),
            sub_queue: address.map_or(SubQueue::Main, |address| address.sub_queue),
            mode,
            release_on_drop: AtomicBool::new(release_on_drop),
        }
    }

    /// Accepts a session over a new link (SES-05 to SES-08).
    pub(super) async fn accept(
        self: &Arc<Self>,
        path: &str,
        session_id: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Result<(Link, SessionAccepted), BrokerError> {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        let accept = AcceptSession {
            link: number,
            path: path.to_owned(),
            session_id: session_id.map(str::to_owned),
            mode: mode.into(),
            wait_seconds: Some(wait.as_seconds_f64()),
            credit: None,
        };
        // Made in advance, so that dropping the future releases a granted session.
        let link = self.link(number, path, mode, true);
        self.links(|links| links.insert(number, LinkState { attach: None, pushed: None }));
        let key = self.key();
        let (answer, answered) = oneshot::channel();
        self.submit(HandleRequest::Accept { key, accept: Box::new(accept), answer });
        let withdrawal = Withdrawal { core: Arc::clone(&self.core), key: Some(key) };
        let answer = self.answered(answered, path).await;
        withdrawal.disarm();
        match answer? {
            Notice::SessionAccepted(accepted) => Ok((link, accepted)),
            _ => Err(link.unexpected()),
        }
    }
}

impl std::ops::Deref for Lifeline {
    type Target = Arc<Core>;

    fn deref(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.core.begin_close();
    }
}

impl Link {
    pub(super) async fn call(&self, operation: Operation) -> Result<Notice, BrokerError> {
        self.core.call(Some(self.number), &self.path, operation).await
    }

    /// Sets the highest delivery number that the link may be sent.
    pub(super) fn credit(&self, up_to: u32) {
        self.send_unanswered(Operation::Credit(Credit { link: self.number, up_to }));
    }

    /// Sends an operation without waiting for the answer.
    pub(super) fn send_unanswered(&self, operation: Operation) {
        let (key, operation) = (self.core.key(), Box::new(operation));
        self.core.submit(HandleRequest::Operation {
            key,
            link: Some(self.number),
            operation,
            answer: None,
        });
    }

    /// Detaches the link in order and waits until that is done.
    pub(super) async fn end(&self) -> Result<(), BrokerError> {
        self.release_on_drop.store(false, Ordering::Relaxed);
        let detach = Operation::Detach(Detach { link: self.number, release: false });
        self.call(detach).await.map(|_| ())
    }

    pub(super) fn unexpected(&self) -> BrokerError {
        self.core.refuse(Rejection::internal("unexpected answer"), &self.path)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let release = self.release_on_drop.load(Ordering::Relaxed);
        self.core.submit(HandleRequest::Forget { link: self.number, release });
    }
}

/// Withdraws a call whose future is dropped before its answer (RCV-14).
struct Withdrawal {
    core: Arc<Core>,
    key: Option<u64>,
}

impl Withdrawal {
    fn disarm(mut self) {
        self.key = None;
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.submit(HandleRequest::Withdraw { key });
        }
    }
}

/// Error of a call that was in flight when the connection was lost; its outcome is open.
pub(super) fn lost(detail: &str) -> Rejection {
    Rejection::new(Condition::CommunicationProblem, detail)
}

fn local_now() -> Timestamp {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_nanos(i128::try_from(since.as_nanos()).unwrap_or(0))
}
