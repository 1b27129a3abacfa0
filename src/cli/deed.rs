//! Deeds of jobs on the command line: texts, and flags of deeds that send messages (CON-12, CON-16).
//! `job.rs`, `act.rs` and `dlq/resubmit.rs` use it.

use std::sync::Arc;

use clap::Args;
use peeklock::command::{ActResult, BodyEdit, Deed, Edit, ExportForm, NewInstant};
use peeklock::error::Rejection;
use peeklock::inspect::{BodyChange, check_body};
use peeklock::message::{Body, Message, Overlay};
use peeklock::time::TimeSpan;
use peeklock_json::{EditForm, PropertyMap, Span};

use super::Failure;
use super::arguments::span_of;
use super::message::instant;
use super::property::{Property, property};
use super::send::{read_file, set_properties};

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
    /// Replace the body of each message by this text of up to 16 KiB
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Replace the body of each message by a file of up to 16 KiB, `-` for standard input
    #[arg(long, value_name = "PATH", conflicts_with = "body")]
    body_file: Option<String>,
    /// Change JSON bodies of up to 256 KiB and 128 levels with this merge patch (RFC 7396) of up to
    /// 16 KiB, such as `{"retry":true}`; messages with other bodies stay
    #[arg(long, value_name = "JSON", conflicts_with_all = ["body", "body_file"])]
    merge_patch: Option<String>,
}

impl EditFlags {
    pub const fn is_given(&self) -> bool {
        let has_text = self.body.is_some() || self.merge_patch.is_some();
        let has_body = has_text || self.body_file.is_some();
        let has_properties = !self.set.is_empty() || !self.remove.is_empty();
        has_body || has_properties || self.ttl.is_some() || self.new_id
    }

    /// Shows the changes on a copy, with the body of the edit. A new message id is given when the
    /// message is sent. Returns the result for a message that stays.
    pub fn apply(&self, copy: &mut Message, body: Option<&BodyChange>) -> Option<ActResult> {
        if let Some(body) = body {
            match body.body_after(&copy.body) {
                Some(changed) => copy.body = Body::Data(changed),
                None => return Some(ActResult::NotJson),
            }
        }
        copy.time_to_live = self.ttl.or(copy.time_to_live);
        copy.application_properties.retain(|(key, _)| !self.remove.contains(key));
        set_properties(copy, &self.set);
        if self.new_id {
            copy.message_id = None;
        }
        None
    }

    /// The changes; none if no flag is given.
    pub fn edit(&self) -> Result<Option<Arc<Edit>>, Failure> {
        let refuse = |rejection: Rejection| Failure::usage(rejection.detail().to_owned());
        let form = EditForm {
            set: (!self.set.is_empty()).then(|| PropertyMap(self.set.clone())),
            remove: self.remove.clone(),
            new_message_id: self.new_id,
            time_to_live: self.ttl.map(|ttl| Some(Span(ttl))),
            ..EditForm::default()
        };
        let edit = form.into_edit().map_err(refuse)?;
        let body = match (&self.body, &self.body_file, &self.merge_patch) {
            (Some(text), ..) => BodyEdit::Whole(text.clone().into()),
            (None, Some(file), _) => BodyEdit::Whole(read_file(file)?.into()),
            (None, None, Some(patch)) => BodyEdit::MergePatch(patch.as_str().into()),
            (None, None, None) => return Ok(edit),
        };
        check_body(&body).map_err(refuse)?;
        let (changes, new_id) = match edit {
            Some(edit) => (edit.changes.clone(), edit.new_id),
            None => (Overlay::of_changes([]), false),
        };
        Ok(Some(Arc::new(Edit { changes, new_id, body: Some(body) })))
    }
}

pub fn deed_text(deed: &Deed) -> String {
    let edited = if deed.edit().is_some() { ", edited" } else { "" };
    match deed {
        Deed::Delete => "delete".to_owned(),
        Deed::DeadLetter { reason: Some(reason), .. } => format!("dead-letter, reason {reason}"),
        Deed::DeadLetter { reason: None, .. } => "dead-letter".to_owned(),
        Deed::Undefer => "undefer".to_owned(),
        Deed::PutBack(put_back) => format!("put back, undoing {}", put_back.undone),
        Deed::Export(ExportForm::Ndjson) => "export".to_owned(),
        Deed::Export(ExportForm::Csv) => "export as CSV".to_owned(),
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
        ActResult::Refused => "the destination does not take it, or the store cannot read it",
        ActResult::NotJson => {
            "the patch does not apply: its body is not JSON of at most 256 KiB and 128 levels, is \
             compressed, or has a patched member twice; --body replaces it"
        }
    }
}
