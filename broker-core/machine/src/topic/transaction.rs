//! Transactions at a topic: sent messages are published at the commit, messages via the topic go to
//! its outbox, and settlements concern its transfer dead-letter queue. All parts happen, or
//! nothing (TXN-01, TXN-08, TXN-09, TXN-14).

use std::collections::BTreeSet;

use super::Topic;
use super::publish::{AdmissionPlan, Journey};
use crate::command::{InboundMessage, Outcome};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::intake::Intake;
use crate::path::SubQueue;
use crate::queue::PlannedOperation;
use crate::transaction::{Operation, Part, PartOutcome, in_transaction};
use crate::{Ctx, StepOutput, intake};

/// A part with its number in the transaction.
type Numbered = (usize, Part);

/// Owner of a part of a transaction.
enum Kind {
    /// The topic publishes it.
    Published,
    /// The topic cancels scheduled messages.
    Cancelled,
    /// The outbox carries it out.
    Outbox,
}

impl Kind {
    const fn of(part: &Part) -> Self {
        match (part.sub_queue, &part.operation) {
            (SubQueue::Main, Operation::CancelScheduled { .. }) => Self::Cancelled,
            _ if is_published(part) => Self::Published,
            _ => Self::Outbox,
        }
    }
}

/// Whether a part publishes messages.
pub(super) const fn is_published(part: &Part) -> bool {
    matches!(part.sub_queue, SubQueue::Main)
        && matches!(part.operation, Operation::Send { .. } | Operation::SendBatch { .. })
}

impl Topic {
    /// Checks whether an operation could be carried out now; the rejection is the same as for the
    /// operation itself (TXN-07). Reserves numbers for scheduled messages (SCH-13).
    pub(super) fn check(
        &mut self,
        operation: Operation,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let numbers = Vec::new();
        let part = Part { member: None, sub_queue: SubQueue::Main, operation, numbers };
        self.admit_part(&part, ctx, step)?;
        let messages = match is_published(&part) {
            true => part.operation.messages(),
            false => &[],
        };
        Ok(self.reserve_numbers(messages, self.last_sequence, ctx, step))
    }

    /// Carries all parts out, or none. Published messages get consecutive numbers (TXN-13);
    /// messages via the topic come after them.
    pub(super) fn commit(
        &mut self,
        parts: Vec<Part>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        let together = "the messages of the transaction together";
        self.refuse_unjudged(ctx).map_err(|rejection| in_transaction(together, &rejection))?;
        for (number, part) in (1usize..).zip(&parts) {
            let why = format!("operation {number} of the transaction, {}", part.operation.name());
            self.admit_part(part, ctx, step)
                .map_err(|rejection| in_transaction(&why, &rejection))?;
        }
        let order: Vec<Kind> = parts.iter().map(Kind::of).collect();
        let (mut published, mut cancelled, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in (1usize..).zip(parts) {
            match (Kind::of(&part), part.operation) {
                (Kind::Cancelled, Operation::CancelScheduled { sequences }) => {
                    cancelled.push(sequences);
                }
                (Kind::Published, operation) => {
                    published.push((number, Part { operation, ..part }))
                }
                (_, operation) => others.push((number, Part { operation, ..part })),
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = cancelled.iter().flatten().find(|sequence| !seen.insert(**sequence)) {
            let rejection = Rejection::message_not_found(*twice);
            return Err(in_transaction(
                "a schedule that the transaction cancels twice",
                &rejection,
            ));
        }
        let messages = messages_of(&published);
        let plans = self
            .plan_together(&messages, &messages_of(&others), ctx)
            .map_err(|rejection| in_transaction(together, &rejection))?;
        let planned = match others.is_empty() {
            true => Vec::new(),
            false => self.with_outbox(ctx.now, |outbox| outbox.plan_all(others, ctx))?,
        };
        // From here on nothing can be refused.
        let mut accepted =
            self.publish_all(published, messages.into_iter().zip(plans), ctx, step).into_iter();
        let mut carried_out = self.carry_out(planned, ctx, step).into_iter();
        self.usage.touch(ctx.now);
        for sequences in &cancelled {
            self.cancel(sequences, ctx, step);
        }
        let in_order = order.into_iter().filter_map(|kind| match kind {
            Kind::Published => accepted.next(),
            Kind::Cancelled => Some(PartOutcome::Done),
            Kind::Outbox => carried_out.next(),
        });
        Ok(Answer::after_commit(Outcome::Committed(in_order.collect())))
    }

    /// Checks published messages and messages via the topic, separately and together: they share
    /// the quota and the atomic step (TXN-07, QUO-07).
    fn plan_together(
        &self,
        published: &[InboundMessage],
        passing: &[InboundMessage],
        ctx: &mut Ctx<'_>,
    ) -> Result<Vec<AdmissionPlan>, Rejection> {
        // The contents of cloned messages are shared.
        intake::check_atomic_size(&[published, passing].concat(), ctx)?;
        if published.is_empty() {
            return Ok(Vec::new());
        }
        let plans = self.admit(published, ctx)?;
        let copies = published
            .iter()
            .zip(&plans)
            .map(|(message, plan)| plan.size_bytes(message, &Journey::default()));
        let passing = passing.iter().map(|message| u64::from(message.envelope.size));
        self.refuse_over_quota(copies.chain(passing).fold(0, u64::saturating_add), ctx)?;
        Ok(plans)
    }

    fn publish_all(
        &mut self,
        parts: Vec<Numbered>,
        mut planned: impl Iterator<Item = (InboundMessage, AdmissionPlan)>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Vec<PartOutcome> {
        let mut outcomes = Vec::with_capacity(parts.len());
        for (_, part) in parts {
            let count = part.operation.messages().len();
            let mut numbers = Vec::with_capacity(count);
            let reserved = part.numbers.iter().map(|number| (number.0 > 0).then_some(*number));
            let mut reserved = reserved.chain(std::iter::repeat(None));
            for (message, plan) in planned.by_ref().take(count) {
                let (journey, number) = (Journey::default(), reserved.next().flatten());
                numbers.push(self.accept_as(message, plan, journey, number, ctx, step));
            }
            outcomes.push(match (part.operation, numbers.as_slice()) {
                (Operation::Send { .. }, [number]) => PartOutcome::Accepted(*number),
                _ => PartOutcome::AcceptedBatch(numbers),
            });
        }
        outcomes
    }

    fn carry_out(
        &mut self,
        planned: Vec<PlannedOperation>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Vec<PartOutcome> {
        if planned.is_empty() {
            return Vec::new();
        }
        self.with_outbox(ctx.now, |outbox| outbox.carry_all_out(planned, ctx, step))
    }

    fn admit_part(
        &mut self,
        part: &Part,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<(), Rejection> {
        self.refuse_sub_queue(part.sub_queue)?;
        match (part.sub_queue, &part.operation) {
            (SubQueue::Main, Operation::Send { message }) => {
                self.admit(std::slice::from_ref(message), ctx).map(drop)
            }
            (SubQueue::Main, Operation::SendBatch { messages }) => {
                self.admit_batch(messages, ctx).map(drop)
            }
            (SubQueue::Main, Operation::CancelScheduled { sequences }) => {
                self.check_cancelled(sequences)
            }
            (
                SubQueue::Main,
                Operation::Settle { .. }
                | Operation::RenewLock { .. }
                | Operation::SetSessionState { .. },
            ) => Err(self.refuse_receiving()),
            (sub_queue, operation) => {
                let operation = operation.clone();
                self.with_outbox(ctx.now, |outbox| outbox.check(sub_queue, operation, ctx, step))
                    .map(drop)
            }
        }
    }
}

fn messages_of(parts: &[Numbered]) -> Vec<InboundMessage> {
    parts.iter().flat_map(|(_, part)| part.operation.messages()).cloned().collect()
}
