//! What a topic must do, said as simply as possible: no stages, no index, no overlays.

use std::collections::BTreeMap;

use peeklock_core::ids::EntityId;
use peeklock_core::time::{TimeSpan, Timestamp};

/// How long ids are remembered.
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

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Select {
    All,
    None,
    Subject(u64),
    Greater(i32),
    /// Fails on 0.
    Divides,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Act {
    Mark(u64),
    /// Fails on 0.
    Divide,
    RemoveSession,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    pub select: Select,
    pub act: Option<Act>,
}

/// A copy as a browser sees it.
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
    /// By number, with the stage that stored it.
    pub copies: BTreeMap<u64, (u64, Seen)>,
    pub last: u64,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Oracle {
    pub detects_duplicates: bool,
    pub last: u64,
    /// By number: the stage that stored it, the instant, the message.
    pub scheduled: BTreeMap<u64, (u64, Timestamp, Sent)>,
    pub ids: BTreeMap<u64, (Timestamp, u64)>,
    pub subscriptions: BTreeMap<EntityId, Subscription>,
}

impl Oracle {
    /// What is due by now and was durable before is published, by instant, then by number (SCH-07).
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
            self.publish(&sent, stage);
        }
    }

    /// The number that a sender is told.
    pub fn send(&mut self, sent: &Sent, at: Option<Timestamp>, now: Timestamp, stage: u64) -> u64 {
        if let Some(id) = sent.id.filter(|_| self.detects_duplicates) {
            if let Some((accepted_at, number)) = self.ids.get(&id)
                && accepted_at.plus(WINDOW) > now
            {
                return if self.scheduled.contains_key(number) { *number } else { 0 };
            }
            let number = if at.is_some() { self.last + 1 } else { 0 };
            self.ids.insert(id, (now, number));
        }
        match at {
            None => self.publish(sent, stage),
            Some(at) => {
                self.last += 1;
                self.scheduled.insert(self.last, (stage, at, sent.clone()));
                self.last
            }
        }
    }

    fn publish(&mut self, sent: &Sent, stage: u64) -> u64 {
        self.last += 1;
        for subscription in self.subscriptions.values_mut() {
            for copy in subscription.copies_of(sent, self.last) {
                subscription.last += 1;
                subscription.copies.insert(subscription.last, (stage, copy));
            }
        }
        self.last
    }
}

impl Subscription {
    /// TOP-02 to TOP-05, DLQ-21, DLQ-23 to DLQ-25.
    fn copies_of(&self, sent: &Sent, published_as: u64) -> Vec<Seen> {
        let unchanged = Seen {
            marker: sent.marker,
            published_as,
            rule: None,
            mark: None,
            session: sent.session,
            reason: None,
        };
        let mut plain = Vec::new();
        let mut changed = Vec::new();
        let mut failed = None;
        for (name, rule) in &self.rules {
            let selected = match rule.select {
                Select::All => Ok(true),
                Select::None => Ok(false),
                Select::Subject(subject) => Ok(sent.subject == subject),
                Select::Greater(bound) => Ok(sent.number > bound),
                Select::Divides if sent.number == 0 => Err("FilterException"),
                Select::Divides => Ok(10 / sent.number > 3),
            };
            match (selected, rule.act) {
                (Ok(false), _) => {}
                (Ok(true), None) => plain = vec![unchanged.clone()],
                (Ok(true), Some(Act::Divide)) if sent.number == 0 => {
                    failed.get_or_insert("RuleActionException");
                }
                (Ok(true), Some(act)) => {
                    let (mark, session) = match act {
                        Act::Mark(mark) => (Some(mark), sent.session),
                        Act::Divide => (None, sent.session),
                        Act::RemoveSession => (None, None),
                    };
                    let rule = Some(name.clone());
                    changed.push(Seen { rule, mark, session, ..unchanged.clone() });
                }
                (Err(reason), _) => {
                    failed.get_or_insert(reason);
                }
            }
        }
        let mut copies: Vec<Seen> = plain.into_iter().chain(changed).collect();
        for copy in &mut copies {
            if self.requires_session && copy.session.is_none() {
                copy.reason = Some("Session ID is null.");
            }
        }
        if let Some(reason) = failed.filter(|_| self.dead_letters_errors) {
            copies.push(Seen { reason: Some(reason), ..unchanged });
        }
        copies
    }
}
