//! Receive, deferral, browsing: files 05 and 08.

use peeklock_core::condition::Condition;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::{Call, Card, Doing, Lane, Lock, Oracle, Reply};

impl Oracle {
    /// RCV-25, RCV-27: messages available to a receiver of a lane, lowest numbers first.
    pub fn available(&self, id: u64, lane: Lane) -> Vec<u64> {
        let which = match lane {
            Lane::Session(session) => return self.next_in(id, session),
            Lane::Accept => return Vec::new(),
            Lane::Of(which) => which,
        };
        let entity = &self.entities[&id];
        if which == SubQueue::Main && entity.nature.requires_session {
            return Vec::new();
        }
        let is_available = |card: &Card| {
            card.rests()
                && card.record.sub_queue == which
                && card.record.state == SlotState::Active
                && !card.is_delayed(self.now)
                && (card.stays || !self.leaves(id, &card.record))
        };
        let cards = entity.cards.iter().filter(|(_, card)| is_available(card));
        cards.map(|(sequence, _)| *sequence).collect()
    }

    /// RCV-29, FWD-27, FWD-28, ENT-24
    fn refuse_receiving(&self, id: u64, which: SubQueue) -> Option<Condition> {
        let entity = &self.entities[&id];
        let is_forwarded = match which {
            SubQueue::Main => entity.forwards(),
            SubQueue::DeadLetter => {
                entity.now.forward_dead.is_some() && self.available(id, Lane::Of(which)).is_empty()
            }
            SubQueue::TransferDeadLetter => false,
        };
        if is_forwarded {
            return Some(Condition::InvalidOperation);
        }
        (!entity.now.status.allows_receive()).then_some(Condition::EntityDisabled)
    }

    /// RCV-28
    pub fn receive(&mut self, id: u64, call: Call) -> Option<Reply> {
        let Lane::Of(which) = call.lane else { return None };
        if which == SubQueue::Main && self.entities[&id].nature.requires_session {
            return Some(Reply::Refused(Condition::InvalidOperation));
        }
        if let Some(condition) = self.refuse_receiving(id, which) {
            return Some(Reply::Refused(condition));
        }
        self.of(id).calls.push_back(call);
        None
    }

    /// RCV-12, RCV-13: waiting calls are served in order, sessions before sub-queues. Each gets
    /// everything available up to its maximum.
    pub fn give_messages(&mut self, id: u64) {
        let mut calls: Vec<Call> = self.entities[&id].calls.iter().cloned().collect();
        calls.sort_by_key(|call| match call.lane {
            Lane::Session(_) | Lane::Accept => 0,
            Lane::Of(SubQueue::Main) => 1,
            Lane::Of(SubQueue::DeadLetter) => 2,
            Lane::Of(SubQueue::TransferDeadLetter) => 3,
        });
        for call in calls {
            if let Lane::Session(session) = call.lane {
                self.reach_retried(id, session);
            }
            let mut given = self.available(id, call.lane);
            given.truncate(call.count_max);
            if given.is_empty() {
                continue;
            }
            self.of(id).calls.retain(|other| other.ticket != call.ticket);
            self.ticket = call.ticket;
            let reply = self.hand_out(id, &given, call.holder, call.takes);
            self.replies.insert(call.ticket, reply);
        }
    }

    /// RCV-02, RCV-05, RCV-06, SET-30, SES-14
    pub fn hand_out(&mut self, id: u64, given: &[u64], holder: Option<u64>, takes: bool) -> Reply {
        let mut shown = Vec::new();
        let session = holder.and_then(|receiver| self.held_by(id, receiver));
        let until = self.now.plus(self.entities[&id].nature.lock);
        for sequence in given {
            let entity = self.of(id);
            let card = entity.cards.get_mut(sequence).unwrap();
            if takes {
                shown.push((*sequence, card.count));
                self.do_with(id, *sequence, Doing::Gone("received"));
                continue;
            }
            shown.push((*sequence, card.count + 1));
            let is_main = card.record.sub_queue == SubQueue::Main;
            let hold = session.filter(|_| is_main).map(|one| entity.holds[&one].name);
            let until = if hold.is_some() { Timestamp::NEVER } else { until };
            // When released, it is offered at its exit again.
            card.stays = false;
            card.lock = Some(Lock { token: None, until, holder, hold });
        }
        Reply::Messages(shown)
    }

    /// RCV-11, SES-08
    pub fn time_out(&mut self, id: u64) {
        let now = self.now;
        let is_over = |call: &Call| call.deadline <= now && call.lane != Lane::Accept;
        self.end_calls(id, is_over, &Reply::Messages(Vec::new()));
        let is_over = |call: &Call| call.deadline <= now;
        self.end_calls(id, is_over, &Reply::Refused(Condition::ServiceTimeout));
    }

    /// Ends calls. If receives get an empty answer, calls that wait for a session are cancelled
    /// (SES-08).
    pub fn end_calls(&mut self, id: u64, which: impl Fn(&Call) -> bool, reply: &Reply) {
        let calls = self.entities[&id].calls.iter();
        let ended: Vec<Call> = calls.filter(|call| which(call)).cloned().collect();
        self.of(id).calls.retain(|call| !which(call));
        for call in ended {
            let reply = match (call.lane, reply) {
                (Lane::Accept, Reply::Messages(_)) => Reply::Refused(Condition::OperationCancelled),
                (_, reply) => reply.clone(),
            };
            self.replies.insert(call.ticket, reply);
        }
    }

    pub fn are_deferred(&self, id: u64, which: SubQueue, sequences: &[u64]) -> bool {
        let entity = &self.entities[&id];
        let is_deferred = |sequence: &u64| {
            entity.cards.get(sequence).is_some_and(|card| {
                card.rests()
                    && card.record.sub_queue == which
                    && card.record.state == SlotState::Deferred
                    && !entity.is_expired(&card.record, self.now)
            })
        };
        let is_first = |at: usize| !sequences[..at].contains(&sequences[at]);
        sequences.iter().enumerate().all(|(at, one)| is_first(at) && is_deferred(one))
    }

    /// DEF-02, DEF-03
    pub fn receive_deferred(
        &mut self,
        id: u64,
        which: SubQueue,
        sequences: &[u64],
        holder: Option<u64>,
    ) -> Reply {
        if which == SubQueue::Main && self.entities[&id].nature.requires_session {
            return Reply::Refused(Condition::SessionLockLost);
        }
        if let Some(condition) = self.refuse_receiving(id, which) {
            return Reply::Refused(condition);
        }
        if !self.are_deferred(id, which, sequences) {
            return Reply::Refused(Condition::MessageNotFound);
        }
        self.reach("DEF-03");
        self.hand_out(id, sequences, holder, false)
    }

    /// PEK-01, PEK-03
    pub fn peek(&self, id: u64, which: SubQueue) -> Reply {
        let seen = self.entities[&id].cards.iter().filter(|(_, card)| {
            card.record.sub_queue == which
                && card.record.state != SlotState::Pending
                && card.doing.is_none()
                && !card.is_frozen
                && !card.has_vanished
        });
        Reply::Peeked(
            seen.map(|(sequence, card)| {
                let until = card.delayed_until.filter(|_| card.is_delayed(self.now));
                (*sequence, card.count, card.record.state, until)
            })
            .collect(),
        )
    }
}
