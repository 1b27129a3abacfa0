//! Messages that another broker forwards: the checks of a transfer, and a record of each that was taken,
//! in the same batch, so that one whose answer was lost is not stored twice (FWD-09, FWD-13).

use std::sync::Arc;

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::{Outcome, PeerArrival};
use crate::effect::Answer;
use crate::entity::peers::PeerSource;
use crate::entity::slot::{Slot, SlotState};
use crate::entity::{Ctx, Step};
use crate::error::Rejection;
use crate::path::SubQueue;

impl Queue {
    /// Takes messages over in their order, each by itself. What was taken before is taken. Ends at the
    /// first that may be taken later, so that none overtakes it (FWD-10).
    pub(super) fn transfer_from_peer(
        &mut self,
        sub_queue: SubQueue,
        source: PeerSource,
        messages: Vec<PeerArrival>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Answer {
        let mut results = Vec::with_capacity(messages.len());
        for arrival in messages {
            let result = self.take_from_peer(sub_queue, source, arrival, ctx, step);
            let ends = result.as_ref().is_err_and(Rejection::retryable);
            results.push(result);
            if ends {
                break;
            }
        }
        if results.iter().any(Result::is_ok) {
            self.touch(ctx.now);
        }
        Answer::after_commit(Outcome::TakenOver(results))
    }

    fn take_from_peer(
        &mut self,
        sub_queue: SubQueue,
        source: PeerSource,
        arrival: PeerArrival,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<(), Rejection> {
        let PeerArrival { message, sequence: number, enqueued_at: instant, .. } = &arrival;
        if self.peers.knows(&source, *number, *instant) {
            return Ok(());
        }
        let hop_count_max = ctx.limits.hop_count_max;
        if arrival.hops > hop_count_max {
            return Err(Rejection::invalid_operation(format!(
                "the message has made {} hops, the limit is {hop_count_max}",
                arrival.hops
            )));
        }
        self.admit(sub_queue, std::slice::from_ref(message), ctx)?;
        let size = u64::from(message.envelope.size);
        self.refuse_over_quota(step.bytes_added.saturating_add(size), ctx)?;
        if let Some(surplus) = self.peers.surplus(&source) {
            let change = Change::PeerForgotten { source: surplus };
            self.change(change, Durability::Lazy, ctx, step);
        }
        let taking = self.peers.taking(&source, *number, *instant, ctx.now);
        self.arrive_from_peer(arrival, ctx, step);
        self.change(Change::PeerTaken { source, taking }, Durability::Sync, ctx, step);
        Ok(())
    }

    /// Gives an admitted message its number, or drops it as a duplicate (FWD-22).
    fn arrive_from_peer(&mut self, arrival: PeerArrival, ctx: &Ctx<'_>, step: &mut Step) {
        let PeerArrival { message, enqueued_sequence, hops, .. } = arrival;
        let envelope = message.envelope;
        if self.find_duplicate(envelope.message_id_hash, ctx.now).is_some() {
            return;
        }
        let sequence = self.last_sequence.next();
        let scheduled_at = envelope.scheduled_enqueue_time.filter(|at| *at > ctx.now);
        let enqueued_at = scheduled_at.unwrap_or(ctx.now);
        let slot = Slot {
            enqueued_at,
            expires_at: self.own_expiry(envelope.time_to_live, enqueued_at, scheduled_at),
            enqueued_sequence,
            size: envelope.size,
            header_size: envelope.header_size,
            delivery_count: 0,
            lock: None,
            overlay_count: 0,
            state: if scheduled_at.is_some() { SlotState::Scheduled } else { SlotState::Active },
            sub_queue: SubQueue::Main,
            hops,
            in_flight: false,
            transferring: false,
        };
        let session = match self.sessions {
            Some(_) => envelope.session_id.map(Arc::from),
            None => None,
        };
        step.bytes_added += u64::from(slot.size);
        let content = message.content;
        let change = Change::Accepted { sequence, slot, session, content };
        self.change(change, Durability::Sync, ctx, step);
        self.remember_id(envelope.message_id_hash, sequence, scheduled_at.is_some(), ctx, step);
    }
}
