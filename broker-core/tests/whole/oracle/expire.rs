//! Expiration: file 07 (EXP-20 to EXP-47).

use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;

use super::{Doing, EXPIRED, Kind, Lane, Oracle};

impl Oracle {
    /// File 01, "active receiver".
    fn has_receiver(&self, id: u64) -> bool {
        let entity = &self.entities[&id];
        if entity.nature.requires_session {
            let waits = entity.calls.iter().any(|call| call.lane == Lane::Accept);
            return waits || !entity.holds.is_empty();
        }
        (entity.forwards() && entity.now.status.allows_receive())
            || entity.calls.iter().any(|call| call.lane == Lane::Of(SubQueue::Main))
    }

    /// EXP-20, EXP-31, EXP-41: expired messages are removed while there is a receiver.
    pub fn expire(&mut self, id: u64) {
        if self.entities[&id].nature.kind == Kind::Topic || !self.has_receiver(id) {
            return;
        }
        let entity = &self.entities[&id];
        let waits = |sequence: &u64| {
            let card = &entity.cards[sequence];
            card.rests()
                && card.record.sub_queue == SubQueue::Main
                && card.record.state == SlotState::Active
        };
        let waiting: Vec<u64> = entity.cards.keys().copied().filter(waits).collect();
        let is_over = |one: &u64| entity.is_expired(&entity.cards[one].record, self.now);
        let over: Vec<u64> = waiting.iter().copied().filter(is_over).collect();
        let session_of = |one: &u64| &entity.cards[one].record.text;
        let whole = entity.nature.requires_session && self.expires_whole_sessions;
        let doomed: Vec<(u64, bool)> = waiting
            .iter()
            .map(|one| (*one, over.contains(one)))
            .filter(|(one, own)| {
                *own || (whole && over.iter().any(|by| session_of(by) == session_of(one)))
            })
            .collect();
        for (sequence, own) in doomed {
            self.reach(if own { "EXP-20" } else { "EXP-41" });
            if self.entities[&id].cards[&sequence].is_delayed(self.now) {
                self.reach(if own { "RTY-07" } else { "RTY-25" });
            }
            let count = self.entities[&id].cards[&sequence].count;
            // Each is removed separately: they need not be stored together.
            self.begin_own();
            self.end_expired(id, sequence, count);
        }
    }

    /// EXP-21, EXP-22
    pub fn end_expired(&mut self, id: u64, sequence: u64, count: u32) {
        let into = SubQueue::DeadLetter;
        let doing = if self.entities[&id].nature.keeps_expired {
            Doing::Move { into, count, reason: Some(EXPIRED.to_owned()) }
        } else {
            Doing::Gone("expired")
        };
        self.do_with(id, sequence, doing);
    }
}
