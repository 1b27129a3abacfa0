//! The port of a simulated world: each request waits for the driver. Handles in the scenario use it
//! like any port.

use std::sync::{Arc, Mutex};

use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};
use tokio::sync::oneshot;

use super::pushed::SimulatedDeliveries;
use super::shared::{BrokerPort, Owner, Shared, lock};
use peeklock_client::port::{
    AcceptedSession, Answer, BoxAnswer, BoxFuture, Deliveries, Link, Managed, Management, Port,
    Request, Settlement,
};

/// A port that uses the current broker.
#[derive(Clone)]
pub(super) struct SimulatedPort {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: Owner,
}

/// Way to open a link again after a restart of the broker.
#[derive(Clone)]
enum Opening {
    Sender(Option<String>),
    Receiver,
    /// The session may then belong to another holder.
    Session,
    /// The driver opens it.
    Pushed,
}

/// A link that survives restarts of the broker, like a link over a network.
#[derive(Clone)]
pub(super) struct SimulatedLink(Arc<Followed>);

struct Followed {
    port: SimulatedPort,
    path: String,
    mode: ReceiveMode,
    opening: Opening,
    real: Mutex<(u32, Option<Arc<dyn Link>>)>,
}

fn nothing<T>(_: &T) -> String {
    String::new()
}

impl SimulatedPort {
    async fn ask<T, F>(
        &self,
        what: String,
        start: impl FnOnce(BrokerPort) -> F + Send + 'static,
    ) -> Result<T, BrokerError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, BrokerError>> + Send + 'static,
    {
        let start = move |way: &BrokerPort| Ok(start(Arc::clone(way)));
        self.shared.ask(self.owner, what, nothing, start).await
    }

    fn way(&self) -> Result<BrokerPort, BrokerError> {
        let state = self.shared.state();
        let none = || state.refuse(Rejection::cancelled("the broker is gone"));
        state.way.clone().ok_or_else(none)
    }

    fn link(
        &self,
        path: &str,
        mode: ReceiveMode,
        opening: Opening,
        real: Arc<dyn Link>,
    ) -> SimulatedLink {
        let restarts = self.shared.state().restarts;
        let real = Mutex::new((restarts, Some(real)));
        SimulatedLink(Arc::new(Followed {
            port: self.clone(),
            path: path.to_owned(),
            mode,
            opening,
            real,
        }))
    }

    /// Returns the link of pushed deliveries.
    pub(super) fn pushed_link(&self, path: &str, real: Arc<dyn Link>) -> SimulatedLink {
        self.link(path, ReceiveMode::PeekLock, Opening::Pushed, real)
    }
}

impl Port for SimulatedPort {
    fn now(&self) -> Timestamp {
        self.shared.state().now
    }

    fn refuse(&self, rejection: Rejection, _: &str) -> BrokerError {
        self.shared.state().refuse(rejection)
    }

    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError> {
        let real = self.way()?.sender(path, via)?;
        let opening = Opening::Sender(via.map(str::to_owned));
        Ok(Arc::new(self.link(path, ReceiveMode::PeekLock, opening, real)))
    }

    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError> {
        let real = self.way()?.receiver(path, mode)?;
        Ok(Arc::new(self.link(path, mode, Opening::Receiver, real)))
    }

    fn session<'a>(
        &'a self,
        path: &'a str,
        session_id: Option<&'a str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession> {
        Box::pin(async move {
            let (at, id) = (path.to_owned(), session_id.map(str::to_owned));
            let describe = |accepted: &AcceptedSession| accepted.session_id.to_string();
            let start = move |way: &BrokerPort| {
                let way = Arc::clone(way);
                Ok(async move { way.session(&at, id.as_deref(), mode, wait).await })
            };
            let what = format!("{path}: a session is accepted");
            let accepted = self.shared.ask(self.owner, what, describe, start).await?;
            let link = self.link(path, mode, Opening::Session, accepted.link);
            Ok(AcceptedSession { link: Arc::new(link), ..accepted })
        })
    }

    fn deliveries<'a>(
        &'a self,
        path: &'a str,
        unsettled_max: u32,
    ) -> BoxAnswer<'a, Box<dyn Deliveries>> {
        Box::pin(async move {
            let at = path.to_owned();
            let attach = move |way: BrokerPort| async move { way.pushed(&at, unsettled_max).await };
            let real = self.ask(format!("{path}: a consumer attaches"), attach).await?;
            let pushed = SimulatedDeliveries::begin(self, path, unsettled_max, real);
            Ok(Box::new(pushed) as Box<dyn Deliveries>)
        })
    }

    fn manage<'a>(&'a self, path: &'a str, asked: Management) -> BoxAnswer<'a, Managed> {
        Box::pin(async move {
            let at = path.to_owned();
            let manage = move |way: BrokerPort| async move { way.manage(&at, asked).await };
            self.ask(format!("{path}: managed"), manage).await
        })
    }

    fn begin(&self, reach: Reach) -> BoxAnswer<'_, TransactionId> {
        let begin = move |way: BrokerPort| async move { way.begin(reach).await };
        Box::pin(self.ask("a transaction begins".to_owned(), begin))
    }

    fn commit(&self, transaction: TransactionId, count: u32) -> BoxAnswer<'_, Vec<PartOutcome>> {
        let commit = move |way: BrokerPort| async move { way.commit(transaction, count).await };
        Box::pin(self.ask(format!("a transaction of {count} is committed"), commit))
    }

    fn roll_back(&self, transaction: TransactionId) -> BoxAnswer<'_, ()> {
        let roll_back = move |way: BrokerPort| async move { way.roll_back(transaction).await };
        Box::pin(self.ask("a transaction is rolled back".to_owned(), roll_back))
    }

    fn forget(&self, transaction: TransactionId) {
        if let Ok(way) = self.way() {
            way.forget(transaction);
            self.shared.touch();
        }
    }

    fn reached(&self, is_reached: bool) -> BoxFuture<'_, ()> {
        if is_reached { Box::pin(std::future::ready(())) } else { Box::pin(std::future::pending()) }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Followed {
    /// Returns the link to the current broker.
    fn real(&self) -> Result<Arc<dyn Link>, BrokerError> {
        let restarts = self.port.shared.state().restarts;
        let mut real = lock(&self.real);
        if let (opened, Some(link)) = &*real
            && *opened == restarts
        {
            return Ok(Arc::clone(link));
        }
        let way = self.port.way()?;
        let link = match &self.opening {
            Opening::Sender(via) => way.sender(&self.path, via.as_deref())?,
            Opening::Receiver => way.receiver(&self.path, self.mode)?,
            Opening::Session => {
                let lost = "the broker was started again";
                return Err(self.port.refuse(Rejection::session_lock_lost(lost), &self.path));
            }
            Opening::Pushed => {
                let gone = Rejection::new(Condition::CommunicationProblem, "the link is gone");
                return Err(self.port.refuse(gone, &self.path));
            }
        };
        *real = (restarts, Some(Arc::clone(&link)));
        Ok(link)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // The drop detaches the link.
        self.port.shared.touch();
    }
}

impl SimulatedLink {
    /// Sets the link that the driver has opened.
    pub(super) fn replace(&self, link: Option<Arc<dyn Link>>) {
        let restarts = self.0.port.shared.state().restarts;
        let old = std::mem::replace(&mut *lock(&self.0.real), (restarts, link));
        drop(old);
    }

    fn asked<T, F>(
        &self,
        what: String,
        describe: fn(&T) -> String,
        ask: impl FnOnce(Arc<dyn Link>) -> F + Send + 'static,
    ) -> BoxAnswer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, BrokerError>> + Send + 'static,
    {
        let (way, port) = (Arc::clone(&self.0), &self.0.port);
        Box::pin(async move {
            // Over the link at the time when the request reaches the broker.
            let start = move |_: &_| Ok(ask(way.real()?));
            port.shared.ask(port.owner, what, describe, start).await
        })
    }
}

impl Link for SimulatedLink {
    fn path(&self) -> &str {
        &self.0.path
    }

    fn mode(&self) -> ReceiveMode {
        self.0.mode
    }

    fn now(&self) -> Timestamp {
        self.0.port.now()
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.0.port.refuse(rejection, &self.0.path)
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        let what = format!("{}: {}", self.0.path, describe_request(&request));
        let settled = match &request {
            Request::Settle(token, _) => Some(token.sequence()),
            _ => None,
        };
        let asking = self.asked(what, answered, move |link| async move { link.ask(request).await });
        let Some(sequence) = settled else { return asking };
        Box::pin(async move {
            let answer = asking.await;
            let port = &self.0.port;
            port.shared.state().in_hand.remove(&(port.owner, sequence));
            answer
        })
    }

    fn ask_until<'a>(&'a self, request: Request, stop: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        let what = format!("{}: {}", self.0.path, describe_request(&request));
        let (sender, receiver) = oneshot::channel::<()>();
        let mut asking = self.asked(what, answered, move |link| async move {
            let stopped = Box::pin(async { receiver.await.unwrap_or_default() });
            link.ask_until(request, stopped).await
        });
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                () = stop => drop(sender),
            }
            asking.await
        })
    }

    fn give_back(&self, tokens: Vec<LockToken>) {
        if let Ok(link) = self.0.real() {
            link.give_back(tokens);
            self.0.port.shared.touch();
        }
    }

    fn ask_in(&self, transaction: TransactionId, request: Request) -> BoxAnswer<'_, ()> {
        let what = format!("{}: in a transaction, {}", self.0.path, describe_request(&request));
        let ask = move |link: Arc<dyn Link>| async move { link.ask_in(transaction, request).await };
        self.asked(what, nothing, ask)
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        let what = format!("{}: a link is closed", self.0.path);
        self.asked(what, nothing, move |link| async move { link.detach().await })
    }
}

/// Returns the request as text for the trace.
fn describe_request(request: &Request) -> String {
    match request {
        Request::Send(_) => "a message is sent".to_owned(),
        Request::SendEach(messages) | Request::SendBatch(messages) => {
            format!("{} messages are sent", messages.len())
        }
        Request::Receive { .. } | Request::ReceiveDeferred(_) => "received".to_owned(),
        Request::Peek { .. } => "peeked".to_owned(),
        Request::Settle(token, settlement) => {
            format!("#{} {}", token.sequence(), settled(settlement))
        }
        Request::SettleEach(tokens, settlement) => {
            format!("{} messages {}", tokens.len(), settled(settlement))
        }
        Request::Renew(tokens) => format!("{} locks are renewed", tokens.len()),
        Request::RenewSession => "the session lock is renewed".to_owned(),
        Request::SessionState => "the session state is read".to_owned(),
        Request::SetSessionState(_) => "the session state is set".to_owned(),
        Request::CancelScheduled(_) => "scheduled messages are cancelled".to_owned(),
        Request::DeleteBatch { .. } | Request::Purge => "messages are removed".to_owned(),
    }
}

/// Returns the settlement as text for the trace.
pub(super) const fn settled(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Complete => "is completed",
        Settlement::Abandon { .. } => "is abandoned",
        Settlement::Defer { .. } => "is deferred",
        Settlement::DeadLetter { .. } => "is dead-lettered",
        Settlement::Release => "is released",
    }
}

/// Returns the answer as text for the trace.
fn answered(answer: &Answer) -> String {
    let numbers = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.map(|number| format!("#{number}")).collect::<Vec<_>>().join(" ")
    };
    match answer {
        Answer::Accepted(number) => format!("#{number}"),
        Answer::Sent(sent) => numbers(&mut sent.iter().flatten().map(|number| number.0)),
        Answer::Received(received) => {
            numbers(&mut received.iter().map(|message| message.facts.sequence.0))
        }
        Answer::Deleted(count) => count.to_string(),
        Answer::Done | Answer::Each(_) | Answer::Renewed(_) | Answer::State(_) => String::new(),
    }
}
