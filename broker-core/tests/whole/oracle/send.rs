//! Sending, scheduling, updates: files 03, 04 and 08.

use peeklock_core::condition::Condition;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::transfer::lowered;
use super::{Call, Doing, Incoming, Journey, Kind, Lane, Mutable, Oracle, Reply};
use crate::image::{Bare, Record};

/// Interval until a message that exceeds its number of copies is tried again.
const AGAIN: TimeSpan = TimeSpan::from_minutes(1);

/// When a message expires that is enqueued at this instant (EXP-02, EXP-05).
pub fn expiry(own: Option<TimeSpan>, at: Timestamp, ceiling: Option<TimeSpan>) -> Timestamp {
    own.map_or(Timestamp::NEVER, |own| at.plus(ceiling.map_or(own, |ceiling| own.min(ceiling))))
}

impl Oracle {
    /// ENT-24
    pub fn check_send(&self, id: u64) -> Result<(), Condition> {
        if self.entities[&id].now.status.allows_send() {
            return Ok(());
        }
        Err(Condition::EntityDisabled)
    }

    /// SND-29: all or none.
    pub fn send(&mut self, id: u64, messages: &[Bare]) -> Reply {
        match self.check_send(id) {
            Ok(()) => Reply::Numbers(self.accept_all(id, messages)),
            Err(condition) => Reply::Refused(condition),
        }
    }

    pub fn accept_all(&mut self, id: u64, messages: &[Bare]) -> Vec<u64> {
        messages.iter().map(|one| self.accept_one(id, one)).collect()
    }

    fn accept_one(&mut self, id: u64, bare: &Bare) -> u64 {
        if let Some(kept) = self.find_duplicate(id, bare.own_id()) {
            self.reach("DUP-02");
            // DUP-12: only a schedule returns the number.
            return if bare.schedule.is_some() { kept } else { 0 };
        }
        let schedule = bare.schedule.filter(|at| *at > self.now);
        let is_topic = self.entities[&id].nature.kind == Kind::Topic;
        let sequence = match schedule {
            None if is_topic => self.publish(id, bare, Journey::default()),
            _ => self.store(id, bare, schedule, Journey::default()),
        };
        self.remember(id, bare.own_id(), sequence, schedule.is_some());
        sequence
    }

    /// Stores a new message of a queue, or a scheduled one of a topic.
    pub fn store(
        &mut self,
        id: u64,
        bare: &Bare,
        schedule: Option<Timestamp>,
        journey: Journey,
    ) -> u64 {
        let nature = &self.entities[&id].nature;
        let Journey { hops, spent, first, .. } = journey;
        let enqueued_at = schedule.unwrap_or(self.now);
        let ceiling = schedule.is_none().then_some(nature.time_to_live);
        let mut record = Record {
            bare: bare.clone(),
            sub_queue: SubQueue::Main,
            state: if schedule.is_some() { SlotState::Scheduled } else { SlotState::Active },
            count: 0,
            hops,
            spent,
            first,
            enqueued_at,
            expires_at: expiry(lowered(bare.time_to_live, journey), enqueued_at, ceiling),
            text: None,
            delayed_until: None,
        };
        if nature.kind == Kind::Topic {
            // It has no overlays there: the source is stored next to its slot (FWD-26).
            record.text = record.bare.source.take();
        }
        if nature.requires_session {
            record.text = bare.session.map(|session| session.to_string());
        }
        self.come(id, record)
    }

    /// Predicts a record with the next number.
    pub fn come(&mut self, id: u64, record: Record) -> u64 {
        let group = self.in_group();
        let entity = self.of(id);
        let sequence = entity.number();
        entity.incoming.push_back(Incoming::New { sequence, record: Box::new(record), group });
        sequence
    }

    /// VIA-01
    pub fn send_via(&mut self, id: u64, to: &str, messages: &[Bare]) -> Reply {
        match self.check_send(id) {
            Ok(()) => Reply::Numbers(self.entrust(id, to, messages)),
            Err(condition) => Reply::Refused(condition),
        }
    }

    pub fn entrust(&mut self, id: u64, to: &str, messages: &[Bare]) -> Vec<u64> {
        let mut numbers = Vec::new();
        for bare in messages {
            let record = Record {
                bare: bare.clone(),
                sub_queue: SubQueue::Main,
                state: SlotState::Pending,
                count: 0,
                hops: 0,
                spent: 0,
                first: 0,
                enqueued_at: self.now,
                expires_at: Timestamp::NEVER,
                text: Some(to.to_owned()),
                delayed_until: None,
            };
            numbers.push(self.come(id, record));
        }
        numbers
    }

    /// SCH-03, SCH-07: by instant, then by number.
    pub fn materialise(&mut self, id: u64) {
        let is_due = |card: &super::Card| {
            card.record.state == SlotState::Scheduled
                && card.doing.is_none()
                && card.record.enqueued_at <= self.now
                && card.not_before <= self.now
        };
        let cards = self.entities[&id].cards.iter().filter(|(_, card)| is_due(card));
        let mut due: Vec<(Timestamp, u64)> =
            cards.map(|(sequence, card)| (card.record.enqueued_at, *sequence)).collect();
        due.sort_unstable();
        for (_, from) in due {
            let record = self.entities[&id].cards[&from].record.clone();
            let is_topic = self.entities[&id].nature.kind == Kind::Topic;
            if is_topic && !self.may_be_published(&record.bare, record.spent) {
                // It waits until rules or limits allow it (FWD-33).
                self.reach("FWD-33 waits");
                let again = self.now.plus(AGAIN);
                self.of(id).cards.get_mut(&from).unwrap().not_before = again;
                continue;
            }
            self.reach("SCH-03");
            self.begin_own();
            self.do_with(id, from, Doing::Gone("materialised"));
            if is_topic {
                if record.text.is_some() {
                    self.reach("FWD-26");
                }
                let bare = Bare { source: record.text, ..record.bare };
                let (hops, spent, first) = (record.hops, record.spent, record.first);
                self.publish(id, &bare, Journey { hops, spent, first, lowered: None });
                continue;
            }
            let ceiling = Some(self.entities[&id].nature.time_to_live);
            // It may have been lowered on the way.
            let own = (!record.expires_at.is_never())
                .then(|| record.expires_at.since(record.enqueued_at));
            let record = Record {
                state: SlotState::Active,
                enqueued_at: self.now,
                expires_at: expiry(own, self.now, ceiling),
                ..record
            };
            self.come(id, record);
        }
    }

    /// SCH-04, SCH-05
    pub fn cancel(&mut self, id: u64, sequences: &[u64]) -> Reply {
        let entity = &self.entities[&id];
        let waits = |sequence: &u64| {
            entity.cards.get(sequence).is_some_and(|card| {
                card.record.state == SlotState::Scheduled && card.doing.is_none()
            })
        };
        let is_first = |at: usize| !sequences[..at].contains(&sequences[at]);
        if !sequences.iter().enumerate().all(|(at, one)| is_first(at) && waits(one)) {
            return Reply::Refused(Condition::MessageNotFound);
        }
        self.reach("SCH-04");
        for sequence in sequences {
            self.do_with(id, *sequence, Doing::Gone("cancelled"));
        }
        Reply::Done
    }

    /// ENT-17, ENT-24, RCV-29, FWD-27
    pub fn update(&mut self, id: u64, to: Mutable) -> Reply {
        let ticket = self.ticket;
        let entity = self.of(id);
        entity.now = to.clone();
        entity.updates.insert(ticket, to.clone());
        if entity.nature.kind == Kind::Topic {
            return Reply::Done;
        }
        entity.reset_ways();
        if to.forward_dead.is_none() {
            // A new destination also applies to messages that stayed permanently (FWD-28).
            entity.cards.values_mut().for_each(|card| card.stays = false);
        }
        let lanes = [(SubQueue::Main, to.forward_to), (SubQueue::DeadLetter, to.forward_dead)];
        for (which, destination) in lanes {
            if destination.is_some() {
                let is_of = |call: &Call| call.lane == Lane::Of(which);
                self.end_calls(id, is_of, &Reply::Refused(Condition::InvalidOperation));
            }
        }
        if !to.status.allows_receive() {
            self.end_calls(id, |_| true, &Reply::Refused(Condition::EntityDisabled));
        }
        Reply::Done
    }
}
