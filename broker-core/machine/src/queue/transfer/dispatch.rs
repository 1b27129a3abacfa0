//! Handing messages over: in order, one list at a time for each exit (FWD-10, FWD-11). All lists of
//! a step share the step's budget of moves.

use std::sync::Arc;

use super::{Backlog, Exit, List};
use crate::change::{Change, Durability};
use crate::effect::Effect;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::{MessageView, Queue};
use crate::time::Timestamp;
use crate::transfer::{HOPS_EXCEEDED, HandOver, HandedOverMessage, ListNumber, WhenFull};
use crate::{Ctx, StepOutput};

/// Maximum number of messages of a list. A list also ends at [`LIST_BYTES_MAX`].
const LIST_COUNT_MAX: usize = 256;
const LIST_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of destinations that get a turn in a step because their delay has passed. The
/// rest of the budget is for lists.
const DUE_TURNS_PER_STEP: usize = 256;

impl Backlog {
    /// Whether a list can be handed over at `now`.
    fn is_ready(&self, now: Timestamp) -> bool {
        self.can_have_list() && self.not_before <= now
    }
}

impl Queue {
    /// Hands over waiting messages, within the remaining moves of this step. Called once per list
    /// of commands, after all expirations.
    pub(in crate::queue) fn hand_over(
        &mut self,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        for exit in [Exit::Messages, Exit::DeadLetters] {
            if self.is_ready(&exit, ctx.now) {
                self.hand_over_at(&exit, moves, ctx, step);
            }
        }
        for job in self.transfers.jobs_with_messages() {
            let exit = Exit::Job(job);
            if self.is_ready(&exit, ctx.now) {
                self.hand_over_at(&exit, moves, ctx, step);
            }
        }
        let mut due_turns = DUE_TURNS_PER_STEP.min(*moves);
        *moves -= due_turns;
        self.transfers.give_due_turns(ctx.now, &mut due_turns);
        *moves += due_turns;
        while *moves > 0
            && let Some(destination) = self.transfers.turns.first().cloned()
        {
            // Each examined destination counts as a move, so that the loop ends in any case.
            *moves -= 1;
            self.hand_over_at(&Exit::Pending(destination), moves, ctx, step);
        }
        self.store_last_number(ctx, step);
    }

    /// Stores the last number of a subscription, if a message waits for that.
    fn store_last_number(&mut self, ctx: &Ctx<'_>, step: &mut StepOutput) {
        // A queue stores a number together with its message, so no message waits there.
        if self.subscription.is_none() || self.transfers.storing_last.is_some() {
            return;
        }
        let waits =
            |backlog: &Backlog| backlog.waiting.first().is_some_and(|first| !self.may_leave(first));
        if self.transfers.backlogs().any(waits) {
            let change = Change::Numbered { last: self.last_sequence };
            self.change(change, Durability::Sync, ctx, step);
        }
    }

    /// Whether the store has this number, so that another entity may delete the record (MSG-13). A
    /// queue stores the number together with the message.
    fn may_leave(&self, sequence: SequenceNumber) -> bool {
        self.subscription.is_none() || sequence <= self.transfers.stored_last
    }

    fn is_ready(&self, exit: &Exit, now: Timestamp) -> bool {
        self.is_open(exit)
            && self.transfers.backlog(exit).is_some_and(|backlog| backlog.is_ready(now))
    }

    /// Whether description and status let messages leave by an exit (ENT-27). Messages that a
    /// sender addressed via this queue leave in any status.
    fn is_open(&self, exit: &Exit) -> bool {
        let first = self.transfers.backlog(exit).and_then(|backlog| backlog.waiting.first());
        let is_durable = self.transfers.description_stage.is_none()
            && first.is_none_or(|first| self.may_leave(first));
        match exit {
            Exit::Messages => is_durable && self.has_active_forwarder(),
            Exit::DeadLetters => {
                // A message to be offered again may belong before the waiting ones (FWD-10).
                is_durable
                    && !self.transfers.has_to_reoffer()
                    && self.is_forwarding(SubQueue::DeadLetter)
                    && self.description.status.allows_receive()
            }
            Exit::Pending(_) => true,
            Exit::Job(_) => first.is_none_or(|first| self.may_leave(first)),
        }
    }

    fn destination(&self, exit: &Exit) -> Option<Arc<str>> {
        match exit {
            Exit::Messages => self.description.forward_to.as_deref().map(Arc::from),
            Exit::DeadLetters => {
                self.description.forward_dead_lettered_messages_to.as_deref().map(Arc::from)
            }
            Exit::Pending(destination) => Some(Arc::clone(destination)),
            Exit::Job(job) => {
                Some(self.receipts.get(*job)?.route.as_ref()?.to.clone().unwrap_or_default())
            }
        }
    }

    /// Next instant of work at an exit; in the past if more messages wait than one step moves.
    pub(in crate::queue) fn transfer_deadline(&self) -> Option<Timestamp> {
        [Exit::Messages, Exit::DeadLetters]
            .into_iter()
            .chain(self.transfers.jobs_with_messages().into_iter().map(Exit::Job))
            .filter(|exit| self.is_open(exit))
            .filter_map(|exit| self.transfers.backlog(&exit))
            .filter(|backlog| backlog.can_have_list())
            .map(|backlog| backlog.not_before)
            .chain(self.transfers.turns.next_at())
            .min()
    }

    fn hand_over_at(
        &mut self,
        exit: &Exit,
        moves: &mut usize,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(destination) = self.destination(exit) else { return };
        let receipt = match exit {
            Exit::Job(job) => self.receipts.get(*job),
            Exit::Messages | Exit::DeadLetters | Exit::Pending(_) => None,
        };
        let receipt = receipt.map(|receipt| (receipt.sub_queue, receipt.route.clone()));
        let halvings = self.transfers.backlog(exit).map_or(0, |backlog| backlog.halvings);
        let count_max = LIST_COUNT_MAX >> halvings;
        let mut messages = Vec::new();
        let mut bytes = 0u64;
        while *moves > 0 {
            let first = self.transfers.backlog(exit).and_then(|backlog| backlog.waiting.first());
            let Some(sequence) = first.filter(|first| self.may_leave(*first)) else { break };
            let Some(slot) = self.slots.get(sequence).copied() else { break };
            // An expired message here exceeds the budget of this step; the next step removes it
            // (FWD-06).
            if *exit == Exit::Messages && self.is_expired(&slot, ctx.now) {
                break;
            }
            if receipt.is_none() && slot.hops >= self.config.forwarding.hop_count_max {
                *moves -= 1;
                self.dead_letter_for_hops(sequence, &destination, ctx, step);
                continue;
            }
            if messages.len() == count_max
                || (!messages.is_empty() && bytes + u64::from(slot.size) > LIST_BYTES_MAX)
            {
                break;
            }
            *moves -= 1;
            *moves = moves.saturating_sub(usize::from(slot.overlay_count));
            bytes += u64::from(slot.size);
            self.transfers.alter(exit, |backlog| backlog.waiting.remove(sequence));
            self.freeze(sequence);
            let facts = self.facts(sequence, &slot, MessageView::Received);
            messages.push(HandedOverMessage {
                facts,
                hops: slot.hops,
                copies_spent: slot.copies_spent,
                never_duplicate: slot.is_never_duplicate(),
                time_to_live: (!slot.expires_at.is_never())
                    .then(|| slot.expires_at.since(slot.enqueued_at)),
            });
        }
        if messages.is_empty() {
            return;
        }
        let number = ListNumber(self.transfers.last_list.0 + 1);
        self.transfers.last_list = number;
        let sequences: Vec<SequenceNumber> =
            messages.iter().map(|message| message.facts.sequence).collect();
        self.transfers.lists.insert(number, exit.clone());
        self.transfers.begin_list(exit, List { number, sequences });
        step.effects.push(Effect::HandOver(Box::new(HandOver {
            list: number,
            sub_queue: match (exit, &receipt) {
                (_, Some((sub_queue, _))) => *sub_queue,
                (Exit::DeadLetters, None) => SubQueue::DeadLetter,
                (Exit::Messages | Exit::Pending(_) | Exit::Job(_), None) => SubQueue::Main,
            },
            destination,
            source: self.path().into(),
            when_full: match exit {
                Exit::DeadLetters | Exit::Job(_) => WhenFull::Stop,
                Exit::Messages | Exit::Pending(_) if self.config.forwarding.holds_when_full => {
                    WhenFull::Stop
                }
                Exit::Messages | Exit::Pending(_) => WhenFull::Refuse,
            },
            route: receipt.and_then(|(_, route)| route),
            messages,
        })));
    }

    /// Dead-letters a message that has reached the limit of hops (FWD-12). Others may leave before
    /// that is durable. If the change were lost, the message would be refused again, since the
    /// limit is always the same. So it can never arrive after them.
    fn dead_letter_for_hops(
        &mut self,
        sequence: SequenceNumber,
        destination: &str,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let description = format!(
            "the maximum number of forwarding hops, {}, was exceeded on the way to `{destination}`",
            self.config.forwarding.hop_count_max
        );
        self.dead_letter_transfer(sequence, HOPS_EXCEEDED, &description, ctx, step);
    }
}
