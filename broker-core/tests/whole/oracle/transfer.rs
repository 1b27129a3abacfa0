//! Forwarding, dead-letter forwarding, send-via: file 10.

use peeklock_core::condition::Condition;
use peeklock_core::machine::StageNumber;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Card, Doing, HOPS, Incoming, Journey, Kind, NO_SESSION, Oracle};
use crate::image::{Bare, Record};

/// Maximum of transfers of a message (FWD-12).
const HOPS_MAX: u8 = 4;
/// Maximum of messages in a transfer, and number of halvings after one that was cut short.
const LIST_COUNT_MAX: usize = 256;
const HALVINGS: u32 = 4;
/// Intervals until a transfer without a result is offered again, and one of dead letters (FWD-28).
const RETRY: TimeSpan = TimeSpan::from_seconds(1);
const DEAD_LETTER_RETRY: TimeSpan = TimeSpan::from_seconds(30);

/// A route out of an entity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exit {
    Messages,
    DeadLetters,
    Pending(String),
}

#[derive(Clone, Default, Debug)]
pub struct Way {
    /// The transfer in progress.
    pub list: Option<Vec<u64>>,
    pub not_before: Timestamp,
    /// A message was given up in this turn, and the stage with that until it is durable: nothing
    /// leaves before (FWD-10).
    pub gives_up: bool,
    pub settled_in: Option<StageNumber>,
    /// Number of halvings of the next transfer, after one was cut short by a refusal.
    pub halvings: u32,
}

/// Facts of a tree that the world determines: the stage of a turn, the last durable stage, and the
/// last copy that a subscription has processed.
#[derive(Clone, Copy)]
pub struct Stages {
    pub own: StageNumber,
    pub durable: StageNumber,
    pub taken_in: u64,
}

/// A transfer that leaves.
#[derive(Clone, PartialEq, Debug)]
pub struct Handed {
    pub sub_queue: SubQueue,
    pub destination: String,
    pub sequences: Vec<u64>,
}

/// A destination's decision about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Taken,
    Refused(Condition),
    /// An earlier message was refused (FWD-10).
    NotTried,
    Kept,
}

/// The time to live of a message after its transfers (EXP-16).
pub fn lowered(own: Option<TimeSpan>, journey: Journey) -> Option<TimeSpan> {
    own.map(|own| journey.lowered.map_or(own, |lowered| own.min(lowered)))
}

impl Oracle {
    /// Whether a message leaves automatically, once it is durable and unlocked (FWD-01, FWD-26,
    /// FWD-28).
    pub fn leaves(&self, id: u64, record: &Record) -> bool {
        let now = &self.entities[&id].now;
        match record.sub_queue {
            SubQueue::Main => now.forward_to.is_some() || record.state == SlotState::Pending,
            SubQueue::DeadLetter => now.forward_dead.is_some() && record.hops < HOPS_MAX,
            SubQueue::TransferDeadLetter => false,
        }
    }

    /// FWD-01, FWD-10, FWD-11, FWD-12: all messages that wait at an exit leave as one transfer, in
    /// order.
    pub fn hand_over(&mut self, id: u64, stages: Stages) -> Vec<Handed> {
        let kind = self.entities[&id].nature.kind;
        if kind == Kind::Topic {
            return Vec::new();
        }
        if let Some((stage, last)) = self.entities[&id].proving
            && stage <= stages.durable
        {
            let entity = self.of(id);
            entity.proved = last;
            entity.proving = None;
        }
        for way in self.of(id).ways.values_mut() {
            if std::mem::take(&mut way.gives_up) {
                way.settled_in = Some(stages.own);
            }
            way.settled_in = way.settled_in.filter(|stage| *stage > stages.durable);
        }
        let handed = self.hand_over_everywhere(id);
        if kind == Kind::Subscription && self.entities[&id].proving.is_none() {
            let waits = |which| {
                let entity = &self.entities[&id];
                let mut leaving = entity.cards.iter().filter(|(_, card)| {
                    let record = &card.record;
                    let is_active = record.state == SlotState::Active;
                    record.sub_queue == which
                        && is_active
                        && card.rests()
                        && !card.is_delayed(self.now)
                        && !card.stays
                        && self.leaves(id, record)
                });
                leaving.next().is_some_and(|(first, _)| *first > entity.proved)
            };
            if waits(SubQueue::Main) || waits(SubQueue::DeadLetter) {
                let entity = self.of(id);
                entity.proving = Some((stages.own, stages.taken_in));
            }
        }
        handed
    }

    fn hand_over_everywhere(&mut self, id: u64) -> Vec<Handed> {
        let entity = &self.entities[&id];
        let mut exits = Vec::new();
        let is_open = entity.now.status.allows_receive() && !entity.has_open_update();
        if let Some(to) = entity.now.forward_to.clone().filter(|_| is_open) {
            exits.push((Exit::Messages, SubQueue::Main, to));
        }
        if let Some(to) = entity.now.forward_dead.clone().filter(|_| is_open) {
            exits.push((Exit::DeadLetters, SubQueue::DeadLetter, to));
        }
        let pending = entity.cards.values().filter(|card| card.record.state == SlotState::Pending);
        let mut destinations: Vec<String> =
            pending.filter_map(|card| card.record.text.clone()).collect();
        destinations.sort_unstable();
        destinations.dedup();
        for to in destinations {
            exits.push((Exit::Pending(to.clone()), SubQueue::Main, to));
        }
        exits
            .into_iter()
            .filter_map(|(exit, from, to)| self.hand_over_at(id, exit, from, to))
            .collect()
    }

    fn hand_over_at(
        &mut self,
        id: u64,
        exit: Exit,
        sub_queue: SubQueue,
        destination: String,
    ) -> Option<Handed> {
        let now = self.now;
        let entity = self.of(id);
        // A subscription's number is stored before its message leaves (MSG-13).
        let last = match entity.nature.kind {
            Kind::Subscription => entity.proved,
            Kind::Topic | Kind::Queue => u64::MAX,
        };
        let way = entity.ways.entry(exit.clone()).or_default();
        if way.list.is_some() || way.not_before > now || way.settled_in.is_some() {
            return None;
        }
        let count_max = LIST_COUNT_MAX >> way.halvings;
        let waits = |card: &Card| {
            let of_exit = match &exit {
                Exit::Pending(to) => {
                    card.record.state == SlotState::Pending
                        && card.record.text.as_deref() == Some(to)
                }
                Exit::Messages | Exit::DeadLetters => {
                    card.record.state == SlotState::Active && card.record.sub_queue == sub_queue
                }
            };
            of_exit && card.rests() && !card.is_delayed(now) && !card.stays
        };
        let waiting: Vec<(u64, u8)> = entity
            .cards
            .iter()
            .filter(|(sequence, card)| **sequence <= last && waits(card))
            .map(|(sequence, card)| (*sequence, card.record.hops))
            .collect();
        let mut sequences = Vec::new();
        for (sequence, hops) in waiting {
            if hops < HOPS_MAX {
                if sequences.len() == count_max {
                    break;
                }
                sequences.push(sequence);
            } else if exit != Exit::DeadLetters {
                self.reach("FWD-12");
                self.begin_own();
                self.give_up(id, sequence, HOPS);
            }
        }
        if sequences.is_empty() {
            return None;
        }
        for sequence in &sequences {
            if self.entities[&id].cards[sequence].delayed_until.is_some() {
                // Not before it is due.
                self.reach("RTY-14");
            }
        }
        let entity = self.of(id);
        for sequence in &sequences {
            entity.cards.get_mut(sequence).unwrap().is_frozen = true;
        }
        entity.ways.get_mut(&exit).unwrap().list = Some(sequences.clone());
        Some(Handed { sub_queue, destination, sequences })
    }

    /// FWD-15, FWD-16, FWD-18
    fn give_up(&mut self, id: u64, sequence: u64, reason: &str) {
        let count = self.entities[&id].cards[&sequence].count;
        let (into, reason) = (self.failures_into, Some(reason.to_owned()));
        self.do_with(id, sequence, Doing::Move { into, count, reason });
    }

    /// A destination's decisions about a transfer (FWD-09, FWD-13, FWD-21, FWD-22). A message keeps
    /// the entity that dead-lettered it (FWD-26). Nothing is accepted after a refused message
    /// (FWD-10), such as one that would exceed its number of copies (FWD-33).
    pub fn arrive(&mut self, from: u64, list: &Handed, to: u64) -> Vec<Fate> {
        if let Err(condition) = self.check_send(to) {
            return vec![Fate::Refused(condition); list.sequences.len()];
        }
        let is_topic = self.entities[&to].nature.kind == Kind::Topic;
        let mut fates = Vec::with_capacity(list.sequences.len());
        for sequence in &list.sequences {
            let record = self.entities[&from].cards[sequence].record.clone();
            let is_now = record.bare.schedule.is_none_or(|at| at <= self.now);
            if fates.last() == Some(&Fate::NotTried) {
                fates.push(Fate::NotTried);
                continue;
            }
            if is_topic && is_now && !self.may_be_published(&record.bare, record.spent) {
                self.reach("FWD-33");
                fates.push(Fate::Refused(Condition::MaxTransferCopiesExceeded));
                continue;
            }
            if self.entities[&to].nature.requires_session && record.bare.session.is_none() {
                self.reach("DLQ-21");
                fates.push(Fate::Refused(Condition::SessionIdIsNull));
                continue;
            }
            if matches!(fates.last(), Some(Fate::Refused(_))) {
                fates.push(Fate::NotTried);
                continue;
            }
            fates.push(Fate::Taken);
            let source = &self.entities[&from];
            let path = source.nature.path.clone();
            let first = if record.first == 0 { *sequence } else { record.first };
            let is_dead = list.sub_queue == SubQueue::DeadLetter;
            let bare = Bare {
                source: if is_dead { Some(path) } else { record.bare.source.clone() },
                ..record.bare.clone()
            };
            self.begin_own();
            let lowered = (!record.expires_at.is_never())
                .then(|| record.expires_at.since(record.enqueued_at));
            let journey = Journey { hops: record.hops + 1, spent: record.spent, first, lowered };
            self.arrive_one(to, &bare, journey);
            let group = self.in_group();
            let left = Incoming::Left { from, sequence: *sequence, group };
            self.of(to).incoming.push_back(left);
        }
        fates
    }

    /// DUP-10, DUP-14: checked like a send.
    fn arrive_one(&mut self, to: u64, bare: &Bare, journey: Journey) {
        if self.find_duplicate(to, bare.own_id()).is_some() {
            self.reach("FWD-22");
            return;
        }
        self.reach("FWD-09");
        let schedule = bare.schedule.filter(|at| *at > self.now);
        let is_topic = self.entities[&to].nature.kind == Kind::Topic;
        let own = lowered(bare.time_to_live, journey);
        let sequence = match is_topic {
            // A published message has it among its properties.
            true => {
                let bare = Bare { time_to_live: own, ..bare.clone() };
                match schedule {
                    None => self.publish(to, &bare, journey),
                    Some(_) => self.store(to, &bare, schedule, journey),
                }
            }
            false => self.store(to, bare, schedule, journey),
        };
        self.remember(to, bare.own_id(), sequence, schedule.is_some());
    }

    /// A message returned to its source is no longer accepted, even if a destination still holds it
    /// (FND-03).
    fn never_arrives(&mut self, id: u64, number: u64) {
        let is_it = |one: &Incoming| matches!(one, Incoming::Left { from, sequence, .. } if (*from, *sequence) == (id, number));
        let all = self.entities.values().flat_map(|entity| &entity.incoming);
        let gone: Vec<u64> = all.filter(|one| is_it(one)).map(Incoming::group).collect();
        for entity in self.entities.values_mut() {
            entity.incoming.retain(|one| !gone.contains(&one.group()));
        }
        self.groups.retain(|group, _| !gone.contains(group));
    }

    /// The source gets the result of a transfer: FWD-15, FWD-25, FWD-28.
    pub fn depart(&mut self, id: u64, sequences: &[u64], fates: &[Fate]) {
        let now = self.now;
        let entity = self.of(id);
        let found =
            entity.ways.iter_mut().find(|(_, way)| way.list.as_deref() == Some(sequences)).map(
                |(exit, way)| {
                    way.list = None;
                    exit.clone()
                },
            );
        let exit = found.expect("a list that is under way");
        let is_cut = fates.contains(&Fate::NotTried);
        let way = self.of(id).ways.get_mut(&exit).unwrap();
        way.halvings = if is_cut { HALVINGS } else { way.halvings.saturating_sub(1) };
        let mut wait = None;
        for (sequence, fate) in sequences.iter().zip(fates) {
            let entity = self.of(id);
            entity.departing.remove(sequence);
            match fate {
                Fate::Taken => {
                    // Its destination may have failed since, and was not checked.
                    if let Some(card) = entity.cards.get_mut(sequence) {
                        card.has_vanished = true;
                    }
                }
                // The refused message no longer blocks it.
                Fate::NotTried => entity.cards.get_mut(sequence).unwrap().is_frozen = false,
                Fate::Kept => {
                    entity.cards.get_mut(sequence).unwrap().is_frozen = false;
                    wait = wait.max(Some(RETRY));
                    self.never_arrives(id, *sequence);
                }
                Fate::Refused(condition) => {
                    entity.cards.get_mut(sequence).unwrap().is_frozen = false;
                    let is_lasting = matches!(
                        condition,
                        Condition::MaxTransferCopiesExceeded | Condition::SessionIdIsNull
                    );
                    if exit == Exit::DeadLetters && is_lasting {
                        self.reach(match condition {
                            Condition::SessionIdIsNull => "DLQ-21 stays",
                            _ => "FWD-33 stays",
                        });
                        self.of(id).cards.get_mut(sequence).unwrap().stays = true;
                        continue;
                    }
                    if exit == Exit::DeadLetters {
                        self.reach("FWD-28");
                        wait = wait.max(Some(DEAD_LETTER_RETRY));
                        continue;
                    }
                    self.reach("FWD-15");
                    self.of(id).ways.get_mut(&exit).unwrap().gives_up = true;
                    self.begin_own();
                    let reason = match condition {
                        Condition::EntityDisabled => "MessagingEntityDisabled",
                        Condition::EntityNotFound => "MessagingEntityNotFound",
                        Condition::MaxTransferCopiesExceeded => "MaxTransferCopiesExceeded",
                        Condition::SessionIdIsNull => NO_SESSION,
                        other => panic!("nobody refuses here with {other:?}"),
                    };
                    self.give_up(id, *sequence, reason);
                }
            }
        }
        if let Some(wait) = wait {
            self.of(id).ways.get_mut(&exit).unwrap().not_before = now.plus(wait);
        }
        if let Exit::Pending(to) = &exit {
            let waits = |card: &Card| {
                let record = &card.record;
                record.state == SlotState::Pending
                    && record.text.as_deref() == Some(to)
                    && !card.has_vanished
                    && card.doing.is_none()
            };
            let entity = &self.entities[&id];
            if !entity.cards.values().any(waits) && !entity.ways[&exit].gives_up {
                self.of(id).ways.remove(&exit);
            }
        }
    }
}

impl super::Entity {
    /// Whether a description with a destination is not durable yet (DESIGN D5).
    fn has_open_update(&self) -> bool {
        self.updates.values().any(|one| one.forward_to.is_some() || one.forward_dead.is_some())
    }
}
