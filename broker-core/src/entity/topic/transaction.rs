//! Transactions: what is sent in one is published at its commit, all of it or nothing (TXN-01, TXN-08).

use super::Topic;
use super::publish::Journey;
use crate::command::{InboundMessage, Outcome};
use crate::effect::{Answer, Gate};
use crate::entity::{Ctx, Step, admission};
use crate::error::Rejection;
use crate::transaction::{Operation, Part, PartOutcome, in_transaction};

impl Topic {
    /// Says whether an operation would be carried out now, with the error that it would give itself
    /// (TXN-07).
    pub(super) fn check(
        &self,
        operation: &Operation,
        ctx: &mut Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.admit_part(operation, ctx)?;
        Ok(Answer::Now(Outcome::Done, Gate::Open))
    }

    /// Publishes the messages of all parts, with consecutive numbers, or none (TXN-13).
    pub(super) fn commit(
        &mut self,
        parts: Vec<Part>,
        ctx: &mut Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        for (number, part) in (1usize..).zip(&parts) {
            let checked = self
                .refuse_sub_queue(part.sub_queue)
                .and_then(|()| self.admit_part(&part.operation, ctx));
            let why = format!("operation {number} of the transaction, {}", part.operation.name());
            checked.map_err(|rejection| in_transaction(&why, &rejection))?;
        }
        // Their contents are shared, not copied.
        let messages: Vec<InboundMessage> =
            parts.iter().flat_map(|part| part.operation.messages()).cloned().collect();
        let plans = if messages.is_empty() {
            Vec::new()
        } else {
            let why = "the messages of the transaction together";
            let in_transaction = |rejection| in_transaction(why, &rejection);
            admission::check_atomic_size(&messages, ctx).map_err(in_transaction)?;
            self.admit(&messages, ctx).map_err(in_transaction)?
        };
        let mut planned = messages.into_iter().zip(plans);
        let mut outcomes = Vec::with_capacity(parts.len());
        for part in parts {
            let count = part.operation.messages().len();
            let mut numbers = Vec::with_capacity(count);
            for (message, plan) in planned.by_ref().take(count) {
                numbers.push(self.accept(message, plan, &Journey::default(), ctx, step));
            }
            outcomes.push(match (part.operation, numbers.as_slice()) {
                (Operation::Send { .. }, [number]) => PartOutcome::Accepted(*number),
                _ => PartOutcome::AcceptedBatch(numbers),
            });
        }
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Committed(outcomes)))
    }

    fn admit_part(&self, operation: &Operation, ctx: &mut Ctx<'_>) -> Result<(), Rejection> {
        match operation {
            Operation::Send { message } => self.admit(std::slice::from_ref(message), ctx).map(drop),
            Operation::SendBatch { messages } => self.admit_batch(messages, ctx).map(drop),
            Operation::SendVia { .. } => Err(self.refuse_transfer()),
            Operation::Settle { .. } | Operation::RenewLock { .. } => Err(self.refuse_receiving()),
        }
    }
}
