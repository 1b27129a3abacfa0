//! Transactions: their parts as they are issued, and their commits.

use peeklock_core::path::SubQueue;

use super::{Generator, Kind, View};
use crate::operation::{Decision, LockName, Operation, Part};

/// Maximum of open transactions.
const OPEN_MAX: usize = 3;

impl Generator {
    /// Issues one more part, or commits the issued parts, even if locks have ended, the queue was
    /// updated, or the process has crashed. A rollback or timeout needs no request: the transaction
    /// is dropped (TXN-04, TXN-06).
    pub(super) fn transact(&mut self, ticket: u64, view: &View) -> (SubQueue, Operation) {
        if self.open.is_empty() || self.open.len() < OPEN_MAX && self.random.percent(15) {
            self.open.push(Vec::new());
        }
        let last = self.open.len() as u64;
        let place = usize::try_from(self.random.below(last)).unwrap_or(0);
        let count = self.open[place].len();
        if count > 0 && self.random.percent(8) {
            self.open.remove(place);
            return self.operation(Kind::Describe, ticket, view);
        }
        if count > 0 && self.random.percent(25 * count as u64) {
            return (SubQueue::Main, Operation::Commit(self.open.remove(place)));
        }
        let kind = match self.random.below(100) {
            _ if view.locks.is_empty() => self.random.pick(&[Kind::Send, Kind::Schedule]),
            0..45 => Kind::Settle,
            45..55 => Kind::Renew,
            55..80 => Kind::Send,
            80..88 => Kind::Schedule,
            88..92 => Kind::Cancel,
            _ => Kind::SendBatch,
        };
        let dead: Vec<LockName> = view
            .locks
            .iter()
            .filter(|(_, place)| *place == SubQueue::DeadLetter)
            .map(|(lock, _)| *lock)
            .collect();
        let (sub_queue, mut operation) = match self.random.pick_some(&dead) {
            // A dead letter, whose copy is sent with it (TXN-14).
            Some(lock) if self.random.percent(40) => {
                let settlement = Decision::Complete;
                (SubQueue::DeadLetter, Operation::Settle { lock, settlement })
            }
            _ => self.operation(kind, ticket, view),
        };
        if let Operation::Settle { settlement: settlement @ Decision::Release, .. } = &mut operation
        {
            *settlement = Decision::Complete;
        }
        // A settlement may have been replaced by a step that cannot be part of a transaction.
        if !is_part(&operation) {
            return (sub_queue, operation);
        }
        let part = Part { sub_queue, operation };
        self.open[place].push(part.clone());
        (sub_queue, Operation::Check(Box::new(part)))
    }
}

const fn is_part(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Send(_)
            | Operation::SendBatch(_)
            | Operation::Settle { .. }
            | Operation::RenewLock { .. }
            | Operation::CancelScheduled(_)
    )
}
