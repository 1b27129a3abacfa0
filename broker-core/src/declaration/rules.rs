//! Computes the changes that give a subscription its declared rules (DEC-03). Existing rules are
//! read page by page, and only differences are kept.

use std::collections::BTreeMap;

use super::plan::Change;
use super::property_text::{self, change};
use super::yielder::Yielder;
use super::{OtherRules, PLAN_RULE_BYTES_MAX};
use crate::error::Rejection;
use crate::rule::{DEFAULT_RULE, RuleDescription};

/// Bytes of a changed or removed rule in the plan and in its answer, without name and text. With
/// this value, as many rules as can be declared at once can be removed at once.
const RULE_OVERHEAD_BYTES: usize = 320;

/// Work on one rule in the update of a subscription.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RuleWork {
    Create(RuleDescription),
    Update(RuleDescription),
    Delete(Box<str>),
}

/// Work on all rules in the update of a subscription, with its description.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct RuleChanges {
    pub(super) work: Vec<RuleWork>,
    pub(super) changes: Vec<Change>,
}

/// Remaining bytes that a plan may use for existing rules that change or are removed, since the
/// declaration does not bound them.
#[derive(Debug)]
pub(crate) struct RuleTextBudget {
    left_bytes: usize,
}

/// State of a declared rule.
enum DeclaredRuleState {
    Missing,
    Same,
    /// The rule exists with this different text.
    Other(Box<str>),
}

/// Differences between the declared and existing rules of a subscription, collected while existing
/// rules are read.
pub(crate) struct RuleDifference<'a> {
    declared: &'a [RuleDescription],
    others: OtherRules,
    /// Place of each declared rule, by its key.
    places: BTreeMap<Box<str>, usize>,
    known: Vec<DeclaredRuleState>,
    /// Rules to remove, by key: name and text.
    gone: BTreeMap<Box<str>, (Box<str>, Box<str>)>,
}

impl Default for RuleTextBudget {
    fn default() -> Self {
        Self { left_bytes: PLAN_RULE_BYTES_MAX }
    }
}

impl RuleTextBudget {
    fn take(&mut self, name: &str, text: &str) -> Result<(), Rejection> {
        let bytes = text.len().saturating_add(name.len() + RULE_OVERHEAD_BYTES);
        let Some(left_bytes) = self.left_bytes.checked_sub(bytes) else {
            return Err(Rejection::quota_exceeded(format!(
                "rules that would change or be removed have more than {PLAN_RULE_BYTES_MAX} bytes, the \
                 limit of a plan ({RULE_OVERHEAD_BYTES} bytes per rule in addition to its name and \
                 text); declare fewer subscriptions at once, or delete rules first"
            )));
        };
        self.left_bytes = left_bytes;
        Ok(())
    }
}

impl<'a> RuleDifference<'a> {
    /// Starts with the declared rules; no existing rule is read yet.
    pub(crate) async fn new(
        declared: &'a [RuleDescription],
        others: OtherRules,
        yielder: &mut Yielder,
    ) -> Self {
        let (mut places, mut known) = (BTreeMap::new(), Vec::new());
        for (place, rule) in declared.iter().enumerate() {
            places.insert(rule.key(), place);
            known.push(DeclaredRuleState::Missing);
            yielder.step().await;
        }
        Self { declared, others, places, known, gone: BTreeMap::new() }
    }

    /// Compares an existing rule. A rule read twice, because others were added or removed
    /// meanwhile, counts once.
    ///
    /// # Errors
    /// `QuotaExceeded` if the plan would exceed its bytes.
    pub(crate) fn compare(
        &mut self,
        rule: &RuleDescription,
        telling: &mut RuleTextBudget,
    ) -> Result<(), Rejection> {
        let key = rule.key();
        let Some(place) = self.places.get(&key).copied() else {
            let is_kept = self.others == OtherRules::Keep
                && (self.declared.is_empty() || !rule.name.eq_ignore_ascii_case(DEFAULT_RULE));
            if !is_kept && !self.gone.contains_key(&key) {
                let text = property_text::rule_text(rule);
                telling.take(&rule.name, &text)?;
                self.gone.insert(key, (rule.name.clone(), text));
            }
            return Ok(());
        };
        let (Some(wanted), Some(known)) = (self.declared.get(place), self.known.get_mut(place))
        else {
            return Ok(());
        };
        if matches!(known, DeclaredRuleState::Missing) {
            let text = property_text::rule_text(rule);
            *known = if text == property_text::rule_text(wanted) {
                DeclaredRuleState::Same
            } else {
                telling.take(&rule.name, &text)?;
                DeclaredRuleState::Other(text)
            };
        }
        Ok(())
    }

    /// Returns the changes after all existing rules were read. New rules come before others are
    /// removed, so that a message selected by both is not missed.
    pub(crate) async fn into_changes(self, yielder: &mut Yielder) -> RuleChanges {
        let mut made = RuleChanges::default();
        for (rule, known) in self.declared.iter().zip(self.known) {
            let (work, before) = match known {
                DeclaredRuleState::Same => continue,
                DeclaredRuleState::Missing => (RuleWork::Create(rule.clone()), None),
                DeclaredRuleState::Other(before) => (RuleWork::Update(rule.clone()), Some(before)),
            };
            made.work.push(work);
            made.changes.push(change(
                property(&rule.name),
                before,
                Some(property_text::rule_text(rule)),
            ));
            yielder.part().await;
        }
        for (name, text) in self.gone.into_values() {
            made.changes.push(change(property(&name), Some(text), None));
            made.work.push(RuleWork::Delete(name));
            yielder.step().await;
        }
        made
    }
}

/// Returns the name of a rule among the properties in a plan.
pub(super) fn property(rule: &str) -> String {
    format!("rule {rule}")
}
