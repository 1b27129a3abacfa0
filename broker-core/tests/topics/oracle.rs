//! A simple model of a topic: no stages, no index, no overlays.

use std::collections::BTreeMap;

use peeklock_core::ids::EntityId;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::reached::Reached;
use crate::rules::{Made, Matter, Rule, copies, select};

/// Duration for which ids are remembered.
pub const WINDOW: TimeSpan = TimeSpan::from_seconds(30);

/// A message as it is published.
#[derive(Clone, PartialEq, Debug)]
pub struct Sent {
    pub marker: u64,
    pub number: i32,
    pub subject: u64,
    pub session: Option<u64>,
    pub id: Option<u64>,
}

/// A copy as a peek shows it.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    pub marker: u64,
    /// The number that the topic gave the message.
    pub published_as: u64,
    pub rule: Option<String>,
    pub mark: Option<u64>,
    pub session: Option<u64>,
    pub reason: Option<&'static str>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Subscription {
    pub rules: BTreeMap<String, Rule>,
    pub dead_letters_errors: bool,
    pub requires_session: bool,
    pub catch_all: bool,
    /// By number, with the stage that stored it.
    pub copies: BTreeMap<u64, (u64, Seen)>,
    pub last: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub detects_duplicates: bool,
    pub last: u64,
    /// By number: the stage that stored it, the instant, the message.
    pub scheduled: BTreeMap<u64, (u64, Timestamp, Sent)>,
    pub ids: BTreeMap<u64, (Timestamp, u64)>,
    pub subscriptions: BTreeMap<EntityId, Subscription>,
    pub reached: Reached,
}

impl Oracle {
    /// Publishes due messages that were already durable, by instant, then by number (SCH-07).
    pub fn materialise(&mut self, now: Timestamp, durable: u64, stage: u64) {
        let mut due: Vec<(Timestamp, u64)> = self
            .scheduled
            .iter()
            .filter(|(_, (born, at, _))| *born <= durable && *at <= now)
            .map(|(number, (_, at, _))| (*at, *number))
            .collect();
        due.sort_unstable();
        for (_, number) in due {
            let (_, _, sent) = self.scheduled.remove(&number).unwrap();
            let published_as = self.publish(&sent, stage);
            let copies = self.copies_of(published_as);
            self.reached.materialised(number, published_as, copies);
        }
    }

    /// The number in the answer to a send.
    pub fn send(&mut self, sent: &Sent, at: Option<Timestamp>, now: Timestamp, stage: u64) -> u64 {
        if let Some(id) = sent.id.filter(|_| self.detects_duplicates) {
            if let Some((accepted_at, number)) = self.ids.get(&id)
                && accepted_at.plus(WINDOW) > now
            {
                // DUP-12: only a schedule returns the number.
                let is_told = at.is_some() && self.scheduled.contains_key(number);
                self.reached.duplicate();
                return if is_told { *number } else { 0 };
            }
            let number = if at.is_some() { self.last + 1 } else { 0 };
            self.ids.insert(id, (now, number));
        }
        match at {
            None => self.publish(sent, stage),
            Some(at) => {
                self.last += 1;
                self.scheduled.insert(self.last, (stage, at, sent.clone()));
                self.reached.scheduled(self.last);
                self.last
            }
        }
    }

    fn publish(&mut self, sent: &Sent, stage: u64) -> u64 {
        self.last += 1;
        // TOP-25 to TOP-27
        let is_selected =
            self.subscriptions.values().any(|one| !one.catch_all && one.selects(sent));
        self.reached.published(self.detects_duplicates, sent, is_selected, &self.subscriptions);
        for subscription in self.subscriptions.values_mut() {
            if subscription.catch_all && is_selected {
                continue;
            }
            for copy in subscription.copies_of(sent, self.last) {
                subscription.last += 1;
                subscription.copies.insert(subscription.last, (stage, copy));
            }
        }
        self.last
    }

    /// Number of copies of a message in all subscriptions.
    pub fn copies_of(&self, published_as: u64) -> usize {
        let all = self.subscriptions.values().flat_map(|one| one.copies.values());
        all.filter(|(_, seen)| seen.published_as == published_as).count()
    }
}

impl Subscription {
    fn selects(&self, sent: &Sent) -> bool {
        select(&self.made_of(sent))
    }

    pub fn made_of(&self, sent: &Sent) -> Vec<Made> {
        let matter = Matter { number: sent.number, subject: sent.subject, session: sent.session };
        copies(&self.rules, self.dead_letters_errors, self.requires_session, matter)
    }

    fn copies_of(&self, sent: &Sent, published_as: u64) -> Vec<Seen> {
        self.made_of(sent)
            .into_iter()
            .map(|Made { rule, mark, session, reason }| Seen {
                marker: sent.marker,
                published_as,
                rule,
                mark,
                session,
                reason,
            })
            .collect()
    }
}
