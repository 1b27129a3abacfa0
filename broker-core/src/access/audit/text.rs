//! Texts of entries: short, and without bodies, keys, tokens and states of sessions (CON-75).

use std::borrow::Cow;

use crate::command::{Act, Deed, OperatorCommand};
use crate::contract::auditor::AUDIT_TEXT_BYTES_MAX;
use crate::declaration;
use crate::description::{
    Description, QueueDescription, SubscriptionDescription, TopicDescription,
};
use crate::ids::SequenceNumber;
use crate::management::Management;
use crate::policies::{PolicyUpdate, WhichKey};
use crate::rule::RuleDescription;
use crate::search::SearchQuery;

/// Describes a request briefly, without bodies, keys and states of sessions.
pub(super) fn request_text(request: &Management) -> String {
    match request {
        Management::CreateQueue(properties) => named::<QueueDescription>(properties),
        Management::UpdateQueue(properties, _) => named::<QueueDescription>(properties),
        Management::CreateTopic(properties) => named::<TopicDescription>(properties),
        Management::UpdateTopic(properties, _) => named::<TopicDescription>(properties),
        Management::CreateSubscription { properties, rules, .. } => {
            let mut texts = vec![named::<SubscriptionDescription>(properties)];
            texts.extend(rules.iter().map(rule));
            texts.retain(|text| !text.is_empty());
            texts.join("; ")
        }
        Management::UpdateSubscription(properties, _) => {
            named::<SubscriptionDescription>(properties)
        }
        Management::Delete(kind) => kind.to_string(),
        Management::CreateRule(it) | Management::CreateOwnRule(it) | Management::UpdateRule(it) => {
            rule(it)
        }
        Management::DeleteRule(name) | Management::DeleteOwnRule(name) => format!("rule {name}"),
        Management::DeleteDeferred(sequence) => numbers(&[*sequence]),
        Management::DeleteUnlocked { enqueued_before, .. } => {
            enqueued_before.map(|at| format!("enqueued before {at}")).unwrap_or_default()
        }
        Management::CreatePolicy(name, update) | Management::UpdatePolicy(name, update) => {
            policy(name, update)
        }
        Management::ReplacePolicies(policies) => {
            let texts = policies.iter().map(|(name, update)| policy(name, update));
            texts.collect::<Vec<_>>().join("; ")
        }
        Management::DeletePolicy(name) | Management::PolicyKeys(name) => format!("policy {name}"),
        Management::RegenerateKey(name, which, _) => {
            let which = match which {
                WhichKey::Primary => "primary",
                WhichKey::Secondary => "secondary",
            };
            format!("{which} key of policy {name}")
        }
        Management::CarryOut { declaration, .. } => {
            let (queues, topics) = (declaration.queues.len(), declaration.topics.len());
            format!("{queues} queues and {topics} topics are declared")
        }
        Management::Operate(OperatorCommand::BreakLocks { sequences, .. }) => numbers(sequences),
        Management::Operate(OperatorCommand::BreakSession { session, .. }) => {
            format!("session {session:?}")
        }
        Management::Operate(OperatorCommand::SetSessionState { session, state }) => match state {
            Some(state) => format!("session {session:?}, {} bytes", state.len()),
            None => format!("session {session:?}, no state"),
        },
        Management::Operate(OperatorCommand::Act(act)) => {
            let Act { step, sequences, deed, breaks_locks } = &**act;
            let deed = match deed {
                Deed::Delete => "delete",
                Deed::DeadLetter { .. } => "dead-letter",
                Deed::Undefer => "undefer",
                Deed::Reschedule(_) => "reschedule",
            };
            let locks = if *breaks_locks { ", breaking locks" } else { "" };
            let step = step.map(|step| format!(", step {} of job {}", step.number, step.job));
            format!("{deed} {}{locks}{}", numbers(sequences), step.unwrap_or_default())
        }
        Management::CloseClient(client) => format!("client {}", client.0),
        _ => String::new(),
    }
}

/// Properties that a request names.
fn named<D: Description>(update: &D::Update) -> String {
    let texts = declaration::named::<D>(update);
    let shown = texts.map(|(name, text)| match text {
        Some(text) => format!("{name} = {}", shown(name, &text)),
        None => format!("{name} = none"),
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn rule(rule: &RuleDescription) -> String {
    format!("rule {}: {}", rule.name, declaration::rule_text(rule))
}

fn policy(name: &str, update: &PolicyUpdate) -> String {
    let rights = update.rights.map(|rights| format!(", rights {rights}"));
    let is_keyed = update.primary_key.is_some() || update.secondary_key.is_some();
    let keys = if is_keyed { ", with a given key" } else { "" };
    format!("policy {name}{}{keys}", rights.unwrap_or_default())
}

pub(super) fn search_text(query: &SearchQuery) -> String {
    let mut text = query.conditions.to_string();
    if query.paths.len() > 1 {
        text = format!("{text} in {}", query.paths.join(", "));
    }
    text
}

pub(super) fn numbers(sequences: &[SequenceNumber]) -> String {
    /// Numbers that are listed.
    const LISTED_MAX: usize = 20;
    let listed = sequences.iter().take(LISTED_MAX).map(SequenceNumber::to_string);
    let listed = listed.collect::<Vec<_>>().join(", ");
    match sequences.len().saturating_sub(LISTED_MAX) {
        0 => format!("message {listed}"),
        rest => format!("message {listed} and {rest} more"),
    }
}

/// Cuts a text to [`AUDIT_TEXT_BYTES_MAX`] bytes.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(AUDIT_TEXT_BYTES_MAX)).unwrap_or(text)
}

/// The value of a property without keys (CON-75). A destination elsewhere keeps scheme and host
/// only: some services take a key in the path.
pub(super) fn shown<'a>(property: &str, text: &'a str) -> Cow<'a, str> {
    let is_entity = !text.contains([':', '=']);
    if !property.starts_with("forward_") || is_entity {
        return without_keys(text);
    }
    let is_of_scheme = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c);
    let split = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = split else { return Cow::Borrowed("(hidden)") };
    // A password may contain any of the characters that end a host.
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let host = rest.split(['/', '?', '#', ';']).next().unwrap_or_default();
    Cow::Owned(format!("{scheme}://{host}"))
}

/// Replaces the values of keys, signatures and tokens in a text of a client.
pub(super) fn without_keys(text: &str) -> Cow<'_, str> {
    const MARKS: [&str; 5] =
        ["sharedaccesskey=", "sharedaccesssignature", "sig=", "bearer ", "accountkey="];
    let lower = text.to_ascii_lowercase();
    let end_of = |mark: &str| lower.find(mark).map(|at| at + mark.len());
    match MARKS.iter().filter_map(|mark| end_of(mark)).min() {
        // What follows may contain further keys.
        Some(end) => Cow::Owned(format!("{}(hidden)", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}
