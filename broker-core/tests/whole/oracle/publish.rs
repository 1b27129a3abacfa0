//! Topics and rules: file 13.

use peeklock_core::condition::Condition;
use peeklock_core::entity::slot::SlotState;
use peeklock_core::path::SubQueue;

use super::send::expiry;
use super::{Kind, Oracle, Reply};
use crate::image::{Bare, Record};
use crate::rules::{Made, Matter, Rule, copies};

impl Oracle {
    /// TOP-01 to TOP-08: what a message becomes in all subscriptions; the number that the topic gives it.
    pub fn publish(&mut self, topic: u64, bare: &Bare, journey: Option<(u8, u64)>) -> u64 {
        let published_as = self.of(topic).number();
        let (hops, first) = journey.unwrap_or_default();
        let first = if first == 0 { published_as } else { first };
        let is_one = |id: &u64| self.entities[id].nature.kind == Kind::Subscription;
        let subscriptions: Vec<u64> = self.entities.keys().copied().filter(is_one).collect();
        let matter = Matter { number: bare.number, subject: bare.subject, session: bare.session };
        for id in subscriptions {
            let entity = &self.entities[&id];
            let nature = &entity.nature;
            let (requires_session, ceiling) = (nature.requires_session, nature.time_to_live);
            let made = copies(&entity.rules, nature.dead_letters_errors, requires_session, matter);
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
                    first,
                    enqueued_at: self.now,
                    expires_at: expiry(bare.time_to_live, self.now, Some(ceiling)),
                    text: text.map(|session| session.to_string()),
                };
                self.come(id, record);
            }
        }
        published_as
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
