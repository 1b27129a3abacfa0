//! The port of a client without a broker: it records sent messages. `client.rs` shows its records
//! to the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{SequenceNumber, TrackingId};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};

use super::link::RecordLink;
use super::{Sent, Settled};
use crate::FIRST_INSTANT;
use peeklock_client::port::{
    AcceptedSession, BoxAnswer, BoxFuture, Deliveries, Link, Managed, Management, Port, Settlement,
};

/// Duration of the locks of deliveries made by hand.
pub(super) const LOCK: TimeSpan = TimeSpan::from_minutes(1);
/// Entity path of deliveries made by hand.
pub(super) const PATH: &str = "test";

/// Last transaction id of all records, so that ids are unique across records.
static LAST_TRANSACTION: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Default)]
pub(super) struct Record(Arc<Mutex<Recorded>>);

#[derive(Default)]
pub(super) struct Recorded {
    pub(super) sent: Vec<Sent>,
    /// Refused paths, in lower case.
    pub(super) refused: BTreeMap<String, Condition>,
    /// The last number of each path, in lower case.
    numbers: BTreeMap<String, u64>,
    pub(super) open: BTreeMap<TransactionId, Vec<Operation>>,
}

/// An operation of a transaction.
pub(super) struct Operation {
    /// Path of its link.
    pub(super) path: String,
    pub(super) what: What,
}

pub(super) enum What {
    Send { to: String, via: Option<String>, messages: Vec<Message>, is_batch: bool },
    Settle(Settled, Settlement),
    Renew,
    Cancel { from: String, sequences: Vec<SequenceNumber> },
}

impl Record {
    pub(super) fn state(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for an operation that needs a broker.
    fn without_broker<T>(&self, path: &str) -> BoxAnswer<'_, T> {
        let error = self.refuse(without_broker(), path);
        Box::pin(async { Err(error) })
    }
}

/// Returns the rejection of an operation that needs a broker.
pub(super) fn without_broker() -> Rejection {
    Rejection::not_implemented("this, over a client without a broker,")
}

impl Recorded {
    /// Checks whether the path accepts messages.
    pub(super) fn admit(&self, to: &str) -> Result<(), Rejection> {
        let Some(condition) = self.refused.get(&to.to_ascii_lowercase()) else { return Ok(()) };
        Err(Rejection::new(*condition, "refused, as the test has asked for"))
    }

    /// Records messages and returns their numbers.
    pub(super) fn send(
        &mut self,
        to: &str,
        via: Option<&str>,
        messages: Vec<Message>,
        in_transaction: bool,
    ) -> Vec<SequenceNumber> {
        let last = self.numbers.entry(to.to_ascii_lowercase()).or_default();
        let mut numbers = Vec::with_capacity(messages.len());
        for message in messages {
            *last += 1;
            let sequence_number = SequenceNumber(*last);
            numbers.push(sequence_number);
            let (to, via) = (to.to_owned(), via.map(str::to_owned));
            self.sent.push(Sent { to, via, sequence_number, in_transaction, message });
        }
        numbers
    }

    /// Removes scheduled messages, all or none (SCH-05).
    pub(super) fn cancel(
        &mut self,
        path: &str,
        sequences: &[SequenceNumber],
    ) -> Result<(), Rejection> {
        self.check_scheduled(path, sequences)?;
        for number in sequences {
            if let Some(place) = self.scheduled(path, *number) {
                self.sent.remove(place);
            }
        }
        Ok(())
    }

    /// Rejects a list with a number that no scheduled message has.
    pub(super) fn check_scheduled(
        &self,
        path: &str,
        sequences: &[SequenceNumber],
    ) -> Result<(), Rejection> {
        let missing = sequences.iter().find(|number| self.scheduled(path, **number).is_none());
        missing.map_or(Ok(()), |number| Err(Rejection::message_not_found(*number)))
    }

    /// Returns the index of a scheduled message.
    fn scheduled(&self, path: &str, number: SequenceNumber) -> Option<usize> {
        self.sent.iter().position(|sent| {
            sent.to.eq_ignore_ascii_case(path)
                && sent.sequence_number == number
                && sent.message.scheduled_enqueue_time.is_some_and(|at| at > FIRST_INSTANT)
        })
    }

    /// Carries out an operation of a transaction whose first entity is `first`. Messages to other
    /// entities are transfers, whose numbers there are not in the result of the commit (TXN-10).
    fn carry_out(&mut self, first: &str, Operation { what, .. }: Operation) -> PartOutcome {
        match what {
            What::Send { to, via, messages, is_batch } => {
                let numbers = self.send(&to, via.as_deref(), messages, true);
                match numbers[..] {
                    _ if !to.eq_ignore_ascii_case(first) => PartOutcome::Pending(numbers),
                    [number] if !is_batch => PartOutcome::Accepted(number),
                    _ => PartOutcome::AcceptedBatch(numbers),
                }
            }
            What::Settle(settled, settlement) => {
                settled.set(settlement);
                PartOutcome::Done
            }
            What::Renew => PartOutcome::Renewed(FIRST_INSTANT.plus(LOCK)),
            What::Cancel { from, sequences } => {
                // The commit has checked that they exist.
                self.cancel(&from, &sequences).unwrap_or_default();
                PartOutcome::Done
            }
        }
    }
}

impl Port for Record {
    fn now(&self) -> Timestamp {
        FIRST_INSTANT
    }

    fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        BrokerError::new(rejection, TrackingId(0), entity, FIRST_INSTANT)
    }

    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError> {
        Ok(Arc::new(RecordLink::new(self, path, via)))
    }

    fn receiver(&self, path: &str, _: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError> {
        Ok(Arc::new(RecordLink::new(self, path, None)))
    }

    fn session<'a>(
        &'a self,
        path: &'a str,
        _: Option<&'a str>,
        _: ReceiveMode,
        _: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession> {
        self.without_broker(path)
    }

    fn deliveries<'a>(&'a self, path: &'a str, _: u32) -> BoxAnswer<'a, Box<dyn Deliveries>> {
        self.without_broker(path)
    }

    fn manage<'a>(&'a self, path: &'a str, _: Management) -> BoxAnswer<'a, Managed> {
        self.without_broker(path)
    }

    fn begin(&self, _: Reach) -> BoxAnswer<'_, TransactionId> {
        let id = TransactionId(LAST_TRANSACTION.fetch_add(1, Ordering::Relaxed) + 1);
        self.state().open.insert(id, Vec::new());
        Box::pin(async move { Ok(id) })
    }

    fn commit(&self, transaction: TransactionId, _: u32) -> BoxAnswer<'_, Vec<PartOutcome>> {
        let mut state = self.state();
        let operations = state.open.remove(&transaction).unwrap_or_default();
        let lost = operations.iter().find_map(|operation| match &operation.what {
            What::Settle(settled, _) if settled.get().is_some() => {
                Some(self.refuse(settled_already(), PATH))
            }
            What::Cancel { from, sequences } => {
                let missing = state.check_scheduled(from, sequences).err()?;
                Some(self.refuse(missing, from))
            }
            What::Send { .. } | What::Settle(..) | What::Renew => None,
        });
        if let Some(error) = lost {
            return Box::pin(async { Err(error) });
        }
        let first = operations.first().map(|operation| operation.path.clone()).unwrap_or_default();
        let parts = operations.into_iter().map(|one| state.carry_out(&first, one)).collect();
        Box::pin(async { Ok(parts) })
    }

    fn roll_back(&self, transaction: TransactionId) -> BoxAnswer<'_, ()> {
        self.forget(transaction);
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, transaction: TransactionId) {
        self.state().open.remove(&transaction);
    }

    fn reached(&self, is_reached: bool) -> BoxFuture<'_, ()> {
        if is_reached { Box::pin(std::future::ready(())) } else { Box::pin(std::future::pending()) }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Returns the rejection of a second settlement.
pub(super) fn settled_already() -> Rejection {
    Rejection::new(Condition::MessageLockLost, "the handler has settled this delivery already")
}
