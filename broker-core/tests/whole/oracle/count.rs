//! Counts and sizes: file 17.

use std::collections::BTreeSet;

use peeklock_core::command::Counts;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;

use super::{Doing, Incoming, Oracle};

impl Oracle {
    /// CNT-01 to CNT-05, VIA-06: messages by state, including changes that are being stored.
    pub fn counts(&self, id: u64) -> Counts {
        let entity = &self.entities[&id];
        let mut counts = Counts::default();
        let mut count = |sub_queue: SubQueue, state: SlotState| match (sub_queue, state) {
            (SubQueue::DeadLetter, _) => counts.dead_letter += 1,
            (SubQueue::TransferDeadLetter, _) => counts.transfer_dead_letter += 1,
            (SubQueue::Main, SlotState::Active) => counts.active += 1,
            (SubQueue::Main, SlotState::Deferred) => counts.deferred += 1,
            (SubQueue::Main, SlotState::Scheduled) => counts.scheduled += 1,
            (SubQueue::Main, SlotState::Pending) => counts.transfer += 1,
        };
        let mut delayed = 0;
        let mut frozen = entity.departing.len() as u64;
        let lists = entity.ways.values().filter_map(|way| way.list.as_ref());
        let under_way: BTreeSet<u64> = lists.flatten().copied().collect();
        for (sequence, card) in &entity.cards {
            let (sub_queue, state) = (card.record.sub_queue, card.record.state);
            match &card.doing {
                // It is at its destination, and its source knows that, or was opened again.
                _ if card.has_vanished && !under_way.contains(sequence) => {}
                _ if card.is_frozen => frozen += 1,
                Some((Doing::Gone(_), _)) => {}
                Some((Doing::Defer(_), _)) => count(sub_queue, SlotState::Deferred),
                Some((Doing::Move { into, .. }, _)) => count(*into, SlotState::Active),
                Some((Doing::Count(..) | Doing::Unchanged, _)) | None => {
                    count(sub_queue, state);
                    // RTY-11
                    let is_main = sub_queue == SubQueue::Main;
                    delayed += u64::from(is_main && card.is_delayed(self.now));
                }
            }
        }
        for one in &entity.incoming {
            if let Incoming::New { record, .. } = one {
                count(record.sub_queue, record.state);
            }
        }
        counts.transfer += frozen;
        counts.delayed = delayed;
        counts
    }
}
