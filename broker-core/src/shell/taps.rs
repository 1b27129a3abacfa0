//! Shows accepted messages to the taps of the entity (CON-34), between steps 4 and 5 of the data
//! path: a message is shown when it is durable, before any receiver gets it.
//!
//! A queue keeps accepted messages, so the shell asks it for all above the last shown number. A
//! topic keeps no published message, so the shell notes the start of each content until its stage
//! is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use peeklock_model::inspect::{
    Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, Inquiry,
};

use super::{Shell, TreeFault, TurnResults};
use crate::change::{Change, PublishedContent, TopicChange};
use crate::command::{Command, MessageFacts, MessageState, Outcome, ReceivedMessage};
use crate::content_ref::ContentRef;
use crate::effect::Answer;
use crate::ids::{EntityId, SequenceNumber, Ticket};
use crate::machine::{Machine, StageNumber};
use crate::message::Content;
use crate::path::SubQueue;
use crate::request::Release;
use crate::store::Reserved;
use crate::taps::{HEADS_PER_SECOND, TapMessage, Taps, without_body};
use crate::time::Timestamp;

/// Taps of the entity of a shell.
pub(super) struct EntityTaps {
    entity: EntityId,
    taps: Arc<Taps>,
    /// Published messages of stages that are not durable yet.
    published: VecDeque<PublishedStage>,
}

/// Messages that a topic published in one stage.
struct PublishedStage {
    stage: StageNumber,
    /// The highest number.
    last: SequenceNumber,
    count: u64,
    /// At most [`HEADS_PER_SECOND`] messages over all stages.
    messages: Vec<TapMessage>,
}

impl EntityTaps {
    /// Notes a message that is published, if the entity has a tap.
    pub(super) fn note(&mut self, change: &Change, stage: StageNumber, now: Timestamp) {
        let Change::OfTopic(TopicChange::Published { sequence, content, .. }) = change else {
            return;
        };
        if !self.taps.is_any_open() || self.taps.of_entity(self.entity).is_empty() {
            return;
        }
        let kept: usize = self.published.iter().map(|of_stage| of_stage.messages.len()).sum();
        if self.published.back().is_none_or(|last| last.stage != stage) {
            let (last, messages) = (*sequence, Vec::new());
            self.published.push_back(PublishedStage { stage, last, count: 0, messages });
        }
        let Some(of_stage) = self.published.back_mut() else { return };
        of_stage.last = *sequence;
        of_stage.count += 1;
        if let PublishedContent::New(content) = content
            && (kept as u64) < HEADS_PER_SECOND
        {
            let (message, _) = without_body(published(*sequence, content, now));
            of_stage.messages.push(message);
        }
    }

    /// Shows the published messages that are durable.
    fn show_published(&mut self, durable: StageNumber, now: Timestamp) {
        while let Some(of_stage) = self.published.pop_front_if(|it| it.stage <= durable) {
            for buffer in self.taps.of_entity(self.entity) {
                let (seen, _) = buffer.room(now);
                let messages = of_stage.messages.iter();
                let messages = messages.filter(|it| it.message.facts.sequence > seen).cloned();
                let count = of_stage.count.min(of_stage.last.0.saturating_sub(seen.0));
                buffer.add(messages, (of_stage.last, count), now);
            }
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Shows accepted messages to taps on the entity.
    pub(crate) fn with_taps(mut self, entity: EntityId, taps: Arc<Taps>) -> Self {
        self.taps = Some(EntityTaps { entity, taps, published: VecDeque::new() });
        self
    }

    /// Shows the accepted messages that are durable. It runs before receivers get them, so that a
    /// message that is consumed at once is among them.
    pub(super) fn show_accepted(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let Some(own) = self.taps.as_mut().filter(|own| own.taps.is_any_open()) else {
            return Ok(());
        };
        let durable = self.tree.borrow().durable_stage();
        own.show_published(durable, now);
        for buffer in own.taps.of_entity(own.entity) {
            let (seen, room) = buffer.room(now);
            let Some(accepted) = self.machine.accepted_after(seen) else { return Ok(()) };
            if accepted.last == seen {
                continue;
            }
            let wanted = room.min(accepted.count);
            let mut messages = Vec::new();
            if wanted > 0 {
                messages = self.messages_after(seen, wanted, now, out, turn)?;
                messages.retain(|it| it.message.facts.sequence <= accepted.last);
            }
            turn.work += messages.len() as u64;
            buffer.add(messages, (accepted.last, accepted.count), now);
        }
        Ok(())
    }

    /// Returns up to `count` messages with numbers above `seen`, pinned.
    fn messages_after(
        &mut self,
        seen: SequenceNumber,
        count: u64,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Vec<TapMessage>, TreeFault> {
        let inquiry = Inquiry::Heads(HeadQuery {
            session: None,
            states: HeadStates::ALL,
            order: HeadOrder::Number,
            is_descending: false,
            start: HeadStart::Number(seen.next()),
            count_max: u32::try_from(count).unwrap_or(u32::MAX),
        });
        let mut answer = None;
        let asked = self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
            let command = Command::Inspect(inquiry);
            answer = Some(machine.apply(Ticket(0), SubQueue::Main, command, ctx, step)?);
            Ok(())
        })?;
        let (Ok(()), Some(Answer::Now(outcome, _))) = (asked, answer) else {
            return Ok(Vec::new());
        };
        match self.resolve(outcome)? {
            Outcome::Inspected(excerpt) => match *excerpt {
                Excerpt::Heads { heads, .. } => Ok(heads),
                _ => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }
}

/// Facts about a message as a topic publishes it.
fn published(sequence: SequenceNumber, content: &Content, now: Timestamp) -> TapMessage {
    let facts = MessageFacts {
        sequence,
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: now,
        expires_at: None,
        time_to_live: None,
        delivery_count: 0,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: None,
        size: content.size(),
        overlay_count: 0,
        was_scheduled: false,
    };
    let content_ref = ContentRef::Loaded(content.as_bytes().clone());
    HeadFacts {
        message: ReceivedMessage { facts, content: content_ref, overlays: Vec::new() },
        state: HeadState::Active,
        expires_at: Timestamp::NEVER,
        is_expired: false,
        hops: 0,
        header_size: content.header_size(),
        session: None,
        destination: None,
        lock: None,
    }
}
