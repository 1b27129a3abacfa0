//! Rules for tests: a few kinds, their form for clients, and a simple model of their effect on a
//! message (TOP-02 to TOP-05).

use std::collections::BTreeMap;

use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::Timestamp;

/// Properties of a message that rules read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Matter {
    pub number: i32,
    pub subject: u64,
    pub session: Option<u64>,
}

/// Differences between a copy and the published message.
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    pub rule: Option<String>,
    pub mark: Option<u64>,
    pub session: Option<u64>,
    pub reason: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Select {
    All,
    None,
    Subject(u64),
    Greater(i32),
    /// Fails for 0.
    Divides,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Act {
    Mark(u64),
    /// Fails for 0.
    Divide,
    RemoveSession,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rule {
    pub select: Select,
    pub act: Option<Act>,
}

/// A rule in the form of clients.
pub fn rule(name: &str, rule: Rule) -> RuleDescription {
    let filter = match rule.select {
        Select::All => Filter::True,
        Select::None => Filter::False,
        Select::Subject(subject) => Filter::Correlation(CorrelationFilter {
            subject: Some(subject.to_string().into()),
            ..CorrelationFilter::default()
        }),
        Select::Greater(bound) => Filter::sql(format!("number > {bound}")),
        Select::Divides => Filter::sql("10 / number > 3"),
    };
    let described = RuleDescription::new(name, filter, Timestamp::NONE);
    match rule.act {
        None => described,
        Some(Act::Mark(mark)) => described.with_action(format!("SET mark = {mark}").as_str()),
        Some(Act::Divide) => described.with_action("SET half = 10 / number"),
        Some(Act::RemoveSession) => described.with_action("REMOVE sys.SessionId"),
    }
}

/// Whether a subscription has selected the message of these copies. A rule that fails does not
/// select (TOP-25, TOP-28).
pub fn select(made: &[Made]) -> bool {
    let is_failure = |reason| matches!(reason, Some("FilterException" | "RuleActionException"));
    made.iter().any(|one| !is_failure(one.reason))
}

/// The copies that a subscription with these rules gets, in order: TOP-02 to TOP-05, DLQ-21, DLQ-23
/// to DLQ-25.
pub fn copies(
    rules: &BTreeMap<String, Rule>,
    dead_letters_errors: bool,
    requires_session: bool,
    matter: Matter,
) -> Vec<Made> {
    let unchanged = Made { rule: None, mark: None, session: matter.session, reason: None };
    let mut plain = Vec::new();
    let mut changed = Vec::new();
    let mut failed = None;
    for (name, rule) in rules {
        let selected = match rule.select {
            Select::All => Ok(true),
            Select::None => Ok(false),
            Select::Subject(subject) => Ok(matter.subject == subject),
            Select::Greater(bound) => Ok(matter.number > bound),
            Select::Divides if matter.number == 0 => Err("FilterException"),
            Select::Divides => Ok(10 / matter.number > 3),
        };
        match (selected, rule.act) {
            (Ok(false), _) => {}
            (Ok(true), None) => plain = vec![unchanged.clone()],
            (Ok(true), Some(Act::Divide)) if matter.number == 0 => {
                failed.get_or_insert("RuleActionException");
            }
            (Ok(true), Some(act)) => {
                let (mark, session) = match act {
                    Act::Mark(mark) => (Some(mark), matter.session),
                    Act::Divide => (None, matter.session),
                    Act::RemoveSession => (None, None),
                };
                let rule = Some(name.clone());
                changed.push(Made { rule, mark, session, ..unchanged.clone() });
            }
            (Err(reason), _) => {
                failed.get_or_insert(reason);
            }
        }
    }
    let mut copies: Vec<Made> = plain.into_iter().chain(changed).collect();
    for copy in &mut copies {
        if requires_session && copy.session.is_none() {
            copy.reason = Some("Session ID is null.");
        }
    }
    if let Some(reason) = failed.filter(|_| dead_letters_errors) {
        copies.push(Made { reason: Some(reason), ..unchanged });
    }
    copies
}
