//! Counts how often the random work has covered each rule of the specification: an id counts as
//! proven only if its case has occurred many times.

use std::collections::BTreeMap;

use peeklock_core::ids::EntityId;

use crate::oracle::{Sent, Subscription};
use crate::rules::{Matter, copies};

/// All rules that must be covered.
pub const RULES: [&str; 29] = [
    "DLQ-21",
    "DLQ-23 action",
    "DLQ-23 filter",
    "DLQ-24",
    "DLQ-25",
    "DLQ-27",
    "DUP-02",
    "DUP-09",
    "FND-02",
    "LIF-02",
    "MSG-13",
    "MSG-16",
    "SCH-03",
    "SCH-10",
    "TOP-01",
    "TOP-02",
    "TOP-03",
    "TOP-04",
    "TOP-05",
    "TOP-06 dropped",
    "TOP-06 no rule",
    "TOP-07",
    "TOP-08",
    "TOP-09",
    "TOP-24",
    "TOP-25 all others",
    "TOP-25 only",
    "TOP-26",
    "TOP-27",
];

#[derive(Clone, Debug, Default)]
pub struct Reached {
    times: BTreeMap<&'static str, u64>,
    /// Number of changes of rules and subscriptions.
    changes: u64,
    /// The number of changes when each waiting message was scheduled.
    scheduled: BTreeMap<u64, u64>,
    was_duplicate: bool,
}

impl Reached {
    pub fn reach(&mut self, rule: &'static str) {
        *self.times.entry(rule).or_default() += 1;
    }

    fn reach_if(&mut self, rule: &'static str, is_so: bool) {
        if is_so {
            self.reach(rule);
        }
    }

    pub fn add_to(&self, sum: &mut BTreeMap<&'static str, u64>) {
        for (rule, times) in &self.times {
            *sum.entry(rule).or_default() += times;
        }
    }

    /// Records a change of rules or subscriptions.
    pub fn changed(&mut self) {
        self.changes += 1;
    }

    pub fn duplicate(&mut self) {
        self.reach("DUP-02");
        self.was_duplicate = true;
    }

    pub fn scheduled(&mut self, number: u64) {
        self.scheduled.insert(number, self.changes);
    }

    pub fn materialised(&mut self, number: u64, published_as: u64, copies: usize) {
        let changes = self.scheduled.remove(&number);
        self.reach_if("SCH-03", published_as != number && copies > 0);
        self.reach_if("SCH-10", changes.is_some_and(|changes| changes < self.changes));
    }

    /// Records a publish to these subscriptions.
    pub fn published(
        &mut self,
        detects_duplicates: bool,
        sent: &Sent,
        is_selected: bool,
        subscriptions: &BTreeMap<EntityId, Subscription>,
    ) {
        let was_duplicate = std::mem::take(&mut self.was_duplicate);
        self.reach_if("MSG-13", was_duplicate);
        let (mut counts, mut has_failed) = (Vec::new(), Vec::new());
        let mut caught = 0;
        for of in subscriptions.values() {
            if of.catch_all && is_selected {
                self.reach_if("TOP-25 all others", !of.made_of(sent).is_empty());
                continue;
            }
            let copies = of.made_of(sent);
            let failed = self.selected(of, sent);
            self.reach_if("DUP-09", detects_duplicates && sent.id.is_some() && copies.len() > 1);
            let is_sessionless = |reason| reason == Some("Session ID is null.");
            self.reach_if("DLQ-21", copies.iter().any(|one| is_sessionless(one.reason)));
            if of.catch_all {
                caught += usize::from(!copies.is_empty());
                self.reach_if("TOP-25 only", !copies.is_empty());
                self.reach_if("TOP-26", copies.is_empty() || copies.len() > 1);
            }
            counts.push(copies.len());
            has_failed.push(failed > 0);
        }
        let some = |is: fn(&usize) -> bool| counts.iter().any(is);
        self.reach_if(
            "TOP-01",
            some(|count| *count == 0) && some(|count| *count == 1) && some(|count| *count > 1),
        );
        self.reach_if("TOP-06 dropped", counts.iter().all(|count| *count == 0));
        self.reach_if("TOP-27", caught > 1);
        let beside = counts.iter().zip(&has_failed).any(|(count, failed)| *count > 0 && !failed);
        self.reach_if("DLQ-27", beside && has_failed.contains(&true));
    }

    /// Results of each rule of one subscription by itself. Returns how many fail.
    fn selected(&mut self, of: &Subscription, sent: &Sent) -> usize {
        let matter = Matter { number: sent.number, subject: sent.subject, session: sent.session };
        let (mut plain, mut changed, mut failed) = (0, 0, Vec::new());
        for (name, rule) in &of.rules {
            let alone = BTreeMap::from([(name.clone(), *rule)]);
            match copies(&alone, true, false, matter).first() {
                None => {}
                Some(copy) if copy.reason.is_some() => failed.extend(copy.reason),
                Some(copy) if copy.rule.is_some() => changed += 1,
                Some(_) => plain += 1,
            }
        }
        self.reach_if("TOP-06 no rule", of.rules.is_empty());
        self.reach_if("TOP-02", plain > 1);
        self.reach_if("TOP-03", changed > 0);
        self.reach_if("TOP-04", plain > 0 && changed > 1);
        self.reach_if("TOP-05", changed > 1);
        if of.dead_letters_errors {
            self.reach_if("DLQ-23 filter", failed.first() == Some(&"FilterException"));
            self.reach_if("DLQ-23 action", failed.first() == Some(&"RuleActionException"));
            self.reach_if("DLQ-25", failed.len() > 1);
        } else {
            self.reach_if("DLQ-24", !failed.is_empty());
        }
        failed.len()
    }
}
