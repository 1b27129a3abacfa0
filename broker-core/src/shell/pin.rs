//! Attaches pinned references to contents to everything that leaves, so that they stay readable.
//! Part of step 5 of the data path.

use super::{Shell, TreeFault};
use crate::command::{MachineOutcome, MessageFacts, Outcome, ReceivedMessage, StateFacts};
use crate::content_ref::ContentRef;
use crate::inspect::{Excerpt, HeadFacts};
use crate::machine::Machine;
use crate::transfer::{HandOver, HandedOverMessage, Origin, PinnedMessage};

impl<M: Machine> Shell<M> {
    /// Attaches pinned contents to the messages of an outcome.
    pub(super) fn resolve(&mut self, outcome: MachineOutcome) -> Result<Outcome, TreeFault> {
        Ok(match outcome {
            MachineOutcome::Received(messages) => Outcome::Received(self.pin(messages)?),
            MachineOutcome::Peeked(messages) => Outcome::Peeked(self.pin(messages)?),
            MachineOutcome::Done => Outcome::Done,
            MachineOutcome::Accepted(sequence) => Outcome::Accepted(sequence),
            MachineOutcome::AcceptedBatch(sequences) => Outcome::AcceptedBatch(sequences),
            MachineOutcome::NumbersReserved { returned, numbers } => {
                Outcome::NumbersReserved { returned, numbers }
            }
            MachineOutcome::Renewed(until) => Outcome::Renewed(until),
            MachineOutcome::Granted { unused } => Outcome::Granted { unused },
            MachineOutcome::Deleted(count) => Outcome::Deleted(count),
            MachineOutcome::LocksBroken(count) => Outcome::LocksBroken(count),
            MachineOutcome::Acted(messages) => Outcome::Acted(messages),
            MachineOutcome::Described(described) => Outcome::Described(described),
            MachineOutcome::TopicDescribed(described) => Outcome::TopicDescribed(described),
            MachineOutcome::SubscriptionDescribed(described) => {
                Outcome::SubscriptionDescribed(described)
            }
            MachineOutcome::Rules(rules) => Outcome::Rules(rules),
            MachineOutcome::Explained(explained) => Outcome::Explained(explained),
            MachineOutcome::SessionAccepted {
                session,
                receiver,
                locked_until,
                session_entrance: (),
            } => {
                let session_entrance = self.host.as_mut().and_then(|host| host.begin(receiver));
                Outcome::SessionAccepted { session, receiver, locked_until, session_entrance }
            }
            MachineOutcome::SessionState(state) => {
                Outcome::SessionState(state.map(|state| self.pin_state(state)).transpose()?)
            }
            MachineOutcome::Sessions(names) => Outcome::Sessions(names),
            MachineOutcome::Inspected(excerpt) => {
                Outcome::Inspected(Box::new(self.pin_excerpt(*excerpt)?))
            }
            MachineOutcome::Committed(parts) => Outcome::Committed(parts),
            MachineOutcome::Admitted(admissions) => Outcome::Admitted(admissions),
            MachineOutcome::TakenOver(results) => Outcome::TakenOver(results),
        })
    }

    /// Attaches pinned contents to an excerpt. They hold no memory, since they are read later.
    fn pin_excerpt(
        &mut self,
        excerpt: Excerpt<MessageFacts, StateFacts>,
    ) -> Result<Excerpt<ReceivedMessage, ContentRef>, TreeFault> {
        Ok(match excerpt {
            Excerpt::Heads { heads, next, examined } => {
                Excerpt::Heads { heads: self.pin_heads(heads), next, examined }
            }
            Excerpt::Originals { heads, records, receipt } => {
                Excerpt::Originals { heads: self.pin_heads(heads), records, receipt }
            }
            Excerpt::Locks { locks, next, count } => Excerpt::Locks { locks, next, count },
            Excerpt::Sessions { rows, next, count } => Excerpt::Sessions { rows, next, count },
            Excerpt::SessionState(state) => {
                Excerpt::SessionState(state.map(|state| self.pin_state(state)).transpose()?)
            }
            Excerpt::Timeline { counts, before, later, next } => {
                Excerpt::Timeline { counts, before, later, next }
            }
        })
    }

    /// Attaches pinned contents to messages in a list. A message without content is left out: a
    /// message on its way to another entity may have been stored and deleted there.
    fn pin_heads(
        &mut self,
        heads: Vec<HeadFacts<MessageFacts>>,
    ) -> Vec<HeadFacts<ReceivedMessage>> {
        self.keys.clear();
        for HeadFacts { message, .. } in &heads {
            self.keys.push(self.machine.content_key(message.sequence));
            for index in 0..message.overlay_count {
                self.keys.push(self.machine.overlay_key(message.sequence, index));
            }
        }
        let mut contents = Vec::with_capacity(self.keys.len());
        self.store.pin_unloaded(&self.keys, &mut contents);
        let mut contents = contents.into_iter();
        let mut pinned = Vec::with_capacity(heads.len());
        for head in heads {
            let content = contents.next().flatten();
            let overlays = contents.by_ref().take(usize::from(head.message.overlay_count));
            let overlays = overlays.flatten().collect();
            if let Some(content) = content {
                pinned.push(head.with_message(|facts| ReceivedMessage {
                    facts,
                    content,
                    overlays,
                }));
            }
        }
        pinned
    }

    /// Returns a reference to the state of a session.
    fn pin_state(&self, state: StateFacts) -> Result<ContentRef, TreeFault> {
        let key = match state {
            StateFacts::Fresh(bytes) => return Ok(ContentRef::Loaded(bytes)),
            StateFacts::Stored(key) => key,
        };
        let mut contents = Vec::with_capacity(1);
        self.store.pin(&[key], &mut contents);
        let content = contents.pop().flatten();
        content.ok_or_else(|| TreeFault("the store lost the state of a session".to_owned()))
    }

    /// Attaches pinned contents and the keys of their records to a list that leaves.
    pub(super) fn pin_list(
        &mut self,
        list: HandOver,
    ) -> Result<HandOver<PinnedMessage>, TreeFault> {
        let HandOver { list, sub_queue, destination, source, when_full, route, messages } = list;
        let facts = messages.iter().map(|handed| handed.facts).collect();
        let shard = self.tree.borrow().shard().0;
        let messages = self
            .pin(facts)?
            .into_iter()
            .zip(messages)
            .map(|(message, handed)| {
                let HandedOverMessage { hops, copies_spent, never_duplicate, time_to_live, .. } =
                    handed;
                let MessageFacts { sequence, overlay_count, .. } = message.facts;
                let origin = Origin {
                    shard,
                    key: self.machine.content_key(sequence),
                    overlays: (0..overlay_count)
                        .map(|index| self.machine.overlay_key(sequence, index))
                        .collect(),
                    contents: None,
                };
                PinnedMessage { message, hops, copies_spent, never_duplicate, time_to_live, origin }
            })
            .collect();
        Ok(HandOver { list, sub_queue, destination, source, when_full, route, messages })
    }

    pub(super) fn pin(
        &mut self,
        messages: Vec<MessageFacts>,
    ) -> Result<Vec<ReceivedMessage>, TreeFault> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.keys.clear();
        for facts in &messages {
            self.keys.push(self.machine.content_key(facts.sequence));
            for index in 0..facts.overlay_count {
                self.keys.push(self.machine.overlay_key(facts.sequence, index));
            }
        }
        let mut contents = Vec::with_capacity(self.keys.len());
        self.store.pin(&self.keys, &mut contents);
        let mut contents = contents.into_iter();
        let mut received = Vec::with_capacity(messages.len());
        for facts in messages {
            let sequence = facts.sequence;
            let content = contents.next().flatten().ok_or_else(|| {
                TreeFault(format!("the store lost content of message {sequence}"))
            })?;
            let mut overlays = Vec::with_capacity(usize::from(facts.overlay_count));
            for _ in 0..facts.overlay_count {
                match contents.next().flatten() {
                    Some(overlay) => overlays.push(overlay),
                    // Only a repaired store lacks an overlay. The content of the message is
                    // complete: delivering it without some properties is better than never
                    // delivering it.
                    None => tracing::warn!(
                        sequence_number = sequence.0,
                        "properties that were set when the message was settled are lost"
                    ),
                }
            }
            received.push(ReceivedMessage { facts, content, overlays });
        }
        Ok(received)
    }
}
