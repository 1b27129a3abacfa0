//! Deeds of jobs on the command line: texts, and flags of deeds that send messages (CON-12, CON-16).
//! `job.rs`, `act.rs` and `dlq/resubmit.rs` use it.

use std::sync::Arc;

use clap::Args;
use peeklock::command::{ActResult, Deed, Edit, NewInstant};
use peeklock::message::{Body, MergePatch, Message};
use peeklock::time::TimeSpan;
use peeklock_json::{EditForm, PropertyMap, Span};

use super::Failure;
use super::arguments::span_of;
use super::message::instant;
use super::property::{Property, property};
use super::send::set_properties;

/// Changes of messages that are sent to another place.
#[derive(Args)]
pub struct EditFlags {
    /// Set an application property of each message, such as `retried:bool=true`; may be repeated
    #[arg(long, value_name = "KEY[:TYPE]=VALUE", value_parser = property)]
    set: Vec<Property>,
    /// Remove an application property of each message; may be repeated
    #[arg(long, value_name = "KEY")]
    remove: Vec<String>,
    /// Time to live of each message, such as 1h [default: as its sender set it]
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    ttl: Option<TimeSpan>,
    /// Give each message a new message id
    #[arg(long)]
    new_id: bool,
    /// Replace the body of each message by this text, up to 16 KiB
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Change the JSON body of each message with this merge patch (RFC 7396), such as `{"retry":true}`
    #[arg(long, value_name = "JSON", conflicts_with = "body")]
    merge_patch: Option<String>,
}

impl EditFlags {
    pub const fn is_given(&self) -> bool {
        let has_body = self.body.is_some() || self.merge_patch.is_some();
        let has_properties = !self.set.is_empty() || !self.remove.is_empty();
        has_body || has_properties || self.ttl.is_some() || self.new_id
    }

    /// Shows the changes on a copy. A new message id is given when the message is sent. A body to
    /// which the merge patch does not apply stays.
    pub fn apply(&self, copy: &mut Message) {
        copy.time_to_live = self.ttl.or(copy.time_to_live);
        copy.application_properties.retain(|(key, _)| !self.remove.contains(key));
        set_properties(copy, &self.set);
        if self.new_id {
            copy.message_id = None;
        }
        let patch = self.merge_patch.as_deref().and_then(MergePatch::parse);
        let patched = || patch?.apply(std::str::from_utf8(copy.body.as_bytes()).ok()?);
        if let Some(body) = self.body.clone().or_else(patched) {
            copy.body = Body::Data(body.into());
        }
    }

    /// The changes; none if no flag is given.
    pub fn edit(&self) -> Result<Option<Arc<Edit>>, Failure> {
        let form = EditForm {
            set: (!self.set.is_empty()).then(|| PropertyMap(self.set.clone())),
            remove: self.remove.clone(),
            new_message_id: self.new_id,
            time_to_live: self.ttl.map(|ttl| Some(Span(ttl))),
            body: self.body.clone(),
            merge_patch: self.merge_patch.clone(),
            ..EditForm::default()
        };
        form.into_edit().map_err(|rejection| Failure::usage(rejection.detail().to_owned()))
    }
}

pub fn deed_text(deed: &Deed) -> String {
    let edited = if deed.edit().is_some() { ", edited" } else { "" };
    match deed {
        Deed::Delete => "delete".to_owned(),
        Deed::DeadLetter { reason: Some(reason), .. } => format!("dead-letter, reason {reason}"),
        Deed::DeadLetter { reason: None, .. } => "dead-letter".to_owned(),
        Deed::Undefer => "undefer".to_owned(),
        Deed::Reschedule(NewInstant::At(at)) => format!("reschedule to {}", instant(*at)),
        Deed::Reschedule(NewInstant::Later(by)) => format!("reschedule {by} later"),
        Deed::Reschedule(NewInstant::Earlier(by)) => format!("reschedule {by} earlier"),
        Deed::Reschedule(NewInstant::Now) => "reschedule to now".to_owned(),
        Deed::Resubmit { to: None, .. } => format!("resubmit{edited}"),
        Deed::Resubmit { to: Some(to), .. } => format!("resubmit to {to}{edited}"),
        Deed::Move { to, .. } => format!("move to {to}{edited}"),
    }
}

/// Why a message stays.
pub const fn problem(result: ActResult) -> &'static str {
    match result {
        ActResult::Done => "done",
        ActResult::NotFound => "no such message here",
        ActResult::Locked => {
            "a receiver holds it; --break-locks breaks the lock, except in a session"
        }
        ActResult::WrongState => "its state does not permit this",
        ActResult::Busy => "it is changing or leaving; try again",
        ActResult::Expired => "it is expired, and would be removed at once",
        ActResult::TooLarge => "its header has no room for reason and description",
        ActResult::Leaving => "it is on its way to its destination",
        ActResult::NoDestination => "its destination does not exist, or it names none",
        ActResult::DestinationDisabled => {
            "the status of the destination forbids sending; set it to Active"
        }
        ActResult::DestinationFull => "the destination has no room",
        ActResult::DestinationTooSmall => "the destination takes no message of this size",
        ActResult::NoSession => "the destination requires a session, and it has none",
        ActResult::Duplicate => {
            "the destination has or had its message id; --new-id sends it with a new one"
        }
        ActResult::Refused => "the destination does not take it",
        ActResult::NotJson => "its body is no JSON of at most 256 KiB, so the patch does not apply",
    }
}
