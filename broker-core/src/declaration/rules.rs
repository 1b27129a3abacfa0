//! What makes the rules of a subscription those that it declares (DEC-03). They are met a page at a time, and nothing is
//! kept of them but what differs.

use std::collections::BTreeMap;

use super::breather::Breather;
use super::plan::Change;
use super::told::{self, change};
use super::{OtherRules, TOLD_BYTES_MAX};
use crate::error::Rejection;
use crate::rule::{DEFAULT_RULE, RuleDescription};

/// What a rule that changes or goes takes beside its name and text, in the plan and again in what is answered. As many
/// as may be declared at once can go at once.
const TOLD_RULE_BYTES: usize = 320;

/// What an update of a subscription asks for its rules.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RuleWork {
    Create(RuleDescription),
    Update(RuleDescription),
    Delete(Box<str>),
}

/// What an update of a subscription does to its rules, and how that is told.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct RuleChanges {
    pub(super) work: Vec<RuleWork>,
    pub(super) changes: Vec<Change>,
}

/// How much a plan may tell yet of rules that are there: those that change or go, which nobody has said in the declaration.
#[derive(Debug)]
pub(crate) struct Telling {
    left_bytes: usize,
}

/// What is known of a rule that is declared.
enum Known {
    Missing,
    Same,
    /// It is there, and what it says is another.
    Other(Box<str>),
}

/// The rules of a subscription that declares some, as they are met.
pub(crate) struct RuleDifference<'a> {
    declared: &'a [RuleDescription],
    others: OtherRules,
    /// Where each of those declared stands, by its key.
    places: BTreeMap<Box<str>, usize>,
    known: Vec<Known>,
    /// Those that go, by their keys: name, and what each says.
    gone: BTreeMap<Box<str>, (Box<str>, Box<str>)>,
}

impl Default for Telling {
    fn default() -> Self {
        Self { left_bytes: TOLD_BYTES_MAX }
    }
}

impl Telling {
    fn take(&mut self, name: &str, told: &str) -> Result<(), Rejection> {
        let bytes = told.len().saturating_add(name.len() + TOLD_RULE_BYTES);
        let Some(left_bytes) = self.left_bytes.checked_sub(bytes) else {
            return Err(Rejection::quota_exceeded(format!(
                "rules that would change or be removed have more than {TOLD_BYTES_MAX} bytes, the \
                 limit of a plan ({TOLD_RULE_BYTES} bytes per rule in addition to its name and \
                 text); declare fewer subscriptions at once, or delete rules first"
            )));
        };
        self.left_bytes = left_bytes;
        Ok(())
    }
}

impl<'a> RuleDifference<'a> {
    /// Of a subscription that shall have these, and of which no rule was met yet.
    pub(crate) async fn new(
        declared: &'a [RuleDescription],
        others: OtherRules,
        breather: &mut Breather,
    ) -> Self {
        let (mut places, mut known) = (BTreeMap::new(), Vec::new());
        for (place, rule) in declared.iter().enumerate() {
            places.insert(rule.key(), place);
            known.push(Known::Missing);
            breather.step().await;
        }
        Self { declared, others, places, known, gone: BTreeMap::new() }
    }

    /// Takes note of a rule that is there. One that is met again, because others came or went meanwhile, counts once.
    ///
    /// # Errors
    /// `QuotaExceeded` if a plan would have to tell too much.
    pub(crate) fn meet(
        &mut self,
        rule: &RuleDescription,
        telling: &mut Telling,
    ) -> Result<(), Rejection> {
        let key = rule.key();
        let Some(place) = self.places.get(&key).copied() else {
            let is_kept = self.others == OtherRules::AreKept
                && (self.declared.is_empty() || !rule.name.eq_ignore_ascii_case(DEFAULT_RULE));
            if !is_kept && !self.gone.contains_key(&key) {
                let told = told::rule(rule);
                telling.take(&rule.name, &told)?;
                self.gone.insert(key, (rule.name.clone(), told));
            }
            return Ok(());
        };
        let (Some(wanted), Some(known)) = (self.declared.get(place), self.known.get_mut(place))
        else {
            return Ok(());
        };
        if matches!(known, Known::Missing) {
            let told = told::rule(rule);
            *known = if told == told::rule(wanted) {
                Known::Same
            } else {
                telling.take(&rule.name, &told)?;
                Known::Other(told)
            };
        }
        Ok(())
    }

    /// What makes them exactly those declared, when all were met. New ones come before others go, so that no message is
    /// missed that both select.
    pub(crate) async fn into_changes(self, breather: &mut Breather) -> RuleChanges {
        let mut made = RuleChanges::default();
        for (rule, known) in self.declared.iter().zip(self.known) {
            let (work, before) = match known {
                Known::Same => continue,
                Known::Missing => (RuleWork::Create(rule.clone()), None),
                Known::Other(before) => (RuleWork::Update(rule.clone()), Some(before)),
            };
            made.work.push(work);
            made.changes.push(change(property(&rule.name), before, Some(told::rule(rule))));
            breather.part().await;
        }
        for (name, told) in self.gone.into_values() {
            made.changes.push(change(property(&name), Some(told), None));
            made.work.push(RuleWork::Delete(name));
            breather.step().await;
        }
        made
    }
}

/// How a plan names a rule among the properties of its subscription.
pub(super) fn property(rule: &str) -> String {
    format!("rule {rule}")
}
