//! The link of a client without a broker: to a path for sending, or as the origin of a delivery
//! made by hand.

use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::TransactionId;

use super::Settled;
use super::record::{LOCK, Operation, PATH, Record, What, settled_already, without_broker};
use peeklock_client::port::{Answer, BoxAnswer, BoxFuture, Link, Port as _, Request, Settlement};

pub(super) struct RecordLink {
    record: Record,
    to: String,
    via: Option<String>,
    /// Settlement of the delivery, if a delivery came over this link.
    settled: Option<Settled>,
}

impl RecordLink {
    pub(super) fn new(record: &Record, to: &str, via: Option<&str>) -> Self {
        let (to, via) = (to.to_owned(), via.map(str::to_owned));
        Self { record: record.clone(), to, via, settled: None }
    }

    pub(super) fn of_delivery(record: &Record, settled: Settled) -> Self {
        Self { settled: Some(settled), ..Self::new(record, PATH, None) }
    }

    fn carry_out(&self, request: Request) -> Result<Answer, Rejection> {
        let mut state = self.record.state();
        Ok(match request {
            Request::Send(message) => {
                state.admit(&self.to)?;
                let numbers = state.send(&self.to, self.via.as_deref(), vec![*message], false);
                Answer::Accepted(numbers.first().copied().unwrap_or_default())
            }
            Request::SendEach(messages) | Request::SendBatch(messages) => {
                state.admit(&self.to)?;
                let numbers = state.send(&self.to, self.via.as_deref(), messages, false);
                Answer::Sent(numbers.into_iter().map(Ok).collect())
            }
            Request::CancelScheduled(sequences) => {
                state.cancel(&self.to, &sequences)?;
                Answer::Done
            }
            Request::Settle(_, settlement) => {
                if !self.delivery()?.set(settlement) {
                    return Err(settled_already());
                }
                Answer::Done
            }
            Request::Renew(tokens) => {
                Answer::Renewed(tokens.iter().map(|_| Ok(self.now().plus(LOCK))).collect())
            }
            Request::Receive { .. } | Request::Peek { .. } => Answer::Received(Vec::new()),
            Request::ReceiveDeferred(_)
            | Request::SettleEach(..)
            | Request::DeleteBatch { .. }
            | Request::Purge
            | Request::RenewSession
            | Request::SessionState
            | Request::SetSessionState(_) => return Err(without_broker()),
        })
    }

    /// Keeps an operation of a transaction for its commit.
    fn issue(&self, transaction: TransactionId, request: Request) -> Result<(), Rejection> {
        let what = match request {
            Request::Send(message) => self.sending(vec![*message], false),
            Request::SendBatch(messages) => self.sending(messages, true),
            Request::Settle(_, settlement) => self.settling(settlement)?,
            Request::Renew(_) => What::Renew,
            Request::CancelScheduled(sequences) => {
                What::Cancel { from: self.to.clone(), sequences }
            }
            _ => return Err(without_broker()),
        };
        let mut state = self.record.state();
        match &what {
            What::Send { to, .. } => state.admit(to)?,
            What::Cancel { from, sequences } => state.check_scheduled(from, sequences)?,
            What::Settle(..) | What::Renew => {}
        }
        let open = state.open.get_mut(&transaction).ok_or_else(unknown)?;
        open.push(Operation { path: self.path().to_owned(), what });
        Ok(())
    }

    fn sending(&self, messages: Vec<Message>, is_batch: bool) -> What {
        What::Send { to: self.to.clone(), via: self.via.clone(), messages, is_batch }
    }

    fn settling(&self, settlement: Settlement) -> Result<What, Rejection> {
        let settled = self.delivery()?;
        if settled.get().is_some() {
            return Err(settled_already());
        }
        Ok(What::Settle(settled.clone(), settlement))
    }

    /// Returns the settlement of the delivery that came over this link.
    fn delivery(&self) -> Result<&Settled, Rejection> {
        self.settled.as_ref().ok_or_else(without_broker)
    }
}

impl Link for RecordLink {
    fn path(&self) -> &str {
        self.via.as_deref().unwrap_or(&self.to)
    }

    fn mode(&self) -> ReceiveMode {
        ReceiveMode::PeekLock
    }

    fn now(&self) -> Timestamp {
        self.record.now()
    }

    fn refuse(&self, rejection: Rejection) -> BrokerError {
        self.record.refuse(rejection, &self.to)
    }

    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer> {
        Box::pin(async { self.carry_out(request).map_err(|rejection| self.refuse(rejection)) })
    }

    fn ask_until<'a>(&'a self, request: Request, _: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer> {
        self.ask(request)
    }

    fn give_back(&self, _: Vec<LockToken>) {}

    fn ask_in(&self, transaction: TransactionId, request: Request) -> BoxAnswer<'_, ()> {
        Box::pin(async move {
            self.issue(transaction, request).map_err(|rejection| self.refuse(rejection))
        })
    }

    fn detach(&self) -> BoxAnswer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

fn unknown() -> Rejection {
    Rejection::new(
        Condition::TransactionUnknown,
        "the transaction is not of this client, or has ended: one that a delivery by hand begins is of the client that \
         it is given by `TestDelivery::with_client`",
    )
}
