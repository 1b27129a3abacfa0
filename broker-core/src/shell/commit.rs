//! Transactions that cover several machines of a tree: a topic and one of its subscriptions
//! (TXN-08).
//!
//! The shell of the topic takes these steps. It omits the first and the last if the subscription
//! has no part.
//!
//! 1. The subscription catches up and checks its parts. If it refuses them, the commit is refused.
//! 2. The topic carries its own parts out, or refuses the commit.
//! 3. The subscription carries its parts out, which cannot fail now.
//!
//! The changes of all steps are one unit in one stage, with one answer.
//!
//! All machines of a tree are on one arbiter and share its stage. The shell that gets the commit
//! drives the other one within its own turn, so nothing happens between the check and the
//! execution. It computes the steps of all parts beforehand, including overlays on the messages of
//! either machine, and so knows whether the commit needs a long turn or exceeds the limit.

use peeklock_model::transaction::{Operation, Part, PartOutcome};

use super::{Shell, TreeFault, TurnResults};
use crate::command::{Command, MachineOutcome, Outcome};
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::{EntityId, Ticket};
use crate::machine::Machine;
use crate::machine::family::MemberNumber;
use crate::path::SubQueue;
use crate::request::{Release, Request};
use crate::store::Reserved;
use crate::time::Timestamp;

/// A machine with its driver, as seen by another machine of its tree.
pub trait Participant {
    /// Catches up with its tree, then returns whether the machine would carry these parts out.
    ///
    /// # Errors
    /// A failure that must end the tree.
    fn check(
        &mut self,
        parts: Vec<Part>,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Result<(), Rejection>, TreeFault>;

    /// Carries out parts that were checked.
    ///
    /// # Errors
    /// A failure that must end the tree. A refusal by the machine is one, since no part of the
    /// transaction may be stored then.
    fn carry_out(
        &mut self,
        ticket: Ticket,
        parts: Vec<Part>,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Vec<PartOutcome>, TreeFault>;

    /// Number of property changes on the message that a part settles.
    fn overlays_of_settled(&self, part: &Part) -> u64;

    /// Number of the machine in its tree.
    fn number(&self) -> MemberNumber;
}

/// Whether a command has parts for a machine other than its addressee.
pub(super) fn covers_several_machines(command: &Command) -> bool {
    matches!(command, Command::Commit { parts } if parts.iter().any(|part| part.member.is_some()))
}

/// Returns the command without the parts for other machines.
pub(super) fn own_part(command: Command) -> Command {
    match command {
        Command::Commit { mut parts } => {
            parts.retain(|part| part.member.is_none());
            Command::Commit { parts }
        }
        other => other,
    }
}

impl<M: Machine> Participant for Shell<M> {
    fn check(
        &mut self,
        parts: Vec<Part>,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Result<(), Rejection>, TreeFault> {
        self.catch_up(now)?;
        let mut own = TurnResults::default();
        self.show_accepted(now, out, &mut own)?;
        self.advance_time(now, out, &mut own)?;
        let checked = self.step(out, &mut own, now, Reserved::Granted, |machine, ctx, _| {
            machine.check_parts(parts, ctx)
        });
        self.add_flows(&own);
        turn.add(&own);
        checked
    }

    fn carry_out(
        &mut self,
        ticket: Ticket,
        parts: Vec<Part>,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Vec<PartOutcome>, TreeFault> {
        let mut own = TurnResults::default();
        let outcome = self.commit_own(ticket, parts, (now, Reserved::Granted), out, &mut own)?;
        self.finish(now, out, &mut own)?;
        self.add_flows(&own);
        turn.add(&own);
        outcome.map_err(|rejection| {
            TreeFault(format!("a part that was checked is refused: {rejection}"))
        })
    }

    fn overlays_of_settled(&self, part: &Part) -> u64 {
        self.machine.overlays_of_settled(part)
    }

    fn number(&self) -> MemberNumber {
        self.number
    }
}

impl<M: Machine> Shell<M> {
    /// Refuses a transaction that settles more than one atomic step may, before any of its parts is
    /// carried out (QUO-11). Its sends have bounds of their own.
    pub(super) fn refuse_many_steps(&self, parts: &[Part]) -> Result<(), Rejection> {
        let own = |part: &Part| match (&part.operation, part.member) {
            (Operation::Settle { .. }, None) => 1 + self.machine.overlays_of_settled(part),
            (Operation::Settle { .. }, Some(_))
            | (Operation::RenewLock { .. } | Operation::SetSessionState { .. }, _) => 1,
            (Operation::CancelScheduled { sequences }, _) => {
                sequences.len() as u64 + self.machine.overlays_of_settled(part)
            }
            (
                Operation::Send { .. } | Operation::SendBatch { .. } | Operation::SendVia { .. },
                _,
            ) => 0,
        };
        let steps = parts
            .iter()
            .map(own)
            .sum::<u64>()
            .saturating_add(self.overlays_on_other_machine(parts));
        let steps_max = self.limits.transaction_step_count_max;
        if steps <= steps_max as u64 {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "the transaction settles {steps} messages, counting a message again for each time that \
             properties were set on it; the limit `transaction_step_count_max` is {steps_max}; use \
             several transactions, or settle messages with many property changes outside of a \
             transaction"
        )))
    }

    /// Number of property changes on the messages of another machine that a transaction settles.
    pub(super) fn overlays_on_other_machine(&self, parts: &[Part]) -> u64 {
        let Some(member) = parts.iter().find_map(|part| part.member) else { return 0 };
        let participant = self.tree.borrow().participant(member);
        let Some(participant) = participant else { return 0 };
        let Ok(participant) = participant.try_borrow() else { return 0 };
        let others = parts.iter().filter(|part| part.member.is_some());
        others.map(|part| participant.overlays_of_settled(part)).sum()
    }

    /// Commits a transaction with parts for another machine, and answers it. Returns whether it
    /// changed anything.
    pub(super) fn commit_across_machines(
        &mut self,
        request: Request,
        now: Timestamp,
        room: Reserved,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<bool, TreeFault> {
        let Request { ticket, command, reply, .. } = request;
        let Command::Commit { parts } = command else { return Ok(false) };
        let changes_before = turn.changes;
        self.tree.borrow_mut().begin_unit();
        let result = self.commit_parts(ticket, parts, (now, room), out, turn);
        self.tree.borrow_mut().end_unit();
        let result = result?.map(Outcome::Committed);
        self.release(reply.answer(result), Gate::Commit, out);
        Ok(turn.changes > changes_before)
    }

    fn commit_parts(
        &mut self,
        ticket: Ticket,
        parts: Vec<Part>,
        (now, room): (Timestamp, Reserved),
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Result<Vec<PartOutcome>, Rejection>, TreeFault> {
        let order: Vec<Option<EntityId>> = parts.iter().map(|part| part.member).collect();
        let mut members = order.iter().flatten();
        let Some(member) = members.next().copied() else {
            return self.commit_own(ticket, parts, (now, room), out, turn);
        };
        if members.any(|other| *other != member) {
            let detail = "a transaction covers a topic and one of its subscriptions";
            return Ok(Err(Rejection::invalid_operation(detail)));
        }
        let participant = self.tree.borrow().participant(member);
        let Some(participant) = participant else {
            let detail = "the subscription of the transaction no longer exists";
            let gone = Rejection::new(crate::condition::Condition::EntityNotFound, detail);
            return Ok(Err(gone));
        };
        // Fails if the parts name this machine itself, whose shell is already borrowed.
        let Ok(mut participant) = participant.try_borrow_mut() else {
            return Ok(Err(Rejection::invalid_operation("the transaction has parts for itself")));
        };
        let (others, own): (Vec<Part>, Vec<Part>) =
            parts.into_iter().partition(|part| part.member.is_some());
        let checked = participant.check(others.clone(), now, out, turn)?;
        self.tree.borrow_mut().wake(participant.number());
        if let Err(rejection) = checked {
            return Ok(Err(rejection));
        }
        let own = match self.commit_own(ticket, own, (now, room), out, turn)? {
            Ok(own) => own,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let others = participant.carry_out(ticket, others, now, out, turn)?;
        let (mut own, mut others) = (own.into_iter(), others.into_iter());
        let in_order = order.iter().filter_map(|member| match member {
            None => own.next(),
            Some(_) => others.next(),
        });
        Ok(Ok(in_order.collect()))
    }

    /// Lets this machine carry its parts out, or refuse all of them.
    fn commit_own(
        &mut self,
        ticket: Ticket,
        parts: Vec<Part>,
        (now, room): (Timestamp, Reserved),
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Result<Vec<PartOutcome>, Rejection>, TreeFault> {
        let mut answer = None;
        let command = Command::Commit { parts };
        let result = self.step(out, turn, now, room, |machine, ctx, step| {
            answer = Some(machine.apply(ticket, SubQueue::Main, command, ctx, step)?);
            Ok(())
        })?;
        let outcome: Option<MachineOutcome> = match answer {
            Some(Answer::Now(outcome, _)) => Some(outcome),
            Some(Answer::Later) | None => None,
        };
        Ok(match (result, outcome) {
            (Err(rejection), _) => Err(rejection),
            (Ok(()), Some(MachineOutcome::Committed(parts))) => Ok(parts),
            (Ok(()), _) => Err(Rejection::internal("a commit was not answered as one")),
        })
    }
}
