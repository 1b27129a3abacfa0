//! Samples of a job: its first messages as the deed would store them (CON-14).
//!
//! They are read for each request, with the rights of the reader, so no job keeps contents. A message
//! that is no longer there has no sample.

use bytes::{Bytes, BytesMut};
use peeklock_model::inspect::{
    Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, Inquiry,
};

use super::Access;
use super::inspect::unexpected;
use crate::broker::Entity;
use crate::command::{
    ActResult, BodyEdit, Deed, MessageReadError, MessageState, PATCHED_BODY_BYTES_MAX,
    ReceivedMessage,
};
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::findings::{BODY_START_BYTES, BodyKind, Head, HeadContent};
use crate::ids::SequenceNumber;
use crate::jobs::{JobFacts, JobSample, expected_result};
use crate::message::{Body, Overlay};
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::transfer::contents::{DEAD_LETTER_FACTS, changed_body, without_dead_letter_facts};

impl Access {
    /// Reads the samples of a job. The right was checked before.
    pub(super) async fn job_samples(&self, job: &JobFacts) -> Result<Vec<JobSample>, BrokerError> {
        let sequences = job.preview.iter().flat_map(|preview| &preview.samples);
        let entity = self.entity(&job.path, Action::Inspect).await?;
        let mut samples = Vec::new();
        for sequence in sequences {
            if let Some(facts) = self.facts_of(&entity, *sequence).await? {
                samples.push(self.sample(&entity, facts, job).await);
            }
        }
        Ok(samples)
    }

    async fn facts_of(
        &self,
        entity: &Entity,
        sequence: SequenceNumber,
    ) -> Result<Option<HeadFacts<ReceivedMessage>>, BrokerError> {
        let query = HeadQuery {
            session: None,
            states: HeadStates::ALL,
            order: HeadOrder::Number,
            is_descending: false,
            start: HeadStart::Number(sequence),
            count_max: 1,
        };
        let Excerpt::Heads { heads, .. } = self.excerpt(entity, Inquiry::Heads(query)).await?
        else {
            return Err(entity.refuse(unexpected()));
        };
        Ok(heads.into_iter().find(|head| head.message.facts.sequence == sequence))
    }

    async fn sample(
        &self,
        entity: &Entity,
        facts: HeadFacts<ReceivedMessage>,
        job: &JobFacts,
    ) -> JobSample {
        let refused = expected_result(&job.deed, facts.state, facts.is_expired, job.breaks_locks);
        let (content, refused) = match content_after(&job.deed, entity, &facts).await {
            Ok((content, true)) => (Some(content), refused),
            Ok((content, false)) => (Some(content), refused.or(Some(ActResult::NotJson))),
            Err(error) => {
                let sequence_number = facts.message.facts.sequence.0;
                tracing::error!(sequence_number, %error, "message cannot be read");
                (None, refused)
            }
        };
        let facts = facts.with_holder(|_| None).with_message(|message| message.facts);
        let mut head = Head { facts, content };
        change_facts(&mut head, &job.deed, self.broker.now());
        JobSample { head, refused }
    }
}

/// Reads the properties and the start of the body as they are after a deed. Returns also whether the
/// deed applies to the body.
async fn content_after(
    deed: &Deed,
    entity: &Entity,
    facts: &HeadFacts<ReceivedMessage>,
) -> Result<(HeadContent, bool), MessageReadError> {
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
    let mut content = facts.message.head_with(facts.header_size, alter).await?;
    let mut is_applicable = true;
    if let Some(body) = deed.edit().and_then(|edit| edit.body.as_ref()) {
        is_applicable = show_body(&mut content, body, facts).await?;
    }
    if deed.edit().is_some_and(|edit| edit.new_id) {
        // It is chosen when the message is sent.
        content.message.message_id = None;
    }
    if matches!(deed, Deed::Move { .. }) && entity.sub_queue() == SubQueue::DeadLetter {
        let path = entity.path();
        let source = path.strip_suffix(SubQueue::DeadLetter.suffix()).unwrap_or(path);
        content.dead_letter_source = Some(source.to_owned());
    }
    Ok((content, is_applicable))
}

/// Shows the body after an edit. Returns whether the edit applies to the present one.
async fn show_body(
    content: &mut HeadContent,
    edit: &BodyEdit,
    facts: &HeadFacts<ReceivedMessage>,
) -> Result<bool, MessageReadError> {
    let mut present = BytesMut::new();
    if matches!(edit, BodyEdit::MergePatch(_)) {
        let mut reader = facts.message.body(facts.header_size).await?;
        let is_long = reader.length() > u64::from(PATCHED_BODY_BYTES_MAX);
        if is_long || reader.kind() != BodyKind::Data {
            return Ok(false);
        }
        while let Some(piece) = reader.next().await? {
            present.extend_from_slice(&piece);
        }
    }
    let present = Body::Data(present.freeze());
    let Some(changed) = changed_body(&present, edit) else { return Ok(false) };
    let start = changed.get(..BODY_START_BYTES).unwrap_or(&changed);
    content.message.body = Body::Data(Bytes::copy_from_slice(start));
    (content.body_kind, content.body_bytes) = (BodyKind::Data, changed.len() as u64);
    Ok(true)
}

/// Changes the facts of a message as a deed does.
fn change_facts(head: &mut Head, deed: &Deed, now: Timestamp) {
    let Head { facts, content } = head;
    let message = &mut facts.message;
    match deed {
        Deed::Delete => return,
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
