//! Sessions: file 11.

use std::collections::BTreeSet;

use peeklock_core::command::LinkEnd;
use peeklock_core::condition::Condition;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::{Call, Doing, Lane, Oracle, Reply};

/// Holder of a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Hold {
    pub receiver: u64,
    pub until: Timestamp,
    /// Unique id of this lock.
    pub name: u64,
}

impl Oracle {
    pub fn held_by(&self, id: u64, receiver: u64) -> Option<u64> {
        let mut holds = self.entities[&id].holds.iter();
        holds.find(|(_, hold)| hold.receiver == receiver).map(|(session, _)| *session)
    }

    /// SES-15
    fn in_force(&self, id: u64, receiver: u64) -> Result<u64, Condition> {
        self.held_by(id, receiver)
            .filter(|session| self.entities[&id].holds[session].until > self.now)
            .ok_or(Condition::SessionLockLost)
    }

    /// SES-30: session locks that time out.
    pub fn end_holds(&mut self, id: u64) {
        let now = self.now;
        let holds = self.entities[&id].holds.iter().filter(|(_, hold)| hold.until <= now);
        let over: Vec<(u64, u64)> =
            holds.map(|(session, hold)| (*session, hold.receiver)).collect();
        for (session, receiver) in over {
            self.reach("SES-30");
            let lost = Reply::Refused(Condition::SessionLockLost);
            self.end_calls(id, |call| call.holder == Some(receiver), &lost);
            self.end_hold(id, session, LinkEnd::Broken);
        }
    }

    /// SES-30, SES-31, SES-33
    pub fn end_hold(&mut self, id: u64, session: u64, end: LinkEnd) {
        let name = self.entities[&id].holds[&session].name;
        let cards = self.entities[&id].cards.iter();
        let under: Vec<u64> = cards
            .filter(|(_, card)| card.lock.as_ref().is_some_and(|lock| lock.hold == Some(name)))
            .map(|(sequence, _)| *sequence)
            .collect();
        for sequence in under {
            match end {
                LinkEnd::Broken | LinkEnd::Lost => {
                    self.begin_own();
                    self.fail(id, sequence, None);
                }
                LinkEnd::Orderly | LinkEnd::ByBroker => {
                    self.reach("SES-31");
                    self.of(id).cards.get_mut(&sequence).unwrap().lock = None;
                }
            }
        }
        self.of(id).holds.remove(&session);
    }

    fn hold(&mut self, id: u64, session: u64, receiver: u64) {
        self.next_name += 1;
        let name = self.next_name;
        let until = self.now.plus(self.entities[&id].nature.lock);
        self.of(id).holds.insert(session, Hold { receiver, until, name });
    }

    /// SES-05, SES-06, SES-08
    pub fn accept(&mut self, id: u64, call: Call, session: Option<u64>) -> Option<Reply> {
        let entity = &self.entities[&id];
        if !entity.now.status.allows_receive() {
            return Some(Reply::Refused(Condition::EntityDisabled));
        }
        let Some(session) = session else {
            self.of(id).calls.push_back(call);
            return None;
        };
        if entity.holds.contains_key(&session) {
            self.reach("SES-06");
            return Some(Reply::Refused(Condition::SessionCannotBeLocked));
        }
        self.hold(id, session, call.holder.unwrap());
        Some(Reply::Accepted(session))
    }

    /// SES-19, SES-20: the next messages of a session in order. Nothing overtakes a message that is
    /// being returned, and a delayed one is passed only where that is allowed (RTY-22, RTY-23).
    pub fn next_in(&self, id: u64, session: u64) -> Vec<u64> {
        let session = session.to_string();
        let mut next = Vec::new();
        for (sequence, card) in &self.entities[&id].cards {
            let record = &card.record;
            if record.sub_queue != SubQueue::Main
                || record.state != SlotState::Active
                || record.text.as_deref() != Some(&*session)
            {
                continue;
            }
            let is_on_its_way_back = matches!(card.doing, Some((Doing::Count(..), _)));
            let is_delayed = card.is_delayed(self.now) && (is_on_its_way_back || card.rests());
            if is_delayed && self.entities[&id].now.passes {
                continue;
            }
            if is_on_its_way_back || is_delayed {
                break;
            }
            if card.rests() {
                next.push(*sequence);
            }
        }
        next
    }

    /// Records that a receiver of a session finds a delayed message with another after it.
    pub fn reach_retried(&mut self, id: u64, session: u64) {
        let session = session.to_string();
        let entity = &self.entities[&id];
        let mut rest = entity.cards.values().filter(|card| {
            let is_of = card.record.text.as_deref() == Some(&*session);
            is_of && card.record.sub_queue == SubQueue::Main && card.rests()
        });
        let is_held_up = rest.any(|card| card.is_delayed(self.now)) && rest.next().is_some();
        if is_held_up {
            self.reach(if self.entities[&id].now.passes { "RTY-23" } else { "RTY-22" });
        }
    }

    /// Records that a free session is not offered because its lowest message is delayed (RTY-24).
    fn reach_not_offered(&mut self, id: u64, sessions: &BTreeSet<u64>) {
        let entity = &self.entities[&id];
        let waits = |session: &&u64| {
            let name = session.to_string();
            let mut cards = entity.cards.values();
            let first = cards.find(|card| {
                let is_of = card.record.text.as_deref() == Some(&*name);
                is_of && card.record.state == SlotState::Active
            });
            first.is_some_and(|card| card.rests() && card.is_delayed(self.now))
        };
        let is_free = |session: &&u64| !entity.holds.contains_key(*session);
        let count = sessions.iter().filter(is_free).filter(waits).count();
        if count > 0 && !entity.now.passes {
            self.reach("RTY-24");
        }
    }

    /// SES-07, SES-08
    pub fn give_sessions(&mut self, id: u64) {
        loop {
            let entity = &self.entities[&id];
            let Some(at) = entity.calls.iter().position(|call| call.lane == Lane::Accept) else {
                return;
            };
            let cards = entity.cards.values();
            let all: BTreeSet<u64> = cards
                .filter(|card| card.record.sub_queue == SubQueue::Main)
                .filter_map(|card| card.record.text.as_deref()?.parse().ok())
                .collect();
            self.reach_not_offered(id, &all);
            let entity = &self.entities[&id];
            let first = all
                .into_iter()
                .filter(|session| !entity.holds.contains_key(session))
                .filter_map(|session| Some((*self.next_in(id, session).first()?, session)))
                .min();
            let Some((_, session)) = first else { return };
            self.reach("SES-07");
            let call = self.of(id).calls.remove(at).unwrap();
            self.hold(id, session, call.holder.unwrap());
            self.replies.insert(call.ticket, Reply::Accepted(session));
        }
    }

    /// SES-15, SES-21
    pub fn receive_in_session(&mut self, id: u64, mut call: Call) -> Option<Reply> {
        match self.in_force(id, call.holder.unwrap()) {
            Err(condition) => Some(Reply::Refused(condition)),
            Ok(_) if !self.entities[&id].now.status.allows_receive() => {
                Some(Reply::Refused(Condition::EntityDisabled))
            }
            Ok(session) => {
                call.lane = Lane::Session(session);
                self.of(id).calls.push_back(call);
                None
            }
        }
    }

    /// SES-12
    pub fn renew_session(&mut self, id: u64, receiver: u64) -> Reply {
        match self.in_force(id, receiver) {
            Err(condition) => Reply::Refused(condition),
            Ok(session) => {
                let until = self.now.plus(self.entities[&id].nature.lock);
                self.of(id).holds.get_mut(&session).unwrap().until = until;
                Reply::Until(until)
            }
        }
    }

    /// SES-24
    pub fn state(&self, id: u64, receiver: u64) -> Reply {
        match self.in_force(id, receiver) {
            Err(condition) => Reply::Refused(condition),
            Ok(session) => Reply::State(self.entities[&id].states.get(&session).copied()),
        }
    }

    /// SES-24, SES-25
    pub fn set_state(&mut self, id: u64, receiver: u64, state: Option<u8>) -> Reply {
        match self.in_force(id, receiver) {
            Err(condition) => Reply::Refused(condition),
            Ok(session) => {
                let entity = self.of(id);
                match state {
                    Some(state) => drop(entity.states.insert(session, state)),
                    None => drop(entity.states.remove(&session)),
                }
                let states = entity.states.clone();
                entity.durable_states.push(states);
                Reply::Done
            }
        }
    }

    /// DEF-08
    pub fn receive_deferred_in(&mut self, id: u64, receiver: u64, sequences: &[u64]) -> Reply {
        let session = match self.in_force(id, receiver) {
            Err(condition) => return Reply::Refused(condition),
            Ok(session) => session.to_string(),
        };
        if !self.entities[&id].now.status.allows_receive() {
            return Reply::Refused(Condition::EntityDisabled);
        }
        if !self.are_deferred(id, SubQueue::Main, sequences) {
            return Reply::Refused(Condition::MessageNotFound);
        }
        let cards = &self.entities[&id].cards;
        if sequences.iter().any(|one| cards[one].record.text.as_deref() != Some(&*session)) {
            self.reach("DEF-08");
            return Reply::Refused(Condition::SessionLockLost);
        }
        self.hand_out(id, sequences, Some(receiver), false)
    }
}
