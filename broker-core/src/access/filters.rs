//! Rules of a topic, understood before they are saved: its samples, the results of all rules for a
//! message, and trials of changed rules (CON-35 to CON-37). A reader sees the subscriptions that it
//! may read.
//!
//! The rules are read from the topic and judged here, so a trial takes no time of the topic.

mod comparison;

use std::collections::HashSet;
use std::sync::Arc;

use peeklock_model::inspect::{HeadOrder, HeadQuery, HeadStart, HeadStates, ROW_COUNT_MAX};

use self::comparison::{Comparison, Room, select};
use super::Access;
use super::inspect::read_head;
use crate::broker::Entity;
use crate::command::InboundMessage;
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::findings::Head;
use crate::ids::{EntityId, SequenceNumber};
use crate::limits::Limits;
use crate::machine::family::CopySettings;
use crate::message::{Body, Message, Overlay, Value};
use crate::path::{PathKey, subscription_path};
use crate::rule::{Acceptance, Copy, Excess, Explanation, SampledMessage, TopicTrial};
use crate::samples::query::{
    CHANGE_COUNT_MAX, CopyPreview, ExplainQuery, SamplesQuery, SubscriptionExplanation,
    TRIED_COUNT_MAX, TopicExplanation, TopicSample, TopicSamples, WhatIf, WhatIfQuery,
};
use crate::survey::ReadableKeys;
use crate::time::{TimeSpan, Timestamp};

/// Maximum memory of the rules of a topic in a trial.
const RULE_BYTES_MAX: u64 = 16 << 20;
/// Maximum bytes of the messages of a trial.
const TRIED_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of the rules and copies in an explanation, unless the first rule has more.
const EXPLAINED_BYTES_MAX: usize = 4 << 20;
/// Bytes of a name in an answer, in addition to its text.
const NAME_BYTES: usize = 64;
/// Bytes of an application property, in addition to its name and value.
const PROPERTY_BYTES: usize = size_of::<(String, Value)>() + 64;
/// Number of rules that are read from a topic at once.
const RULES_AT_ONCE: usize = 1_000;
/// Number of heads that are read for each message that is asked for, at most, since many are of the
/// same message.
const HEADS_FACTOR: usize = 4;
/// Time after which a trial reads no further message.
const READING_TIME: TimeSpan = TimeSpan::from_seconds(3);
/// Time after which a trial judges no further message.
const TRIAL_TIME: TimeSpan = TimeSpan::from_seconds(5);
/// Name of a subscription that the reader may not read.
const HIDDEN: &str = "(one that you may not read)";

/// The rules of a topic, read for a question.
struct TopicRules {
    trial: TopicTrial,
    /// Ids here of the subscriptions that the reader may read.
    readable: HashSet<EntityId>,
    hidden_count: u64,
}

/// A message on which rules are tried.
struct TriedMessage {
    message: SampledMessage,
    /// Its number in the subscription that has it.
    stored: Option<(Arc<str>, SequenceNumber)>,
}

/// Messages on which rules are tried, each once.
#[derive(Default)]
struct TriedMessages {
    list: Vec<TriedMessage>,
    known: HashSet<(SequenceNumber, Option<Box<str>>)>,
    bytes: usize,
}

impl Access {
    /// Returns the last published messages of a topic.
    pub(super) async fn topic_samples(
        &self,
        path: &str,
        query: SamplesQuery,
    ) -> Result<TopicSamples, BrokerError> {
        let topic = self.topic(path).await?;
        let Some(samples) = &self.broker.shared.samples else {
            let detail = "samples are switched off; set `console.samples` and restart the broker";
            return Err(self.broker.refuse(Rejection::invalid_operation(detail), path));
        };
        let count = usize::try_from(query.count_max).unwrap_or(usize::MAX);
        let (newest, total) = samples.newest(topic.id(), count);
        let samples = newest.into_iter().map(|message| shown(TriedMessage::of_sample(message)));
        Ok(TopicSamples { samples: samples.collect(), total: total as u64 })
    }

    /// Explains all rules of a topic for one message.
    pub(super) async fn explain_topic(
        &self,
        path: &str,
        query: ExplainQuery,
        readable: &ReadableKeys,
    ) -> Result<TopicExplanation, BrokerError> {
        let topic = self.topic(path).await?;
        let message = self.explained_message(&topic, query).await?;
        let TopicRules { trial, readable, hidden_count } =
            self.rules_of_topic(&topic, readable).await?;
        let limits = &self.broker.settings().limits;
        let selection = select(&trial, &message, limits).await;
        let selected_by = selection.selected_by.map(|id| {
            let name = trial.name(id).filter(|_| readable.contains(&id));
            name.map_or(HIDDEN, |name| &**name)
        });
        let mut subscriptions = Vec::new();
        let mut room = Room::new(EXPLAINED_BYTES_MAX);
        for (id, name) in trial.subscriptions().filter(|(id, _)| readable.contains(id)) {
            let mut rules = Vec::new();
            let by = selected_by.filter(|_| trial.is_catch_all(id));
            for rule in trial.rules(id) {
                let explanation = match by {
                    Some(by) => rule.not_evaluated(by),
                    None => rule.explain(&message.published(), limits, &mut || 0),
                };
                if !room.take(explanation_bytes(&explanation)) {
                    break;
                }
                rules.push(explanation);
                tokio::task::yield_now().await;
            }
            let mut copies = Vec::new();
            for copy in selection.stored() {
                if room.is_full {
                    break;
                }
                if copy.subscription != id {
                    continue;
                }
                let preview = preview(&trial, &message, copy);
                if !room.take(preview_bytes(&message, copy, &preview)) {
                    break;
                }
                copies.push(preview);
                tokio::task::yield_now().await;
            }
            if room.take(NAME_BYTES + name.len()) || !rules.is_empty() || !copies.is_empty() {
                let name = Arc::clone(name);
                subscriptions.push(SubscriptionExplanation { name, rules, copies });
            }
            if room.is_full {
                break;
            }
        }
        let is_cut = room.is_full;
        let message = head_of(&message);
        let refused = selection.excess.map(|excess| refusal_text(excess, limits).into());
        Ok(TopicExplanation { message, subscriptions, refused, hidden_count, is_cut })
    }

    /// Tries changes of the rules of a topic on its samples and on messages of its subscriptions.
    pub(super) async fn what_if(
        &self,
        path: &str,
        query: &WhatIfQuery,
        readable: &ReadableKeys,
    ) -> Result<WhatIf, BrokerError> {
        let topic = self.topic(path).await?;
        let refuse = |rejection| self.broker.refuse(rejection, path);
        if query.changes.len() > CHANGE_COUNT_MAX || query.message_count_max > TRIED_COUNT_MAX {
            let detail = format!(
                "a trial has at most {CHANGE_COUNT_MAX} changes and {TRIED_COUNT_MAX} messages"
            );
            return Err(refuse(Rejection::out_of_range(detail)));
        }
        let TopicRules { trial: before, readable, hidden_count } =
            self.rules_of_topic(&topic, readable).await?;
        let limits = &self.broker.settings().limits;
        let mut after = before.clone();
        for change in &query.changes {
            let name = &*change.subscription;
            // A hidden subscription is answered as a missing one, so that no trial reports it.
            if before.subscription(name).is_none_or(|id| !readable.contains(&id)) {
                return Err(refuse(Rejection::entity_not_found(name)));
            }
            after.change(change, limits).map_err(refuse)?;
        }
        let names = before.subscriptions().filter(|(id, _)| readable.contains(id));
        let names: Vec<_> = names.map(|(_, name)| Arc::clone(name)).collect();
        let count_max = query.message_count_max;
        let difference_count_max = u64::from(query.difference_count_max);
        let mut comparison = Comparison::new(before, after, readable, difference_count_max);
        let start = self.broker.now();
        let until = start.plus(TRIAL_TIME);
        let mut tried = TriedMessages::default();
        let mut is_cut = !self.add_samples(&topic, &mut tried);
        // The samples are judged before a slow disk can use up the time.
        let samples = std::mem::take(&mut tried.list);
        let sample_count = self.judge_messages(samples, until, &mut comparison).await;
        let until_read = start.plus(READING_TIME);
        is_cut |= !self.add_stored(&topic, &names, count_max, until_read, &mut tried).await?;
        let message_count = self.judge_messages(tried.list, until, &mut comparison).await;
        let Comparison { before, readable, counts, room, is_late, .. } = comparison;
        let (difference_count, differences) = (comparison.difference_count, comparison.differences);
        let counts = before.subscriptions().zip(counts);
        let visible = counts.filter(|((id, _), _)| readable.contains(id));
        Ok(WhatIf {
            sample_count,
            message_count,
            subscriptions: visible.map(|(_, counts)| counts).collect(),
            difference_count,
            differences,
            hidden_count,
            is_cut: is_cut || is_late || room.is_full,
        })
    }

    /// Judges messages until an instant, and returns their number.
    async fn judge_messages(
        &self,
        messages: Vec<TriedMessage>,
        until: Timestamp,
        comparison: &mut Comparison,
    ) -> u64 {
        let limits = &self.broker.settings().limits;
        let mut count = 0;
        for message in messages {
            if self.broker.now() >= until {
                comparison.is_late = true;
                break;
            }
            count += 1;
            comparison.add(message, limits).await;
        }
        count
    }

    async fn topic(&self, path: &str) -> Result<Entity, BrokerError> {
        let entity = self.entity(path, Action::Inspect).await?;
        self.broker.require_kind(entity, path, EntityKind::Topic)
    }

    /// Reads the rules of all subscriptions of a topic.
    async fn rules_of_topic(
        &self,
        topic: &Entity,
        keys: &ReadableKeys,
    ) -> Result<TopicRules, BrokerError> {
        let broker = &self.broker;
        let limits = &broker.settings().limits;
        // Both sides of a trial and its answer fit into the memory of an explanation.
        let bytes_max = RULE_BYTES_MAX.min(limits.broker_description_bytes_max / 4);
        let mut rules =
            TopicRules { trial: TopicTrial::default(), readable: HashSet::new(), hidden_count: 0 };
        for path in broker.subscription_paths(topic.path(), 0, usize::MAX)? {
            let described = broker.describe_subscription(&path).await;
            let Some(described) = unless_deleted(described)? else { continue };
            let description = described.description;
            let settings = CopySettings::of(&description).rules;
            let id = rules.trial.add_subscription(Arc::from(&*description.name), settings);
            match keys.contains(&PathKey::fold(&path)) {
                true => drop(rules.readable.insert(id)),
                false => rules.hidden_count += 1,
            }
            let mut skip = 0;
            loop {
                let page = broker.page_of_rules(&path, skip, RULES_AT_ONCE).await;
                let page = unless_deleted(page)?.unwrap_or_default();
                if page.is_empty() {
                    break;
                }
                skip += page.len();
                for rule in page {
                    let added = rules.trial.add_rule(id, rule);
                    added.map_err(|rejection| broker.refuse(rejection, &path))?;
                }
                if rules.trial.memory_bytes() > bytes_max {
                    let detail = format!(
                        "the rules of the topic take more than {bytes_max} bytes of memory, the \
                         maximum of a trial; explain its subscriptions one by one"
                    );
                    return Err(broker.refuse(Rejection::quota_exceeded(detail), topic.path()));
                }
            }
        }
        Ok(rules)
    }

    /// Returns the message that a question names, as the topic would publish it now.
    async fn explained_message(
        &self,
        topic: &Entity,
        query: ExplainQuery,
    ) -> Result<SampledMessage, BrokerError> {
        let broker = &self.broker;
        let (path, sequence) = match query {
            ExplainQuery::Message(message) => {
                let described = broker.describe_topic(topic.path()).await?;
                let InboundMessage { content, envelope } = broker.inbound(*message);
                if let Some(defect) = envelope.defect {
                    return Err(broker.refuse(defect.rejection().clone(), topic.path()));
                }
                let acceptance = Acceptance {
                    sequence: described.last_sequence.next(),
                    enqueued_sequence: SequenceNumber(0),
                    enqueued_at: broker.now(),
                    time_to_live_max: described.description.default_message_time_to_live,
                    size: content.size(),
                };
                let content = content.without_body();
                return Ok(SampledMessage { content, changes: None, acceptance, copy_count: 0 });
            }
            ExplainQuery::Stored { path, sequence } => (path, sequence),
        };
        if path.is_none()
            && let Some(samples) = &broker.shared.samples
        {
            let (newest, _) = samples.newest(topic.id(), usize::MAX);
            let found = newest.into_iter().find(|sample| sample.acceptance.sequence == sequence);
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let path = path.as_deref().unwrap_or(topic.path());
        let entity = self.entity(path, Action::Inspect).await?;
        let refuse = |rejection| broker.refuse(rejection, path);
        let found = self.find_head(&entity, sequence).await?;
        let facts = found.ok_or_else(|| refuse(Rejection::message_not_found(sequence)))?;
        let head = read_head(facts.with_holder(|_| None)).await;
        stored_message(&head)
            .ok_or_else(|| refuse(Rejection::internal("the store cannot read the message")))
    }

    /// Adds the samples of a topic, the newest first. Returns whether all have room.
    fn add_samples(&self, topic: &Entity, tried: &mut TriedMessages) -> bool {
        let Some(samples) = &self.broker.shared.samples else { return true };
        let (newest, _) = samples.newest(topic.id(), usize::MAX);
        newest.into_iter().all(|sample| tried.add(TriedMessage::of_sample(sample)))
    }

    /// Adds the newest messages of subscriptions: of each about as many, then more of the first
    /// ones, since many copies are of the same message. Returns whether all that were asked for
    /// have room.
    async fn add_stored(
        &self,
        topic: &Entity,
        names: &[Arc<str>],
        count_max: u32,
        until: Timestamp,
        tried: &mut TriedMessages,
    ) -> Result<bool, BrokerError> {
        let end = tried.list.len() + count_max as usize;
        let mut heads_left = HEADS_FACTOR * count_max as usize;
        let mut starts = vec![Some(HeadStart::End); names.len()];
        for is_first in [true, false] {
            for (place, (name, start)) in names.iter().zip(&mut starts).enumerate() {
                let left = end - tried.list.len();
                let share = if is_first { left.div_ceil(names.len() - place) } else { left };
                let mut wanted = share.min(heads_left);
                let path = subscription_path(topic.path(), name);
                while let Some(from) = start.take_if(|_| wanted > 0) {
                    if self.broker.now() >= until {
                        return Ok(false);
                    }
                    let count_max = u32::try_from(wanted).unwrap_or(u32::MAX).min(ROW_COUNT_MAX);
                    let page =
                        unless_deleted(self.head_page(&path, newest(from, count_max)).await)?;
                    let Some(page) = page else { break };
                    for head in &page.heads {
                        let Some(message) = stored_message(head) else { continue };
                        let stored = Some((Arc::clone(name), head.facts.message.sequence));
                        if !tried.add(TriedMessage { message, stored }) {
                            return Ok(false);
                        }
                    }
                    let examined = page.heads.len().max(1);
                    wanted = wanted.saturating_sub(examined);
                    heads_left = heads_left.saturating_sub(examined);
                    *start = page.next.map(HeadStart::After);
                }
            }
        }
        Ok(true)
    }
}

/// A page of the newest messages.
const fn newest(start: HeadStart, count_max: u32) -> HeadQuery {
    HeadQuery {
        session: None,
        states: HeadStates::ALL,
        order: HeadOrder::Number,
        is_descending: true,
        start,
        count_max,
    }
}

impl TriedMessage {
    const fn of_sample(message: SampledMessage) -> Self {
        Self { message, stored: None }
    }
}

impl TriedMessages {
    /// Adds a message, unless it is known as another copy. Returns whether it has room.
    fn add(&mut self, tried: TriedMessage) -> bool {
        let Acceptance { sequence, enqueued_sequence, .. } = tried.message.acceptance;
        let first = if enqueued_sequence.0 == 0 { sequence } else { enqueued_sequence };
        let id = tried.message.content.message_id().map(Into::into);
        if self.known.insert((first, id)) {
            self.bytes = self.bytes.saturating_add(tried.message.bytes());
            if self.bytes > TRIED_BYTES_MAX {
                return false;
            }
            self.list.push(tried);
        }
        true
    }
}

/// Returns a stored message as its topic would publish it; none if it cannot be read.
fn stored_message(head: &Head) -> Option<SampledMessage> {
    let content = head.content.as_ref()?;
    let facts = &head.facts.message;
    let message = Message { body: Body::default(), ..content.message.clone() };
    let acceptance = Acceptance {
        sequence: facts.sequence,
        enqueued_sequence: facts.enqueued_sequence,
        enqueued_at: facts.enqueued_at,
        time_to_live_max: TimeSpan::MAX,
        size: facts.size,
    };
    Some(SampledMessage {
        content: message.encode(),
        changes: content.dead_letter_source.as_deref().map(Overlay::dead_letter_source),
        acceptance,
        copy_count: 0,
    })
}

/// Returns the properties of a message, without its body.
fn head_of(message: &SampledMessage) -> Message {
    // The content was parsed or encoded before; properties of an unknown type are not shown.
    let message = message.message().unwrap_or_default();
    Message { body: Body::default(), ..message }
}

/// Returns a copy as it would be stored, without its body.
fn preview(trial: &TopicTrial, message: &SampledMessage, copy: &Copy) -> CopyPreview {
    let mut properties = head_of(message);
    if let Some(changed) = &copy.changed {
        properties.apply_overlay(&changed.overlay);
    }
    let dead_letter = copy.refusal.as_deref();
    CopyPreview {
        rule: copy.rule.and_then(|place| trial.rule_name(place)).map(Into::into),
        message: properties,
        dead_letter: dead_letter
            .map(|refusal| (refusal.reason().into(), refusal.description.clone())),
    }
}

/// Returns a tried message for a reader.
fn shown(tried: TriedMessage) -> TopicSample {
    let TriedMessage { message, stored } = tried;
    let Acceptance { sequence, enqueued_at, size, .. } = message.acceptance;
    let copy_count = stored.is_none().then_some(message.copy_count);
    let (subscription, sequence) = match stored {
        Some((subscription, sequence)) => (Some(subscription), sequence),
        None => (None, sequence),
    };
    let message = head_of(&message);
    TopicSample { sequence, subscription, enqueued_at, size, copy_count, message }
}

/// Bytes of an explanation, about.
fn explanation_bytes(explanation: &Explanation) -> usize {
    let tests = explanation.tests.iter().map(|test| {
        64 + test.text.len() + test.operands.iter().map(|operand| 32 + operand.len()).sum::<usize>()
    });
    let reads = explanation.reads.iter();
    let reads = reads.map(|read| 64 + read.name.len() + read.value.as_ref().map_or(0, String::len));
    let changes = explanation.changes.iter().map(|change| 32 + change.len());
    128 + explanation.rule.len() + tests.chain(reads).chain(changes).sum::<usize>()
}

/// Reason for which a topic refuses a message.
fn refusal_text(excess: Excess, limits: &Limits) -> String {
    let (name, limit) = match excess {
        Excess::Copies => ("publish_copy_count_max", limits.publish_copy_count_max as u64),
        Excess::Bytes => ("atomic_bytes_max", limits.atomic_bytes_max),
        Excess::Steps => ("publish_step_count_max", limits.publish_step_count_max),
    };
    let subject = match excess {
        Excess::Copies => "copies of the message",
        Excess::Bytes => "bytes of the changes of its copies",
        Excess::Steps => "steps of the rules of the topic",
    };
    format!("the topic would refuse the message: the {subject} are more than {limit}, `{name}`")
}

/// Bytes of a copy in an explanation, about.
fn preview_bytes(message: &SampledMessage, copy: &Copy, preview: &CopyPreview) -> usize {
    let overlay = copy.changed.as_ref().map_or(0, |changed| changed.overlay.as_bytes().len());
    let properties = PROPERTY_BYTES * preview.message.application_properties.len();
    size_of::<CopyPreview>() + message.bytes() + overlay + properties
}

/// Returns nothing for an entity that was deleted meanwhile.
fn unless_deleted<T>(found: Result<T, BrokerError>) -> Result<Option<T>, BrokerError> {
    match found {
        Err(error) if error.condition() == Condition::EntityNotFound => Ok(None),
        found => found.map(Some),
    }
}
