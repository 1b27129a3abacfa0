//! Settlement, locks and delivery count: file 06.

use peeklock_core::command::LinkEnd;
use peeklock_core::condition::Condition;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Doing, Oracle, Reply, TOO_MANY};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    Complete,
    /// With the requested delay.
    Abandon(Option<TimeSpan>),
    Defer,
    DeadLetter,
    Release,
}

impl Oracle {
    /// SET-04, SET-16: locks that time out.
    pub fn end_locks(&mut self, id: u64) {
        let now = self.now;
        let over = self.locked(id, |lock| lock.hold.is_none() && lock.until <= now);
        for sequence in over {
            self.reach("SET-04");
            self.begin_own();
            self.fail(id, sequence, None);
        }
    }

    fn locked(&self, id: u64, which: impl Fn(&super::Lock) -> bool) -> Vec<u64> {
        let cards = self.entities[&id].cards.iter();
        let chosen = cards.filter(|(_, card)| card.lock.as_ref().is_some_and(&which));
        chosen.map(|(sequence, _)| *sequence).collect()
    }

    /// A failed delivery: SET-28, SET-34, SET-35, SET-38, EXP-26, EXP-28, DEF-05, RTY-05, RTY-07.
    /// `requested` is the abandon with its requested delay; `None` if the lock ended in another
    /// way.
    pub fn fail(&mut self, id: u64, sequence: u64, requested: Option<Option<TimeSpan>>) {
        let entity = &self.entities[&id];
        let card = &entity.cards[&sequence];
        let is_main = card.record.sub_queue == SubQueue::Main;
        // SET-38
        let count = card.count + u32::from(is_main);
        let is_active = card.record.state == SlotState::Active;
        if is_main && is_active && entity.is_expired(&card.record, self.now) {
            self.reach("EXP-26");
            return self.end_expired(id, sequence, count);
        }
        if is_main && count >= entity.nature.delivery_count_max {
            self.reach("SET-35");
            let (into, reason) = (SubQueue::DeadLetter, Some(TOO_MANY.to_owned()));
            return self.do_with(id, sequence, Doing::Move { into, count, reason });
        }
        let leaves = self.leaves(id, &card.record);
        let until = self.delayed_until(id, sequence, count, requested.flatten());
        let card = self.of(id).cards.get_mut(&sequence).unwrap();
        card.delayed_until = until;
        card.failures.insert(count, until);
        if requested.is_some() && !is_main && until.is_none() {
            return self.do_with(id, sequence, Doing::Unchanged);
        }
        if requested.is_some() || leaves && is_main {
            return self.do_with(id, sequence, Doing::Count(count, until));
        }
        // No answer waits for such a count (SET-27).
        card.lock = None;
        card.count = count;
    }

    /// The message that a token locks, or the error (SET-13, SET-20, SES-15).
    pub fn held(&self, id: u64, sub_queue: SubQueue, token: u128) -> Result<u64, Condition> {
        let entity = &self.entities[&id];
        if entity.nature.requires_session && sub_queue == SubQueue::Main {
            let name = self.token_holds.get(&token);
            let mut holds = entity.holds.values();
            if !holds.any(|one| Some(&one.name) == name && one.until > self.now) {
                return Err(Condition::SessionLockLost);
            }
        }
        let found = entity.cards.iter().find(|(_, card)| {
            card.record.sub_queue == sub_queue
                && card.lock.as_ref().is_some_and(|lock| {
                    lock.token == Some(token) && (lock.hold.is_some() || lock.until > self.now)
                })
        });
        found.map(|(sequence, _)| *sequence).ok_or(Condition::MessageLockLost)
    }

    pub fn check_settle(
        &self,
        id: u64,
        sub_queue: SubQueue,
        token: u128,
        how: Settled,
    ) -> Result<u64, Condition> {
        if how == Settled::DeadLetter && sub_queue != SubQueue::Main {
            return Err(Condition::InvalidOperation);
        }
        let sequence = self.held(id, sub_queue, token)?;
        if let Settled::Abandon(requested) = how {
            self.check_delay(id, sequence, requested)?;
        }
        Ok(sequence)
    }

    pub fn settle_held(&mut self, id: u64, sequence: u64, how: Settled) {
        let count = self.entities[&id].cards[&sequence].count;
        match how {
            Settled::Complete => self.do_with(id, sequence, Doing::Gone("completed")),
            Settled::Abandon(requested) => self.fail(id, sequence, Some(requested)),
            Settled::Defer => {
                let entity = &self.entities[&id];
                let record = &entity.cards[&sequence].record;
                let is_main = record.sub_queue == SubQueue::Main;
                let is_again = record.state == SlotState::Deferred;
                let counted = count + u32::from(is_main);
                let doing = if is_main && counted >= entity.nature.delivery_count_max {
                    let (into, reason) = (SubQueue::DeadLetter, Some(TOO_MANY.to_owned()));
                    self.reach("SET-33");
                    Doing::Move { into, count: counted, reason }
                } else if is_again && !is_main {
                    Doing::Unchanged
                } else {
                    Doing::Defer(counted)
                };
                self.do_with(id, sequence, doing);
            }
            Settled::DeadLetter => {
                let (into, reason) = (SubQueue::DeadLetter, Some("app".to_owned()));
                self.do_with(id, sequence, Doing::Move { into, count, reason });
            }
            Settled::Release => self.of(id).cards.get_mut(&sequence).unwrap().lock = None,
        }
    }

    pub fn settle(&mut self, id: u64, sub_queue: SubQueue, token: u128, how: Settled) -> Reply {
        match self.check_settle(id, sub_queue, token, how) {
            Ok(sequence) => {
                self.settle_held(id, sequence, how);
                Reply::Done
            }
            Err(condition) => {
                let is_delay = matches!(how, Settled::Abandon(Some(_)))
                    && self.held(id, sub_queue, token).is_ok();
                self.reach(if is_delay { "RTY-08" } else { "SET-20" });
                Reply::Refused(condition)
            }
        }
    }

    pub fn check_renew(&self, id: u64, sub_queue: SubQueue, token: u128) -> Result<u64, Condition> {
        if self.entities[&id].nature.requires_session && sub_queue == SubQueue::Main {
            return Err(Condition::InvalidOperation);
        }
        self.held(id, sub_queue, token)
    }

    /// SET-18
    pub fn renew(&mut self, id: u64, sub_queue: SubQueue, token: u128) -> Reply {
        match self.check_renew(id, sub_queue, token) {
            Ok(sequence) => Reply::Until(self.renew_held(id, sequence)),
            Err(condition) => Reply::Refused(condition),
        }
    }

    pub fn renew_held(&mut self, id: u64, sequence: u64) -> Timestamp {
        let until = self.now.plus(self.entities[&id].nature.lock);
        let card = self.of(id).cards.get_mut(&sequence).unwrap();
        card.lock.as_mut().unwrap().until = until;
        until
    }

    /// SET-21, SET-31, SES-31, SES-33: a receiver has ended.
    pub fn detach(&mut self, id: u64, receiver: u64, end: LinkEnd) -> Reply {
        self.end_calls(id, |call| call.holder == Some(receiver), &Reply::Messages(Vec::new()));
        if let Some(session) = self.held_by(id, receiver) {
            self.end_hold(id, session, end);
        }
        let own = self.locked(id, |lock| lock.hold.is_none() && lock.holder == Some(receiver));
        for sequence in own {
            match end {
                // The settings keep the locks.
                LinkEnd::Orderly | LinkEnd::Lost => {}
                LinkEnd::Broken => {
                    self.reach("SET-31");
                    self.begin_own();
                    self.fail(id, sequence, None);
                }
                LinkEnd::ByBroker => {
                    self.of(id).cards.get_mut(&sequence).unwrap().lock = None;
                }
            }
        }
        Reply::Done
    }
}
