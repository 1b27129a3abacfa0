//! Samples of a job: its first messages as the deed would store them (CON-14).
//!
//! They are read for each request, with the rights of the reader, so no job keeps contents. A message
//! that is no longer there has no sample.

use peeklock_model::inspect::{
    Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, Inquiry,
};

use super::Access;
use super::inspect::unexpected;
use crate::broker::Entity;
use crate::command::{Deed, MessageReadError, MessageState, ReceivedMessage};
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::findings::{Head, HeadContent};
use crate::ids::SequenceNumber;
use crate::jobs::{JobFacts, JobSample, expected_result};
use crate::message::Overlay;
use crate::path::SubQueue;
use crate::time::Timestamp;
use crate::transfer::contents::{DEAD_LETTER_FACTS, without_dead_letter_facts};

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
        let Excerpt::Heads { heads, .. } = self.excerpt(entity, Inquiry::Heads(query)).await? else {
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
        let read = content_after(&job.deed, entity, &facts).await;
        let content = read.inspect_err(|error| {
            let sequence_number = facts.message.facts.sequence.0;
            tracing::error!(sequence_number, %error, "message cannot be read");
        });
        let facts = facts.with_holder(|_| None).with_message(|message| message.facts);
        let mut head = Head { facts, content: content.ok() };
        change_facts(&mut head, &job.deed, self.broker.now());
        JobSample { head, refused }
    }
}

/// Reads the properties and the start of the body as they are after a deed.
async fn content_after(
    deed: &Deed,
    entity: &Entity,
    facts: &HeadFacts<ReceivedMessage>,
) -> Result<HeadContent, MessageReadError> {
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
    if deed.edit().is_some_and(|edit| edit.new_id) {
        // It is chosen when the message is sent.
        content.message.message_id = None;
    }
    if matches!(deed, Deed::Move { .. }) && entity.sub_queue() == SubQueue::DeadLetter {
        let path = entity.path();
        let source = path.strip_suffix(SubQueue::DeadLetter.suffix()).unwrap_or(path);
        content.dead_letter_source = Some(source.to_owned());
    }
    Ok(content)
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
