//! Samples of a job: its first messages as the deed would store them (CON-14).
//!
//! They are read for each request, with the rights of the reader, so no job keeps contents. A
//! message that is no longer there has no sample.

use bytes::{Bytes, BytesMut};
use peeklock_model::inspect::{HeadFacts, HeadState};

use super::Access;
use super::inspect::logged;
use crate::broker::Entity;
use crate::command::{
    ActResult, Deed, MessageReadError, MessageState, PATCHED_BODY_BYTES_MAX, ReceivedMessage,
};
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::findings::{BODY_START_BYTES, BodyKind, Head, HeadContent};
use crate::ids::{EntityId, SequenceNumber};
use crate::jobs::{JobFacts, JobSample, expected_result};
use crate::message::{Body, Overlay};
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::transfer::body_change::BodyChange;
use crate::transfer::contents::{DEAD_LETTER_FACTS, without_dead_letter_facts};

/// A message after a deed.
struct Changed {
    content: HeadContent,
    /// Bytes by which its body is longer, or shorter if negative.
    growth: i64,
    /// Whether the deed applies to its body.
    is_applicable: bool,
}

impl Access {
    /// Reads the samples of a job, whose messages are in this entity. The right was checked before.
    /// Another entity that got the path has none (CON-13).
    pub(super) async fn job_samples(
        &self,
        job: &JobFacts,
        id: Option<EntityId>,
    ) -> Result<Vec<JobSample>, BrokerError> {
        let sequences = job.preview.iter().flat_map(|preview| &preview.samples);
        let entity = self.entity(&job.path, Action::Inspect).await?;
        let mut samples = Vec::new();
        if Some(entity.id()) != id {
            return Ok(samples);
        }
        let body = job.deed.edit().and_then(|edit| edit.body.as_ref()).map(BodyChange::new);
        for sequence in sequences {
            if let Some(facts) = self.find_head(&entity, *sequence).await? {
                samples.push(self.sample(&entity, facts, job, body.as_ref()).await);
            }
        }
        Ok(samples)
    }

    async fn sample(
        &self,
        entity: &Entity,
        facts: HeadFacts<ReceivedMessage>,
        job: &JobFacts,
        body: Option<&BodyChange>,
    ) -> JobSample {
        let mut refused =
            expected_result(&job.deed, facts.state, facts.is_expired, job.breaks_locks);
        let changed = changed(&job.deed, body, entity, &facts).await;
        let changed = logged(changed, facts.message.facts.sequence);
        let mut facts = facts.with_holder(|_| None).with_message(|message| message.facts);
        if let Some(changed) = &changed {
            let size = i64::from(facts.message.size) + changed.growth;
            facts.message.size = u32::try_from(size.max(0)).unwrap_or(u32::MAX);
            if !changed.is_applicable {
                refused = refused.or(Some(ActResult::NotJson));
            }
        }
        let mut head = Head { facts, content: changed.map(|changed| changed.content) };
        change_facts(&mut head, &job.deed, self.broker.now());
        JobSample { head, refused }
    }
}

/// Reads the properties and the start of the body as they are after a deed.
async fn changed(
    deed: &Deed,
    body: Option<&BodyChange>,
    entity: &Entity,
    facts: &HeadFacts<ReceivedMessage>,
) -> Result<Changed, MessageReadError> {
    let is_resubmit = matches!(deed, Deed::Resubmit { .. });
    let alter = |overlays: &mut Vec<Overlay>| {
        if is_resubmit {
            let kept = without_dead_letter_facts(DEAD_LETTER_FACTS.into_iter(), overlays);
            *overlays = kept.into_iter().collect();
        }
        if let Some(edit) = deed.edit() {
            overlays.push(edit.changes.clone());
            *overlays = Overlay::combine(overlays).into_iter().collect();
        }
        if let Deed::DeadLetter { reason, description } = deed {
            overlays.extend(Overlay::dead_letter(reason.as_deref(), description.as_deref(), &[]));
        }
    };
    let content = facts.message.head_with(facts.header_size, alter).await?;
    let mut changed = Changed { content, growth: 0, is_applicable: true };
    if let Some(body) = body {
        changed.change_body(body, facts).await?;
    }
    let content = &mut changed.content;
    if deed.edit().is_some_and(|edit| edit.new_id) {
        // It is chosen when the message is sent.
        content.message.message_id = None;
    }
    if matches!(deed, Deed::Move { .. }) && entity.sub_queue() == SubQueue::DeadLetter {
        let path = entity.path();
        let source = path.strip_suffix(SubQueue::DeadLetter.suffix()).unwrap_or(path);
        content.dead_letter_source = Some(source.to_owned());
    }
    Ok(changed)
}

impl Changed {
    /// Shows the body after an edit, unless it does not apply to the present one.
    async fn change_body(
        &mut self,
        body: &BodyChange,
        facts: &HeadFacts<ReceivedMessage>,
    ) -> Result<(), MessageReadError> {
        let mut present = BytesMut::new();
        if body.is_patch() {
            let mut reader = facts.message.body(facts.header_size).await?;
            let is_long = reader.length() > u64::from(PATCHED_BODY_BYTES_MAX);
            if is_long || reader.kind() != BodyKind::Data {
                self.is_applicable = false;
                return Ok(());
            }
            while let Some(piece) = reader.next().await? {
                present.extend_from_slice(&piece);
            }
        }
        let Some(new) = body.body_after(&Body::Data(present.freeze())) else {
            self.is_applicable = false;
            return Ok(());
        };
        let (before, after) = (self.content.body_bytes, new.len() as u64);
        self.growth = section_bytes(after) - section_bytes(before);
        let start = new.get(..BODY_START_BYTES).unwrap_or(&new);
        self.content.message.body = Body::Data(Bytes::copy_from_slice(start));
        (self.content.body_kind, self.content.body_bytes) = (BodyKind::Data, after);
        Ok(())
    }
}

/// Bytes by which a data section of this length is longer than an empty section.
fn section_bytes(length: u64) -> i64 {
    let length_bytes = if length > 255 { 3 } else { 0 };
    i64::try_from(length).unwrap_or(i64::MAX - 3) + length_bytes
}

/// Changes the facts of a message as a deed does.
fn change_facts(head: &mut Head, deed: &Deed, now: Timestamp) {
    let Head { facts, content } = head;
    let message = &mut facts.message;
    match deed {
        Deed::Delete | Deed::PutBack(_) | Deed::Export(_) => return,
        Deed::Reschedule(instant) => {
            let at = instant.of(message.enqueued_at, now);
            if !facts.expires_at.is_never() {
                facts.expires_at = at.plus(facts.expires_at.since(message.enqueued_at));
            }
            message.enqueued_at = at;
            if at > now {
                return;
            }
        }
        Deed::DeadLetter { .. } => {
            // A dead letter does not expire.
            (facts.expires_at, message.expires_at) = (Timestamp::NEVER, None);
        }
        Deed::Undefer => {}
        Deed::Resubmit { .. } | Deed::Move { .. } => {
            let own = content.as_ref().and_then(|content| content.message.time_to_live);
            message.enqueued_sequence = SequenceNumber(0);
            (message.enqueued_at, message.time_to_live) = (now, own);
            message.expires_at = own.map(|own| now.plus(own));
            facts.expires_at = message.expires_at.unwrap_or(Timestamp::NEVER);
            (message.delivery_count, facts.hops) = (0, 0);
            (facts.lock, facts.is_expired) = (None, false);
        }
    }
    (message.state, message.delayed_until) = (MessageState::Active, None);
    (facts.state, facts.lock) = (HeadState::Active, None);
}
