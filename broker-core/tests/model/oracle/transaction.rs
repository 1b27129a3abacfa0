//! A transaction: everything in it, or nothing.

use peeklock_core::condition::Condition;
use peeklock_core::path::SubQueue;

use super::{Answered, Conditions, Oracle, refuse};
use crate::operation::{Draft, Operation, Part, Reply};

impl Oracle {
    /// TXN-07: the answer that the operation would get. Its only effect: numbers are reserved for
    /// scheduled messages (SCH-13).
    pub(super) fn check(&mut self, sub_queue: SubQueue, operation: &Operation) -> Answered {
        self.reach("TXN-03");
        self.would_be(sub_queue, operation)?;
        let now = self.now;
        let is_for_later = |draft: &Draft| draft.scheduled_at.is_some_and(|at| at > now);
        let drafts = operation.drafts();
        if !drafts.iter().any(|draft| is_for_later(draft)) {
            return Ok(Some(Reply::Done));
        }
        self.reach("SCH-13");
        let told = drafts.iter().map(|draft| match self.kept_for(draft) {
            Some(kept) => kept,
            None if is_for_later(draft) => self.take_sequence(),
            None => 0,
        });
        Ok(Some(Reply::AcceptedBatch(told.collect())))
    }

    /// TXN-01, TXN-13: all in order, or none.
    pub(super) fn commit_all(&mut self, parts: &[Part]) -> Answered {
        let (mut settled, mut cancelled) = (Vec::new(), Vec::new());
        for part in parts {
            if let Err(conditions) = self.would_be(part.sub_queue, &part.operation) {
                self.reach("TXN-07");
                return Err(conditions);
            }
            match &part.operation {
                // SET-13: also within one transaction.
                Operation::Settle { lock, .. } | Operation::RenewLock { lock }
                    if settled.contains(lock) =>
                {
                    self.reach("TXN-07");
                    return refuse(Condition::MessageLockLost);
                }
                Operation::Settle { lock, .. } => settled.push(*lock),
                // SCH-05: also within one transaction.
                Operation::CancelScheduled(sequences) => {
                    for sequence in sequences {
                        if cancelled.contains(sequence) {
                            self.reach("TXN-07");
                            return refuse(Condition::MessageNotFound);
                        }
                        cancelled.push(*sequence);
                    }
                }
                _ => {}
            }
        }
        let drafts: Vec<_> = parts.iter().flat_map(|part| part.operation.drafts()).collect();
        let bytes: u64 = drafts.iter().map(|draft| u64::from(draft.size)).sum();
        let bytes_max = self.description.max_size_in_megabytes * 1024 * 1024;
        if !drafts.is_empty() && self.stored_bytes() + bytes > bytes_max {
            self.reach("TXN-07");
            return refuse(Condition::QuotaExceeded);
        }
        let mut replies = Vec::new();
        for part in parts {
            replies.push(self.carry_out(part)?);
        }
        self.reach("TXN-01");
        if drafts.len() > 1 {
            self.reach("TXN-13");
        }
        if parts.iter().any(|part| part.sub_queue == SubQueue::DeadLetter) && !drafts.is_empty() {
            self.reach("TXN-14");
        }
        self.touch();
        Ok(Some(Reply::Committed(replies)))
    }

    /// The refusal that an operation would get now.
    fn would_be(&self, sub_queue: SubQueue, operation: &Operation) -> Result<(), Conditions> {
        let mut apart = self.clone();
        match operation {
            Operation::Send(draft) => apart.send(sub_queue, draft).map(drop),
            Operation::SendBatch(drafts) => apart.send_batch(sub_queue, drafts).map(drop),
            Operation::Settle { lock, settlement } => {
                apart.settle(sub_queue, *lock, settlement).map(drop)
            }
            Operation::RenewLock { lock } => apart.renew(sub_queue, *lock).map(drop),
            Operation::CancelScheduled(sequences) => apart.cancel(sub_queue, sequences).map(drop),
            other => panic!("{other:?} is no part of a transaction"),
        }
    }

    fn carry_out(&mut self, part: &Part) -> Result<Reply, Conditions> {
        let reply = match &part.operation {
            Operation::Send(draft) => Some(Reply::Accepted(self.accept(draft))),
            Operation::SendBatch(drafts) => {
                let sequences = drafts.iter().map(|draft| self.accept(draft)).collect();
                Some(Reply::AcceptedBatch(sequences))
            }
            Operation::Settle { lock, settlement } => {
                self.settle(part.sub_queue, *lock, settlement)?
            }
            Operation::RenewLock { lock } => self.renew(part.sub_queue, *lock)?,
            Operation::CancelScheduled(sequences) => self.cancel(part.sub_queue, sequences)?,
            other => panic!("{other:?} is no part of a transaction"),
        };
        Ok(reply.expect("each part is answered at once"))
    }
}
