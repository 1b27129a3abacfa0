//! Judging ahead: before a slow command is applied, its rules are evaluated in slices, between
//! which other entities of the arbiter have their turns.
//!
//! ```text
//!  command ──► little work? ──yes──────────────────────────────► applied, judged on the way
//!                  │ no                                              ▲
//!                  └─► a slice ──► a slice ──► ... ──► all judged ───┘  takes the results
//!                          └── the shell takes no other command ──┘
//! ```
//!
//! Judging changes no state, and no other command comes in between, so the command is still one
//! atomic step in its order. The next judged command drops the results.
//!
//! The results stay in memory until then. So judging ends at the bytes of an atomic step, and at
//! the limit of judged bytes of all topics. Then a send is refused, and the rest of a list is
//! offered again by its source. Judging a list also ends after the time of a publish: the broker
//! holds the list's contents in memory meanwhile, in room that others need (decision 34).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Topic;
use super::arrive::journey_of;
use super::copies::{ExceededLimit, StagedCopies, staged_bytes};
use super::peer::journey_of_peer;
use super::publish::Journey;
use super::transaction::is_published;
use super::work::CommandKind;
use crate::command::{Command, InboundMessage, PeerArrival, RuleCommand, TopicCommand};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber, Ticket};
use crate::intake::Intake as _;
use crate::limits::Limits;
use crate::message::Content;
use crate::rule::{
    EvaluatedMessage, Explanation, Rule, RuleDescription, RuleEvaluation, Selection,
};
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Arrival;
use crate::{Ctx, Preparation, intake};

/// Steps of a slice, which take about a millisecond.
const SLICE_STEPS: u64 = 1 << 20;
/// Number of rules of a new subscription in a slice; each takes some ten microseconds.
const SLICE_RULES: usize = 64;
/// Steps per byte to apply overlays to a message: properties of both are looked up.
const CHANGED_STEPS_PER_BYTE: u64 = 8;
/// Bytes of results that a command may always have, even at the limit of all topics.
const ALWAYS_KEPT_BYTES: u64 = 64 << 10;

/// State of judging ahead.
pub(super) struct JudgedAhead {
    subject: Subject,
    selections: BTreeMap<MessageKey, Selection>,
    /// Number of judged messages, and the state of the next one.
    count: usize,
    judging: RuleEvaluation,
    /// Copies of all judged messages.
    staged: StagedCopies,
    stopped_by: Option<StopReason>,
    /// Steps that are not yet added to the steps of the topic.
    taken: u64,
    /// All steps of this command.
    steps: u64,
    explained: Vec<Explanation>,
    /// Compiled rules of a subscription to create, or the rejection of an invalid one.
    rules: Result<Vec<Rule>, Rejection>,
    /// Instant and number that the rules see.
    now: Timestamp,
    sequence: SequenceNumber,
}

/// The command, or the scheduled message, that is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Command(Ticket),
    Scheduled(SequenceNumber),
}

/// Reason for which the rest of a command is not judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopReason {
    /// The limit of an atomic step is exceeded.
    Step(ExceededLimit),
    /// All topics together have reached the limit of judged bytes.
    Broker,
    /// A list from another entity has taken the time of a publish.
    List,
}

/// A message of a command that rules may see.
#[derive(Clone, Copy)]
enum JudgedMessage<'c> {
    /// From a client.
    Sent(&'c InboundMessage),
    /// From another entity.
    Arrived(&'c Arrival),
    /// From another broker.
    FromPeer(&'c PeerArrival),
}

/// The next message to judge, with its journey.
struct NextMessage<'c> {
    content: &'c Content,
    journey: Journey,
    is_new: bool,
}

impl JudgedAhead {
    /// Bytes that the copies need in the store in addition to the contents.
    pub(super) fn staged_bytes(&self, may_be_in_sessions: bool) -> u64 {
        let found = self.selections.iter();
        found
            .map(|(key, selection)| staged_bytes(selection, key.set_bytes(), may_be_in_sessions))
            .sum()
    }

    /// Bytes of the results in memory.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.staged.bytes().saturating_add(self.judging.changed_bytes())
    }

    /// Whether a list from another entity has taken more steps than a publish may.
    const fn is_long_list(&self, command: &Command, limits: &Limits) -> bool {
        matches!(command, Command::TransferIn { .. }) && self.steps > limits.publish_step_count_max
    }

    /// Whether judging must end because all topics together have reached the limit of judged bytes.
    fn is_too_much(&self, ctx: &Ctx<'_>) -> bool {
        ctx.remaining.judged_bytes == 0 && self.kept_bytes() > ALWAYS_KEPT_BYTES
    }
}

impl Topic {
    /// Whether judging takes more than a slice.
    pub(super) fn is_long_to_judge(&self, ahead: Preparation<'_>, now: Timestamp) -> bool {
        let (bytes, viewed) = match ahead {
            Preparation::Command { command, .. } => {
                if let Command::OfTopic(TopicCommand::InSubscription {
                    command: RuleCommand::Explain(message),
                    ..
                }) = command
                {
                    (u64::from(message.content.header_size()), 0)
                } else {
                    (property_bytes(command, now), view_steps_of(command))
                }
            }
            Preparation::Loaded { content, .. } => Content::parse(content.clone())
                .map_or((0, 0), |content| (u64::from(content.header_size()), 0)),
        };
        bytes > 0 && self.matcher.predicted_steps(bytes).saturating_add(viewed) > SLICE_STEPS
    }

    /// Judges a command or a loaded message for one slice; returns whether it can be carried out
    /// now.
    pub(super) fn judge_ahead(&mut self, ahead: Preparation<'_>, ctx: &mut Ctx<'_>) -> bool {
        match ahead {
            Preparation::Command { ticket, command } => self.judge_command(ticket, command, ctx),
            Preparation::Loaded { sequence, content } => self.judge_loaded(sequence, content, ctx),
        }
    }

    /// Returns the copies found ahead for a message that is published now.
    pub(super) fn found_ahead(&self, content: &Content, journey: &Journey) -> Option<Selection> {
        let ahead = self.ahead.as_ref()?;
        ahead.selections.get(&MessageKey::of(content, journey)).cloned()
    }

    /// Takes the explanations found ahead.
    pub(super) fn explained_ahead(&mut self, ticket: Ticket) -> Option<Vec<Explanation>> {
        let ahead = self.ahead.take_if(|ahead| ahead.subject == Subject::Command(ticket))?;
        Some(ahead.explained).filter(|explained| !explained.is_empty())
    }

    /// Takes the rules compiled ahead for a subscription to create.
    pub(super) fn rules_ahead(&mut self, ticket: Ticket) -> Option<Result<Vec<Rule>, Rejection>> {
        let ahead = self.ahead.take_if(|ahead| ahead.subject == Subject::Command(ticket))?;
        Some(ahead.rules)
    }

    /// Refuses a command whose judging ended at a limit.
    pub(super) fn refuse_unjudged(&self, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        match self.ahead.as_ref().and_then(|ahead| ahead.stopped_by) {
            // A client's send is not a list from another entity.
            None | Some(StopReason::List) => Ok(()),
            Some(StopReason::Step(exceeded)) => Err(exceeded.rejection(ctx.limits)),
            Some(StopReason::Broker) => Err(Rejection::too_many_unstored_copies(ctx.limits)),
        }
    }

    /// Whether a message of a list was not judged, because judging ended at a limit.
    pub(super) fn is_unjudged(&self, message: &InboundMessage, journey: &Journey) -> bool {
        let Some(ahead) = self.ahead.as_ref().filter(|ahead| ahead.stopped_by.is_some()) else {
            return false;
        };
        !is_for_later(message, ahead.now)
            && !ahead.selections.contains_key(&MessageKey::of(&message.content, journey))
    }

    /// Whether a due scheduled message was not judged, because judging ended at a limit.
    pub(super) fn is_due_unjudged(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.stopped_by.is_some())
    }

    fn judge_command(&mut self, ticket: Ticket, command: &Command, ctx: &mut Ctx<'_>) -> bool {
        let subject = Subject::Command(ticket);
        if let Command::OfTopic(TopicCommand::InSubscription {
            subscription,
            command: RuleCommand::Explain(message),
        }) = command
        {
            let rules = self.matcher.rules(*subscription).take(ctx.limits.list_count_max).count();
            return self.explain_ahead(subject, (*subscription, rules), message, ctx);
        }
        if let Command::OfTopic(TopicCommand::CreateSubscription { rules, .. }) = command {
            return self.judge_rules_ahead(subject, rules, ctx);
        }
        let bytes = property_bytes(command, ctx.now);
        let weighed = self.matcher.predicted_steps(bytes);
        let steps = if bytes == 0 { 0 } else { weighed.saturating_add(view_steps_of(command)) };
        if steps <= SLICE_STEPS {
            self.ahead = None;
            // Each byte that a rule sets takes two steps.
            self.set_bytes = if self.matcher.action_count() > 0 { weighed / 2 } else { 0 };
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(subject, ctx.now);
        let is_over = self.judge_all(&mut ahead, command, ctx);
        self.keep(ahead);
        is_over
    }

    /// Keeps the results until the next call.
    fn keep(&mut self, mut ahead: Box<JudgedAhead>) {
        self.judged_steps += std::mem::take(&mut ahead.taken);
        self.ahead = Some(ahead);
    }

    /// Continues the judging of `subject`, or begins it.
    fn begin(&mut self, subject: Subject, now: Timestamp) -> Box<JudgedAhead> {
        match self.ahead.take() {
            Some(ahead) if ahead.subject == subject => ahead,
            Some(_) | None => Box::new(JudgedAhead {
                subject,
                selections: BTreeMap::new(),
                count: 0,
                judging: RuleEvaluation::default(),
                staged: StagedCopies::default(),
                stopped_by: None,
                taken: 0,
                steps: 0,
                explained: Vec::new(),
                rules: Ok(Vec::new()),
                now,
                sequence: self.last_sequence.next(),
            }),
        }
    }

    fn judge_all(&self, ahead: &mut JudgedAhead, command: &Command, ctx: &mut Ctx<'_>) -> bool {
        let mut steps = SLICE_STEPS;
        if ahead.stopped_by.is_some() {
            return true;
        }
        // Skipping the judged messages takes little time compared with a slice.
        for incoming in messages_of(command).skip(ahead.count) {
            let Some(next) = self.next(incoming, ahead.now) else {
                ahead.count += 1;
                continue;
            };
            if ahead.is_too_much(ctx) {
                ahead.stopped_by = Some(StopReason::Broker);
                return true;
            }
            if steps == 0 || !self.judge_one(ahead, &next, &mut steps, ctx) {
                return false;
            }
            ahead.count += 1;
            if next.is_new {
                ahead.sequence = ahead.sequence.next();
            }
            ahead.stopped_by = match ahead.staged.exceeded_limit(ctx.limits) {
                Some(exceeded) => Some(StopReason::Step(exceeded)),
                None => ahead.is_long_list(command, ctx.limits).then_some(StopReason::List),
            };
            if ahead.stopped_by.is_some() {
                return true;
            }
        }
        true
    }

    fn judge_one(
        &self,
        ahead: &mut JudgedAhead,
        next: &NextMessage<'_>,
        steps: &mut u64,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let published = self.published(next.content, &next.journey, ahead.sequence, ahead.now);
        let message =
            EvaluatedMessage { content: next.content, published: &published, limits: ctx.limits };
        let before = ahead.judging.steps();
        let is_over = self.matcher.advance(&mut ahead.judging, &message, *steps, &mut *ctx.tokens);
        let judged = ahead.judging.steps() - before;
        // Reading the message takes time in every slice, but counts only once for the message.
        let viewed = view_steps(next.content, next.journey.set_bytes());
        let taken = judged + if before == 0 { viewed } else { 0 };
        ahead.taken += taken;
        ahead.steps = ahead.steps.saturating_add(taken);
        *steps = steps.saturating_sub(judged.saturating_add(viewed));
        if is_over {
            let selection = std::mem::take(&mut ahead.judging).into_selection();
            ahead.staged = ahead.staged.and(StagedCopies::of(&selection, &next.journey));
            ahead.selections.insert(MessageKey::of(next.content, &next.journey), selection);
        }
        is_over
    }

    /// Returns the message to judge; `None` if no rule sees it.
    fn next<'c>(&self, incoming: JudgedMessage<'c>, now: Timestamp) -> Option<NextMessage<'c>> {
        let message = incoming.message();
        if is_for_later(message, now) || incoming.is_for_one() {
            return None;
        }
        let journey = match incoming {
            JudgedMessage::Sent(_) => Journey::default(),
            JudgedMessage::Arrived(arrival) => journey_of(arrival),
            JudgedMessage::FromPeer(arrival) => journey_of_peer(arrival),
        };
        let is_new = self.find_duplicate(message.envelope.message_id_hash, now).is_none();
        Some(NextMessage { content: &message.content, journey, is_new })
    }

    fn judge_loaded(&mut self, from: SequenceNumber, content: &Bytes, ctx: &mut Ctx<'_>) -> bool {
        let Ok(content) = Content::parse(content.clone()) else { return true };
        let steps = self.matcher.predicted_steps(u64::from(content.header_size()));
        if steps <= SLICE_STEPS {
            self.ahead = None;
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(Subject::Scheduled(from), ctx.now);
        if ahead.is_too_much(ctx) {
            ahead.stopped_by = Some(StopReason::Broker);
            self.ahead = Some(ahead);
            return true;
        }
        let Some(journey) = self.journey_of_scheduled(from) else { return true };
        let next = NextMessage { content: &content, journey, is_new: true };
        let is_over = self.judge_one(&mut ahead, &next, &mut { SLICE_STEPS }, ctx);
        self.keep(ahead);
        is_over
    }

    /// Compiles the rules of a new subscription in slices, if there are many. Ends at the first
    /// invalid rule, or at the limit of bytes.
    fn judge_rules_ahead(
        &mut self,
        subject: Subject,
        descriptions: &[RuleDescription],
        ctx: &Ctx<'_>,
    ) -> bool {
        if descriptions.len() <= SLICE_RULES
            || intake::refuse_too_many_rules(descriptions.len(), ctx).is_err()
        {
            self.ahead = None;
            return true;
        }
        let mut ahead = self.begin(subject, ctx.now);
        let mut is_over = true;
        if let Ok(mut rules) = std::mem::replace(&mut ahead.rules, Ok(Vec::new())) {
            let next = descriptions.iter().skip(rules.len()).take(SLICE_RULES).cloned();
            let next = next.map(|rule| RuleDescription { created_at: ahead.now, ..rule });
            let judged =
                next.map(|rule| Rule::create(rule, ctx.limits)).collect::<Result<Vec<_>, _>>();
            ahead.rules = judged.and_then(|judged| {
                rules.extend(judged);
                let bytes = rules.iter().map(Rule::memory_bytes).sum();
                intake::refuse_descriptions(bytes, 0, ctx)?;
                is_over = rules.len() >= descriptions.len();
                Ok(rules)
            });
        }
        self.ahead = Some(ahead);
        is_over
    }

    /// Explains rules in slices, if they are slow. No rule is explained if the message does not
    /// reach the subscription.
    fn explain_ahead(
        &mut self,
        subject: Subject,
        (subscription, count): (EntityId, usize),
        message: &InboundMessage,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let steps = self.matcher.predicted_steps(u64::from(message.content.header_size()));
        if steps <= SLICE_STEPS {
            self.ahead = None;
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(subject, ctx.now);
        let mut left = SLICE_STEPS;
        // Whether a catch-all is evaluated depends on all other rules of the topic (TOP-30).
        if self.is_catch_all(subscription) && ahead.selections.is_empty() {
            let next = NextMessage {
                content: &message.content,
                journey: Journey::default(),
                is_new: true,
            };
            if !self.judge_one(&mut ahead, &next, &mut left, ctx) {
                self.keep(ahead);
                return false;
            }
        }
        if ahead.selections.values().any(|selection| selection.selected_by.is_some()) {
            self.keep(ahead);
            return true;
        }
        let journey = Journey::default();
        let published = self.published(&message.content, &journey, ahead.sequence, ahead.now);
        let mut steps = SLICE_STEPS - left;
        let rules = self.matcher.rules(subscription).skip(ahead.explained.len());
        for rule in rules.take(count - ahead.explained.len().min(count)) {
            let (explained, taken) = rule.explain_counted(&published, ctx.limits, &mut *ctx.tokens);
            ahead.explained.push(explained);
            ahead.taken += taken;
            steps += taken;
            if steps > SLICE_STEPS {
                break;
            }
        }
        let is_over = ahead.explained.len() >= count;
        drop(published);
        self.keep(ahead);
        is_over
    }
}

impl<'c> JudgedMessage<'c> {
    /// Bytes of the overlays on the message.
    fn set_bytes(self) -> u64 {
        match self {
            Self::Arrived(arrival) => {
                arrival.overlays.iter().map(|overlay| u64::from(overlay.size_bytes())).sum()
            }
            Self::Sent(_) | Self::FromPeer(_) => 0,
        }
    }

    /// Whether a job sends the message to one subscription, without its rules.
    const fn is_for_one(self) -> bool {
        match self {
            Self::Arrived(arrival) => arrival.is_for_one(),
            Self::Sent(_) | Self::FromPeer(_) => false,
        }
    }

    const fn message(self) -> &'c InboundMessage {
        match self {
            Self::Sent(message) => message,
            Self::Arrived(arrival) => &arrival.message,
            Self::FromPeer(arrival) => &arrival.message,
        }
    }
}

/// Bytes of properties that the rules may have to read.
fn property_bytes(command: &Command, now: Timestamp) -> u64 {
    let bytes = |incoming: JudgedMessage<'_>| {
        let message = incoming.message();
        match is_for_later(message, now) || incoming.is_for_one() {
            true => 0,
            // Each message starts again with all rules.
            false => u64::from(message.envelope.header_size) + 1_024,
        }
    };
    messages_of(command).map(bytes).sum()
}

/// Steps to read a message with `set_bytes` bytes of overlays.
fn view_steps(content: &Content, set_bytes: u64) -> u64 {
    let own = u64::from(content.header_size());
    match set_bytes {
        0 => own,
        _ => CHANGED_STEPS_PER_BYTE.saturating_mul(own.saturating_add(set_bytes)),
    }
}

/// Steps to read the messages of a command that have overlays. The property bytes of the others
/// count already.
fn view_steps_of(command: &Command) -> u64 {
    let steps = messages_of(command).map(|incoming| match incoming.set_bytes() {
        0 => 0,
        set_bytes => view_steps(&incoming.message().content, set_bytes),
    });
    steps.fold(0, u64::saturating_add)
}

/// Iterates over the messages of a command that are published, in their order.
fn messages_of(command: &Command) -> impl Iterator<Item = JudgedMessage<'_>> {
    let mut sent: &[InboundMessage] = &[];
    let mut parts: &[Part] = &[];
    let mut arrived: &[Arrival] = &[];
    let mut of_peers: &[PeerArrival] = &[];
    match CommandKind::of(command) {
        CommandKind::Publish(messages) => sent = messages,
        CommandKind::Check(operation) => sent = published_by(operation),
        CommandKind::Commit(all) => parts = all,
        CommandKind::Arrivals(messages) => arrived = messages,
        CommandKind::PeerArrivals(messages) => of_peers = messages,
        CommandKind::Cancel(_)
        | CommandKind::Act(_)
        | CommandKind::SendVia(_)
        | CommandKind::ListRules { .. }
        | CommandKind::Inspect(_)
        | CommandKind::SingleStep
        | CommandKind::Outbox => {}
    }
    let of_parts = parts.iter().filter(|part| is_published(part));
    let of_parts = of_parts.flat_map(|part| part.operation.messages());
    let sent = sent.iter().chain(of_parts).map(JudgedMessage::Sent);
    let arrived = arrived.iter().map(JudgedMessage::Arrived);
    sent.chain(arrived).chain(of_peers.iter().map(JudgedMessage::FromPeer))
}

/// Returns the messages of an operation that are published.
const fn published_by(operation: &Operation) -> &[InboundMessage] {
    match operation {
        Operation::Send { .. } | Operation::SendBatch { .. } => operation.messages(),
        Operation::SendVia { .. }
        | Operation::Settle { .. }
        | Operation::RenewLock { .. }
        | Operation::CancelScheduled { .. }
        | Operation::SetSessionState { .. } => &[],
    }
}

/// Whether a message is scheduled, so that no rule sees it now.
fn is_for_later(message: &InboundMessage, now: Timestamp) -> bool {
    message.envelope.scheduled_enqueue_time.is_some_and(|at| at > now)
}

/// Identity of a message in a command, for its rules: the address of its content, which is constant
/// while the command waits, and its journey. Copies of a publish share their content, and differ
/// in the properties set by rules.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MessageKey {
    content: (usize, usize),
    first: SequenceNumber,
    changes: Option<Bytes>,
}

impl MessageKey {
    fn of(content: &Content, journey: &Journey) -> Self {
        let bytes = content.as_bytes();
        Self {
            content: (bytes.as_ptr().addr(), bytes.len()),
            first: journey.first,
            changes: journey.changes.as_ref().map(|changes| changes.as_bytes().clone()),
        }
    }

    fn set_bytes(&self) -> u64 {
        self.changes.as_ref().map_or(0, |changes| changes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Overlay};

    fn journey(first: u64, changes: Option<Overlay>) -> Journey {
        Journey { first: SequenceNumber(first), changes, ..Journey::default() }
    }

    fn set(text: &str) -> Option<Overlay> {
        Some(Overlay::encode(&[("p".to_owned(), text.into())]).unwrap())
    }

    /// Results of judging ahead are found by content, first number and overlays of a message.
    /// Copies that share their content are distinguished by the other two, which rules can see
    /// (SQL-09).
    #[test]
    fn judged_messages_are_distinguished_by_content_number_and_overlays() {
        let content = Message::new("x").encode();
        let other = Message::new("x").encode();
        let all = [
            MessageKey::of(&content, &journey(0, None)),
            MessageKey::of(&content, &journey(7, None)),
            MessageKey::of(&content, &journey(8, None)),
            MessageKey::of(&content, &journey(7, set("a"))),
            MessageKey::of(&content, &journey(7, set("b"))),
            // Equal bytes at another address are another message.
            MessageKey::of(&other, &journey(7, set("a"))),
        ];
        for (place, key) in all.iter().enumerate() {
            for (other_place, other) in all.iter().enumerate() {
                assert_eq!(key == other, place == other_place, "{place} and {other_place}");
                assert_eq!(key.cmp(other).is_eq(), place == other_place, "{place}, {other_place}");
            }
        }
    }

    /// The same message is found in any holder of its bytes, with any fields that its rules do not
    /// see.
    #[test]
    fn judged_message_is_found_again_in_another_holder() {
        let content = Message::new("x").encode();
        let found = MessageKey::of(&content, &journey(7, set("a")));
        let journey = Journey { hops: 3, copies_spent: 9, ..journey(7, set("a")) };
        assert!(found == MessageKey::of(&content.clone(), &journey));
    }
}
