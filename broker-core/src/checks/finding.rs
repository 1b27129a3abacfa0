//! Findings of a check, and their view for each reader (CON-39, SEC-08).
//!
//! A check is made once for all readers, so a finding keeps values instead of a text. A reader gets
//! no name, status or count of entities that it may not read.

use std::sync::Arc;

use super::report::{CheckFinding, CheckKind};
use crate::description::EntityStatus;
use crate::path::PathKey;
use crate::survey::ReadableKeys;
use crate::time::Timestamp;

/// Identity of a finding from check to check: kind, path and property.
pub(super) type FindingKey = (CheckKind, Arc<str>, Option<&'static str>);

/// Something that a check has found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) kind: CheckKind,
    /// Path of the entity; empty for the broker.
    pub(super) path: Arc<str>,
    pub(super) since: Timestamp,
    pub(super) values: Values,
}

/// Values that led to a finding.
#[derive(Debug)]
pub(super) enum Values {
    /// Values of the entity itself.
    Own(Box<str>),
    /// A destination that takes no messages.
    Destination { property: &'static str, name: Arc<str>, fault: Fault },
    /// A circle of `count` nodes. `others` has the first ones after the entity.
    Circle { count: usize, others: Vec<Arc<str>> },
    /// A chain of `count` nodes.
    Chain { hops: u32, hops_max: u32, count: usize, others: Vec<Arc<str>> },
}

/// Why a destination takes no messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Absent,
    NoForwarder,
    Disabled(EntityStatus),
}

impl Finding {
    /// Its identity.
    pub(super) fn key(&self) -> FindingKey {
        let property = match &self.values {
            Values::Destination { property, .. } => Some(*property),
            _ => None,
        };
        (self.kind, Arc::clone(&self.path), property)
    }

    /// Kind for a reader. A destination that it may not read looks like one that does not exist.
    pub(super) fn kind_for(&self, readable: &ReadableKeys) -> CheckKind {
        match &self.values {
            Values::Destination { name, fault: Fault::Disabled(_), .. }
                if !may_read(readable, name) =>
            {
                CheckKind::DestinationMissing
            }
            _ => self.kind,
        }
    }

    /// Returns the finding for a reader, which may read the entity itself.
    pub(super) fn shown_to(&self, readable: &ReadableKeys) -> CheckFinding {
        let seen = |others: &[Arc<str>]| -> Vec<Arc<str>> {
            others.iter().filter(|name| may_read(readable, name)).map(Arc::clone).collect()
        };
        // Names beyond the first ones are unknown here.
        let is_whole = |count: usize, others: &[Arc<str>]| {
            readable.is_all()
                || (others.len() + 1 == count && others.iter().all(|it| may_read(readable, it)))
        };
        let (detail, others) = match &self.values {
            Values::Own(detail) => (detail.clone(), Vec::new()),
            Values::Destination { property, name, fault } => {
                let why = match fault {
                    Fault::Disabled(status) if may_read(readable, name) => {
                        format!("whose status is {}", status.name())
                    }
                    Fault::NoForwarder => "which no forwarder serves".to_owned(),
                    _ if readable.is_all() => "which does not exist".to_owned(),
                    _ => "which does not exist, or you may not read it".to_owned(),
                };
                // The entity names it itself.
                (format!("{property} names `{name}`, {why}").into(), vec![Arc::clone(name)])
            }
            Values::Circle { count, others } => {
                let detail = match is_whole(*count, others) {
                    true => format!("{count} entities forward in a circle"),
                    false => "the entity forwards in a circle".to_owned(),
                };
                (detail.into(), seen(others))
            }
            Values::Chain { hops, hops_max, count, others } => {
                let detail = match is_whole(*count, others) {
                    true => format!("a chain of {hops} hops; a message may make {hops_max}"),
                    false => format!("a chain of more hops than a message may make: {hops_max}"),
                };
                (detail.into(), seen(others))
            }
        };
        let (path, since) = (Arc::clone(&self.path), self.since);
        CheckFinding { kind: self.kind_for(readable), path, since, detail, others, muted: None }
    }
}

fn may_read(readable: &ReadableKeys, name: &str) -> bool {
    readable.is_all() || readable.contains(&PathKey::fold(name))
}

impl CheckFinding {
    /// Adds the values of another finding of the same kind and entity.
    pub(super) fn join(&mut self, other: Self) {
        self.since = self.since.min(other.since);
        self.detail = format!("{}; {}", self.detail, other.detail).into();
        for name in other.others {
            if !self.others.contains(&name) {
                self.others.push(name);
            }
        }
    }
}

/// The most urgent findings of a check, within a bound.
#[derive(Debug)]
pub(super) struct Findings {
    by_weight: [Vec<Finding>; 3],
    count_max: usize,
    /// Number of findings that had no room.
    left_out: u64,
}

impl Findings {
    pub(super) const fn new(count_max: usize) -> Self {
        Self { by_weight: [const { Vec::new() }; 3], count_max, left_out: 0 }
    }

    /// Adds a finding. Without room, it or the least urgent one is left out.
    pub(super) fn add(&mut self, finding: Finding) {
        let weight = finding.kind.weight() as usize;
        let count: usize = self.by_weight.iter().map(Vec::len).sum();
        if count >= self.count_max {
            self.left_out += 1;
            let mut less_urgent = self.by_weight.iter_mut().skip(weight + 1).rev();
            if less_urgent.find_map(Vec::pop).is_none() {
                return;
            }
        }
        if let Some(same) = self.by_weight.get_mut(weight) {
            same.push(finding);
        }
    }

    /// Returns the findings, the most urgent first, and how many were left out.
    pub(super) fn into_sorted(self) -> (Vec<Finding>, u64) {
        let mut findings: Vec<Finding> = self.by_weight.into_iter().flatten().collect();
        let key = |it: &Finding| (it.kind.weight(), PathKey::fold(&it.path), it.kind);
        findings.sort_by_cached_key(key);
        (findings, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn finding(kind: CheckKind, path: &str, values: Values) -> Finding {
        Finding { kind, path: path.into(), since: Timestamp::from_unix_ms(1), values }
    }

    fn only(paths: &[&str]) -> ReadableKeys {
        ReadableKeys(Some(paths.iter().map(|path| PathKey::fold(path)).collect::<HashSet<_>>()))
    }

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    /// CON-39, SEC-08: a destination that a reader may not read looks like an absent one.
    #[test]
    fn an_unreadable_destination_is_shown_as_missing() {
        let to = |property, name: &str, fault| {
            let kind = match fault {
                Fault::Disabled(_) => CheckKind::DestinationDisabled,
                _ => CheckKind::DestinationMissing,
            };
            finding(kind, "q", Values::Destination { property, name: name.into(), fault })
        };
        let disabled = to("ForwardTo", "secret", Fault::Disabled(EntityStatus::Disabled));
        let absent = to("ForwardTo", "secret", Fault::Absent);
        let all = disabled.shown_to(&ReadableKeys::ALL);
        assert_eq!(all.kind, CheckKind::DestinationDisabled);
        assert_eq!(&*all.detail, "ForwardTo names `secret`, whose status is Disabled");
        assert_eq!(disabled.shown_to(&only(&["q"])), absent.shown_to(&only(&["q"])));
        let both = disabled.shown_to(&only(&["q", "SECRET"]));
        assert_eq!((both.kind, both.detail), (all.kind, all.detail));
        // Two properties of an entity are two findings, which a reader sees as one.
        let dead = to("ForwardDeadLetteredMessagesTo", "none", Fault::Absent);
        assert_ne!(absent.key(), dead.key());
        let mut shown = disabled.shown_to(&only(&["q"]));
        shown.join(dead.shown_to(&only(&["q"])));
        let why = "which does not exist, or you may not read it";
        let expected = format!(
            "ForwardTo names `secret`, {why}; ForwardDeadLetteredMessagesTo names `none`, {why}"
        );
        assert_eq!(*shown.detail, *expected);
        assert_eq!(shown.others, names(&["secret", "none"]));
    }

    /// CON-39, SEC-08: names and counts of chains and circles are shown to readers of all entities.
    #[test]
    fn chains_and_circles_show_no_other_entities() {
        let others = || names(&["b", "c"]);
        let circle = Values::Circle { count: 3, others: others() };
        let circle = finding(CheckKind::ForwardCircle, "a", circle);
        let chain = Values::Chain { hops: 6, hops_max: 4, count: 9, others: others() };
        let chain = finding(CheckKind::ChainTooLong, "a", chain);
        let shown = |it: &Finding, readable: &ReadableKeys| {
            let CheckFinding { detail, others, .. } = it.shown_to(readable);
            (detail.to_string(), others.join(" "))
        };
        let pair = |detail: &str, others: &str| (detail.to_owned(), others.to_owned());
        let (all, some) = (only(&["a", "b", "c"]), only(&["a", "c"]));
        assert_eq!(shown(&circle, &all), pair("3 entities forward in a circle", "b c"));
        assert_eq!(shown(&circle, &some), pair("the entity forwards in a circle", "c"));
        let whole = pair("a chain of 6 hops; a message may make 4", "b c");
        assert_eq!(shown(&chain, &ReadableKeys::ALL), whole);
        let part = pair("a chain of more hops than a message may make: 4", "b c");
        assert_eq!(shown(&chain, &all), part, "it has further names");
    }

    /// CON-39: without room, the least urgent findings are left out and counted, in any order.
    #[test]
    fn the_most_urgent_findings_are_kept() {
        let kinds =
            [CheckKind::DefaultRuleAmongOthers, CheckKind::NearlyFull, CheckKind::ChainTooLong];
        let add = |findings: &mut Findings, kind, path: &str| {
            findings.add(finding(kind, path, Values::Own("".into())));
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut findings = Findings::new(4);
            for kind in order.map(|place| kinds[place]) {
                add(&mut findings, kind, "a");
                add(&mut findings, kind, "b");
            }
            let (kept, left_out) = findings.into_sorted();
            assert_eq!(left_out, 2);
            let kept: Vec<_> = kept.iter().map(|it| it.kind).collect();
            assert_eq!(kept, [kinds[2], kinds[2], kinds[1], kinds[1]]);
        }
    }
}
