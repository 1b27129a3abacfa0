//! Topics and rules: file 13.

use peeklock_core::condition::Condition;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;

use super::send::expiry;
use super::{Journey, Kind, Oracle, Reply};
use crate::image::{Bare, Record};
use crate::rules::{Made, Matter, Rule, copies, select};

impl Oracle {
    /// TOP-01 to TOP-08: publishes a message to all subscriptions. Returns the number from the
    /// topic.
    pub fn publish(&mut self, topic: u64, bare: &Bare, journey: Journey) -> u64 {
        let published_as = self.of(topic).number();
        let Journey { hops, spent, first, .. } = journey;
        let first = if first == 0 { published_as } else { first };
        let all = self.selected(bare);
        let count_of = |goes_on: bool| {
            let of_kind = all.iter().filter(|(id, _)| self.entities[id].forwards() == goes_on);
            of_kind.map(|(_, made)| made.len()).sum::<usize>()
        };
        let (going_on, resting) = (count_of(true), count_of(false));
        let left = self.left(spent).checked_sub(going_on + resting);
        let left = left.expect("what may not become so many copies is refused (FWD-33)");
        let for_resting = match resting {
            0 => 0,
            _ if going_on == 0 => left / resting,
            _ => left / 2 / resting,
        };
        let for_going_on = (left - for_resting * resting) / going_on.max(1);
        for (id, made) in all {
            let entity = &self.entities[&id];
            let nature = &entity.nature;
            let (requires_session, ceiling) = (nature.requires_session, nature.time_to_live);
            let share = if entity.forwards() { for_going_on } else { for_resting };
            let spent = self.copy_count_max - u16::try_from(share).unwrap();
            for Made { rule, mark, session, reason } in made {
                self.reach(if reason.is_some() { "DLQ-23" } else { "TOP-01" });
                let text = session.filter(|_| requires_session && reason.is_none());
                let record = Record {
                    bare: Bare {
                        session,
                        rule: rule.or_else(|| bare.rule.clone()),
                        mark: mark.or(bare.mark),
                        reason: reason.map(str::to_owned).or_else(|| bare.reason.clone()),
                        ..bare.clone()
                    },
                    sub_queue: reason.map_or(SubQueue::Main, |_| SubQueue::DeadLetter),
                    state: SlotState::Active,
                    count: 0,
                    hops,
                    spent,
                    first,
                    enqueued_at: self.now,
                    expires_at: expiry(bare.time_to_live, self.now, Some(ceiling)),
                    text: text.map(|session| session.to_string()),
                    delayed_until: None,
                };
                self.come(id, record);
            }
        }
        published_as
    }

    /// The copies of each subscription.
    fn selected(&self, bare: &Bare) -> Vec<(u64, Vec<Made>)> {
        let matter = Matter { number: bare.number, subject: bare.subject, session: bare.session };
        let is_one = |id: &u64| self.entities[id].nature.kind == Kind::Subscription;
        let subscriptions = self.entities.keys().copied().filter(is_one);
        let made = |id: u64| {
            let entity = &self.entities[&id];
            let nature = &entity.nature;
            let (errors, session) = (nature.dead_letters_errors, nature.requires_session);
            (id, copies(&entity.rules, errors, session, matter))
        };
        let all: Vec<(u64, Vec<Made>)> = subscriptions.map(made).collect();
        // TOP-25 to TOP-27: a catch-all gets messages that no other subscription selects.
        let is_catch_all = |id: &u64| self.entities[id].now.catch_all;
        let is_selected = all.iter().any(|(id, made)| !is_catch_all(id) && select(made));
        let is_asked = |id: &u64| !is_selected || !is_catch_all(id);
        all.into_iter().filter(|(id, _)| is_asked(id)).collect()
    }

    /// Copies that a message may still become (FWD-33).
    fn left(&self, spent: u16) -> usize {
        usize::from(self.copy_count_max.saturating_sub(spent))
    }

    /// FWD-33: whether a message may become all the copies that the rules make of it.
    pub fn may_be_published(&self, bare: &Bare, spent: u16) -> bool {
        let count: usize = self.selected(bare).iter().map(|(_, made)| made.len()).sum();
        count <= self.left(spent)
    }

    /// TOP-09, TOP-13, TOP-24
    pub fn set_rule(&mut self, id: u64, name: &str, rule: Option<Rule>, is_new: bool) -> Reply {
        let entity = self.of(id);
        let is_there = entity.rules.contains_key(name);
        if is_new && is_there {
            return Reply::Refused(Condition::EntityAlreadyExists);
        }
        if !is_new && !is_there {
            return Reply::Refused(Condition::EntityNotFound);
        }
        match rule {
            Some(rule) => drop(entity.rules.insert(name.to_owned(), rule)),
            None => drop(entity.rules.remove(name)),
        }
        let rules = entity.rules.clone();
        entity.durable_rules.push(rules);
        Reply::Done
    }
}
