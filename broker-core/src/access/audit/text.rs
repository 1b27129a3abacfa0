//! Texts of entries: short, and without bodies, keys, tokens and states of sessions (CON-75).

use std::borrow::Cow;

use crate::checks::report::MuteChange;
use crate::command::{Act, Deed, ExportForm, NewInstant, OperatorCommand};
use crate::contract::auditor::AUDIT_TEXT_BYTES_MAX;
use crate::declaration::{self, Unnamed};
use crate::description::{
    Description, QueueDescription, SubscriptionDescription, TopicDescription,
};
use crate::ids::SequenceNumber;
use crate::jobs::{JobControl, JobSelection};
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
            let others = match declaration.unnamed {
                Unnamed::Keep => "",
                Unnamed::Delete => "; entities that are not named are deleted",
            };
            format!("{queues} queues and {topics} topics are declared{others}")
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
            let Act { step, sequences, deed, breaks_locks, kept: _ } = &**act;
            let (deed, detail) = deed_text(deed);
            let locks = if *breaks_locks { ", breaking locks" } else { "" };
            let step = step.map(|step| format!(", step {} of job {}", step.number, step.job));
            let (numbers, step) = (numbers(sequences), step.unwrap_or_default());
            format!("{deed} {numbers}{locks}{step}{detail}")
        }
        Management::CreateJob(draft) => {
            let (deed, detail) = deed_text(&draft.deed);
            let locks = if draft.breaks_locks { ", breaking locks" } else { "" };
            let selection = match &draft.selection {
                JobSelection::Numbers(sequences) => numbers(sequences),
                JobSelection::Matching { conditions, .. } => format!("matching {conditions}"),
            };
            format!("{deed}{detail}{locks}: {selection}")
        }
        Management::ControlJob(job, control) => {
            let control = match control {
                JobControl::Start(_) => "start",
                JobControl::Pause => "pause",
                JobControl::Resume => "resume",
                JobControl::Cancel => "cancel",
                JobControl::Undo => "undo",
            };
            format!("{control} job {job}")
        }
        Management::CloseClient(client) => format!("client {}", client.0),
        Management::Mute(MuteChange::Mute { kind, reason }) => {
            format!("{}: {}", kind.name(), without_keys(reason))
        }
        Management::Mute(MuteChange::Unmute { kind }) => kind.name().to_owned(),
        _ => String::new(),
    }
}

/// Name of a deed, and its detail.
fn deed_text(deed: &Deed) -> (&'static str, String) {
    match deed {
        Deed::Delete => ("delete", String::new()),
        Deed::DeadLetter { reason, .. } => {
            let reason = reason.as_ref().map(|reason| format!(", reason {reason:?}"));
            ("dead-letter", reason.unwrap_or_default())
        }
        Deed::Undefer => ("undefer", String::new()),
        Deed::PutBack(put_back) => ("put back", format!(", undoing job {}", put_back.undone)),
        Deed::Export(ExportForm::Ndjson) => ("export", String::new()),
        Deed::Export(ExportForm::Csv) => ("export", ", as CSV".to_owned()),
        Deed::Reschedule(NewInstant::At(at)) => ("reschedule", format!(", to {at}")),
        Deed::Reschedule(NewInstant::Later(by)) => ("reschedule", format!(", {by} later")),
        Deed::Reschedule(NewInstant::Earlier(by)) => ("reschedule", format!(", {by} earlier")),
        Deed::Reschedule(NewInstant::Now) => ("reschedule", ", to now".to_owned()),
        Deed::Resubmit { .. } | Deed::Move { .. } => {
            let word = if matches!(deed, Deed::Move { .. }) { "move" } else { "resubmit" };
            let to = deed.destination().map(|to| format!(", to {to:?}")).unwrap_or_default();
            let edited = if deed.edit().is_some() { ", edited" } else { "" };
            (word, format!("{to}{edited}"))
        }
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
    let text = query.conditions.to_string();
    match query.paths.len() {
        0 | 1 => text,
        _ => format!("in {}: {text}", query.paths.join(", ")),
    }
}

/// Lists numbers as ranges, such as `message 1-20, 33`.
pub(super) fn numbers(sequences: &[SequenceNumber]) -> String {
    /// Bytes of listed numbers. An entry has room for the rest of its text after them.
    const LISTED_BYTES_MAX: usize = AUDIT_TEXT_BYTES_MAX * 3 / 4;
    let mut sorted: Vec<u64> = sequences.iter().map(|sequence| sequence.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = "message ".to_owned();
    let (mut separator, mut rest) = ("", sorted.len());
    for range in sorted.chunk_by(|before, after| before.checked_add(1) == Some(*after)) {
        if text.len() > LISTED_BYTES_MAX {
            text.push_str(&format!(" and {rest} more"));
            break;
        }
        let listed = match range {
            [first, .., last] => format!("{separator}{first}-{last}"),
            [one] => format!("{separator}{one}"),
            [] => String::new(),
        };
        text.push_str(&listed);
        separator = ", ";
        rest -= range.len();
    }
    text
}

/// Cuts a text to [`AUDIT_TEXT_BYTES_MAX`] bytes.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(AUDIT_TEXT_BYTES_MAX)).unwrap_or(text)
}

/// The value of a property without keys (CON-75).
pub(super) fn shown<'a>(property: &str, text: &'a str) -> Cow<'a, str> {
    match property.starts_with("forward_") {
        true => address_without_keys(text),
        false => without_keys(text),
    }
}

/// A destination of forwarding without keys (CON-75). One elsewhere keeps scheme and host only:
/// some services take a key in the path.
pub(crate) fn address_without_keys(text: &str) -> Cow<'_, str> {
    if !text.contains([':', '=']) {
        return without_keys(text);
    }
    let is_of_scheme = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c);
    let split = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = split else { return Cow::Borrowed("(hidden)") };
    // A password may contain any of the characters that end a host, and a path may contain an `@`.
    let (authority, path) = match rest.find(['/', '?', '#', ';']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let host = match path.contains('@') {
        true => "(hidden)",
        false => authority.rsplit('@').next().unwrap_or_default(),
    };
    Cow::Owned(format!("{scheme}://{host}"))
}

/// Replaces the values of keys, signatures and tokens in a text of a client.
pub(super) fn without_keys(text: &str) -> Cow<'_, str> {
    const MARKS: [&str; 5] =
        ["sharedaccesskey", "sharedaccesssignature", "sig=", "bearer ", "accountkey"];
    let lower = text.to_ascii_lowercase();
    let end_of = |mark: &str| lower.find(mark).map(|at| at + mark.len());
    match MARKS.iter().filter_map(|mark| end_of(mark)).min() {
        // The rest may contain further keys.
        Some(end) => Cow::Owned(format!("{}(hidden)", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-75: of an address elsewhere only scheme and host are shown, and no host that may be a part
    /// of a password or path.
    #[test]
    fn addresses_are_shown_without_keys() {
        for (address, expected) in [
            ("https://u:p@a.example/hidden?sig=hidden", "https://a.example"),
            ("https://a.example/hook?to=me@hidden", "https://(hidden)"),
            ("https://u:p/q@a.example/hidden", "https://(hidden)"),
            ("Endpoint=sb://a.example/;SharedAccessKey=hidden", "(hidden)"),
            ("orders", "orders"),
        ] {
            assert_eq!(shown("forward_to", address), expected, "{address}");
        }
        let text = without_keys("{\"sharedAccessKey\":\"hidden\"}");
        assert_eq!(text, "{\"sharedAccessKey(hidden)");
    }

    /// CON-23: an entry names all messages of a request, as ranges.
    #[test]
    fn numbers_are_listed_as_ranges() {
        let text =
            |of: &[u64]| numbers(&of.iter().copied().map(SequenceNumber).collect::<Vec<_>>());
        assert_eq!(text(&[7]), "message 7");
        assert_eq!(
            text(&(1..=20).chain([33, 35, 36]).collect::<Vec<_>>()),
            "message 1-20, 33, 35-36"
        );
        assert_eq!(text(&[3, 1, 2, 2]), "message 1-3");
        let far: Vec<u64> = (0..500).map(|number| number * 1_000_003).collect();
        let listed = text(&far);
        assert!(listed.len() < AUDIT_TEXT_BYTES_MAX && listed.ends_with(" more"), "{listed}");
    }
}
