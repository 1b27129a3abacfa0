//! Judging ahead: what rules make of the messages of a command is found out before the command is applied,
//! in slices, in which the other entities of the arbiter have their turn.
//!
//! ```text
//!  command ──► little work? ──yes──────────────────────────────► applied, judged on the way
//!                  │ no                                              ▲
//!                  └─► a slice ──► a slice ──► ... ──► all judged ───┘  takes what was found
//!                          └── the shell takes no other command ──┘
//! ```
//!
//! It alters nothing, and nothing comes in between, so the command is still one atomic step, and in its
//! order. What was found is forgotten with the next command that is judged.
//!
//! What is found stays in memory until then. So it ends where it is more than one step may store, or where all topics
//! together have found as much as they may: what is sent is refused then, of a list from elsewhere the rest comes
//! again. So it does where a list from another entity takes longer than a publish may: the broker has its contents in
//! memory meanwhile, in room that others want (decision 34).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Topic;
use super::copies::{Beyond, Staged, staged_bytes};
use super::peer::journey_of_peer;
use super::publish::Journey;
use super::steps::Asked;
use super::transaction::is_published;
use super::transfer::journey_of;
use crate::command::{Command, InboundMessage, PeerArrival, RuleCommand, TopicCommand};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber, Ticket};
use crate::intake::Intake as _;
use crate::limits::Limits;
use crate::message::Content;
use crate::rule::{Explanation, Judged, Judging, Rule, RuleDescription, Selection};
use crate::time::Timestamp;
use crate::transaction::{Operation, Part};
use crate::transfer::Arrival;
use crate::{Ahead, Ctx, intake};

/// A slice takes about a millisecond.
const SLICE_STEPS: u64 = 1 << 20;
/// So many rules of a new subscription are judged in one slice; each takes some ten microseconds.
const SLICE_RULES: usize = 64;
/// What it takes for each byte to see a message with what was set on it since: properties of both are looked up.
const CHANGED_STEPS_PER_BYTE: u64 = 8;
/// So much is found for one command whatever all topics together have found.
const ALWAYS_KEPT_BYTES: u64 = 64 << 10;

/// What is judged ahead.
pub(super) struct JudgedAhead {
    whose: Whose,
    selections: BTreeMap<Known, Selection>,
    /// How many messages are judged, and the next one.
    count: usize,
    judging: Judging,
    /// What was found so far.
    staged: Staged,
    cut_short: Option<CutShort>,
    /// Steps that were taken since this was asked, and all of them.
    taken: u64,
    steps: u64,
    explained: Vec<Explanation>,
    /// The rules of a subscription that is to be created, or what is wrong with one of them.
    rules: Result<Vec<Rule>, Rejection>,
    /// The instant and the number that rules see.
    now: Timestamp,
    sequence: SequenceNumber,
}

/// A command, or a message that was scheduled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Command(Ticket),
    Scheduled(SequenceNumber),
}

/// Why the rest of a command is not judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CutShort {
    /// It is more than one step may store.
    Step(Beyond),
    /// All topics together have found as much as they may.
    Broker,
    /// It is a list from another entity, and has taken as long as a publish may.
    List,
}

/// A message of a command that rules may see.
#[derive(Clone, Copy)]
enum Coming<'c> {
    /// From a client.
    Sent(&'c InboundMessage),
    /// From another entity.
    Arrived(&'c Arrival),
    /// From another broker.
    FromPeer(&'c PeerArrival),
}

/// A message of what is judged, with what it has behind it.
struct Next<'c> {
    content: &'c Content,
    journey: Journey,
    is_new: bool,
}

impl JudgedAhead {
    /// What the copies need in the store beside the contents.
    pub(super) fn staged_bytes(&self, may_be_in_sessions: bool) -> u64 {
        let found = self.selections.iter();
        found
            .map(|(known, selection)| {
                staged_bytes(selection, known.set_bytes(), may_be_in_sessions)
            })
            .sum()
    }

    /// What it takes in memory.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.staged.bytes().saturating_add(self.judging.changed_bytes())
    }

    /// Whether it is a list from another entity that has taken more than a publish may.
    const fn is_long_list(&self, command: &Command, limits: &Limits) -> bool {
        matches!(command, Command::TransferIn { .. }) && self.steps > limits.publish_step_count_max
    }

    /// Whether it may take no more, since all topics together have found as much as they may.
    fn is_too_much(&self, ctx: &Ctx<'_>) -> bool {
        ctx.left.judged_bytes == 0 && self.kept_bytes() > ALWAYS_KEPT_BYTES
    }
}

impl Topic {
    /// Whether that takes more than a slice.
    pub(super) fn is_long_to_judge(&self, ahead: Ahead<'_>, now: Timestamp) -> bool {
        let (bytes, viewed) = match ahead {
            Ahead::Command { command, .. } => {
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
            Ahead::Loaded { content, .. } => Content::parse(content.clone())
                .map_or((0, 0), |content| (u64::from(content.header_size()), 0)),
        };
        bytes > 0 && self.matcher.steps_of(bytes).saturating_add(viewed) > SLICE_STEPS
    }

    /// Goes on with what a command or a due message needs to have judged, for one slice; returns whether it
    /// can be carried out now.
    pub(super) fn judge_ahead(&mut self, ahead: Ahead<'_>, ctx: &mut Ctx<'_>) -> bool {
        match ahead {
            Ahead::Command { ticket, command } => self.judge_command(ticket, command, ctx),
            Ahead::Loaded { sequence, content } => self.judge_loaded(sequence, content, ctx),
        }
    }

    /// What was found out about a message that is to be published now.
    pub(super) fn found_ahead(&self, content: &Content, journey: &Journey) -> Option<Selection> {
        let ahead = self.ahead.as_ref()?;
        ahead.selections.get(&Known::of(content, journey)).cloned()
    }

    /// What was found out about the rules that an explanation is asked of.
    pub(super) fn explained_ahead(&mut self, ticket: Ticket) -> Option<Vec<Explanation>> {
        let ahead = self.ahead.take_if(|ahead| ahead.whose == Whose::Command(ticket))?;
        Some(ahead.explained).filter(|explained| !explained.is_empty())
    }

    /// What was found out about the rules of a subscription that is to be created.
    pub(super) fn rules_ahead(&mut self, ticket: Ticket) -> Option<Result<Vec<Rule>, Rejection>> {
        let ahead = self.ahead.take_if(|ahead| ahead.whose == Whose::Command(ticket))?;
        Some(ahead.rules)
    }

    /// Refuses what was not judged to its end.
    pub(super) fn refuse_cut_short(&self, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        match self.ahead.as_ref().and_then(|ahead| ahead.cut_short) {
            // What somebody sends is no list from another entity.
            None | Some(CutShort::List) => Ok(()),
            Some(CutShort::Step(beyond)) => Err(beyond.refusal(ctx.limits)),
            Some(CutShort::Broker) => Err(Rejection::too_much_judged(ctx.limits)),
        }
    }

    /// Whether a message of a list was not judged, because the list was not judged to its end.
    pub(super) fn is_left_out(&self, message: &InboundMessage, journey: &Journey) -> bool {
        let Some(ahead) = self.ahead.as_ref().filter(|ahead| ahead.cut_short.is_some()) else {
            return false;
        };
        !is_for_later(message, ahead.now)
            && !ahead.selections.contains_key(&Known::of(&message.content, journey))
    }

    /// Whether a scheduled message that is due was not judged.
    pub(super) fn is_due_left_out(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.cut_short.is_some())
    }

    fn judge_command(&mut self, ticket: Ticket, command: &Command, ctx: &mut Ctx<'_>) -> bool {
        let whose = Whose::Command(ticket);
        if let Command::OfTopic(TopicCommand::InSubscription {
            subscription,
            command: RuleCommand::Explain(message),
        }) = command
        {
            let rules = self.matcher.rules(*subscription).take(ctx.limits.list_count_max).count();
            return self.explain_ahead(whose, (*subscription, rules), message, ctx);
        }
        if let Command::OfTopic(TopicCommand::CreateSubscription { rules, .. }) = command {
            return self.judge_rules_ahead(whose, rules, ctx);
        }
        let bytes = property_bytes(command, ctx.now);
        let weighed = self.matcher.steps_of(bytes);
        let steps = if bytes == 0 { 0 } else { weighed.saturating_add(view_steps_of(command)) };
        if steps <= SLICE_STEPS {
            self.ahead = None;
            // A byte that a rule sets takes two steps.
            self.set_bytes = if self.matcher.action_count() > 0 { weighed / 2 } else { 0 };
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(whose, ctx.now);
        let is_over = self.judge_all(&mut ahead, command, ctx);
        self.keep(ahead);
        is_over
    }

    /// Keeps what was found until it is asked for again.
    fn keep(&mut self, mut ahead: Box<JudgedAhead>) {
        self.judged_steps += std::mem::take(&mut ahead.taken);
        self.ahead = Some(ahead);
    }

    /// Goes on with what is judged for somebody, or begins it.
    fn begin(&mut self, whose: Whose, now: Timestamp) -> Box<JudgedAhead> {
        match self.ahead.take() {
            Some(ahead) if ahead.whose == whose => ahead,
            Some(_) | None => Box::new(JudgedAhead {
                whose,
                selections: BTreeMap::new(),
                count: 0,
                judging: Judging::default(),
                staged: Staged::default(),
                cut_short: None,
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
        if ahead.cut_short.is_some() {
            return true;
        }
        // Those of before are passed over, which is nothing beside a slice.
        for coming in messages_of(command).skip(ahead.count) {
            let Some(next) = self.next(coming, ahead.now) else {
                ahead.count += 1;
                continue;
            };
            if ahead.is_too_much(ctx) {
                ahead.cut_short = Some(CutShort::Broker);
                return true;
            }
            if steps == 0 || !self.judge_one(ahead, &next, &mut steps, ctx) {
                return false;
            }
            ahead.count += 1;
            if next.is_new {
                ahead.sequence = ahead.sequence.next();
            }
            ahead.cut_short = match ahead.staged.beyond(ctx.limits) {
                Some(beyond) => Some(CutShort::Step(beyond)),
                None => ahead.is_long_list(command, ctx.limits).then_some(CutShort::List),
            };
            if ahead.cut_short.is_some() {
                return true;
            }
        }
        true
    }

    fn judge_one(
        &self,
        ahead: &mut JudgedAhead,
        next: &Next<'_>,
        steps: &mut u64,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let published = self.published(next.content, &next.journey, ahead.sequence, ahead.now);
        let message = Judged { content: next.content, published: &published, limits: ctx.limits };
        let before = ahead.judging.steps();
        let is_over = self.matcher.go_on(&mut ahead.judging, &message, *steps, &mut *ctx.tokens);
        let judged = ahead.judging.steps() - before;
        // To see the message takes its time in each slice, of those behind it; for the message it counts once.
        let viewed = view_steps(next.content, next.journey.set_bytes());
        let taken = judged + if before == 0 { viewed } else { 0 };
        ahead.taken += taken;
        ahead.steps = ahead.steps.saturating_add(taken);
        *steps = steps.saturating_sub(judged.saturating_add(viewed));
        if is_over {
            let selection = std::mem::take(&mut ahead.judging).into_selection();
            ahead.staged = ahead.staged.and(Staged::of(&selection, &next.journey));
            ahead.selections.insert(Known::of(next.content, &next.journey), selection);
        }
        is_over
    }

    /// A message that is to be judged; none if no rule sees it.
    fn next<'c>(&self, coming: Coming<'c>, now: Timestamp) -> Option<Next<'c>> {
        let message = coming.message();
        if is_for_later(message, now) {
            return None;
        }
        let journey = match coming {
            Coming::Sent(_) => Journey::default(),
            Coming::Arrived(arrival) => journey_of(arrival),
            Coming::FromPeer(arrival) => journey_of_peer(arrival),
        };
        let is_new = self.find_duplicate(message.envelope.message_id_hash, now).is_none();
        Some(Next { content: &message.content, journey, is_new })
    }

    fn judge_loaded(&mut self, from: SequenceNumber, content: &Bytes, ctx: &mut Ctx<'_>) -> bool {
        let Ok(content) = Content::parse(content.clone()) else { return true };
        let steps = self.matcher.steps_of(u64::from(content.header_size()));
        if steps <= SLICE_STEPS {
            self.ahead = None;
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(Whose::Scheduled(from), ctx.now);
        if ahead.is_too_much(ctx) {
            ahead.cut_short = Some(CutShort::Broker);
            self.ahead = Some(ahead);
            return true;
        }
        let Some(journey) = self.journey_of_scheduled(from) else { return true };
        let next = Next { content: &content, journey, is_new: true };
        let is_over = self.judge_one(&mut ahead, &next, &mut { SLICE_STEPS }, ctx);
        self.keep(ahead);
        is_over
    }

    /// Some rules a slice, if there are many. It ends at the first that is wrong, or too much beside the others.
    fn judge_rules_ahead(
        &mut self,
        whose: Whose,
        descriptions: &[RuleDescription],
        ctx: &Ctx<'_>,
    ) -> bool {
        if descriptions.len() <= SLICE_RULES
            || intake::refuse_too_many_rules(descriptions.len(), ctx).is_err()
        {
            self.ahead = None;
            return true;
        }
        let mut ahead = self.begin(whose, ctx.now);
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

    /// One rule a slice, if they are heavy. That is none if the message does not reach them.
    fn explain_ahead(
        &mut self,
        whose: Whose,
        (subscription, count): (EntityId, usize),
        message: &InboundMessage,
        ctx: &mut Ctx<'_>,
    ) -> bool {
        let steps = self.matcher.steps_of(u64::from(message.content.header_size()));
        if steps <= SLICE_STEPS {
            self.ahead = None;
            self.judged_steps += steps;
            return true;
        }
        let mut ahead = self.begin(whose, ctx.now);
        let mut left = SLICE_STEPS;
        // Whether a catch-all is asked rests on all other rules of the topic (TOP-30).
        if self.is_catch_all(subscription) && ahead.selections.is_empty() {
            let next =
                Next { content: &message.content, journey: Journey::default(), is_new: true };
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

impl<'c> Coming<'c> {
    /// The bytes that were set on it since it was sent.
    fn set_bytes(self) -> u64 {
        match self {
            Self::Arrived(arrival) => {
                arrival.overlays.iter().map(|overlay| u64::from(overlay.size_bytes())).sum()
            }
            Self::Sent(_) | Self::FromPeer(_) => 0,
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

/// Bytes of properties that the rules may have to look at.
fn property_bytes(command: &Command, now: Timestamp) -> u64 {
    let bytes = |message: &InboundMessage| match is_for_later(message, now) {
        true => 0,
        // Each begins anew with all rules.
        false => u64::from(message.envelope.header_size) + 1_024,
    };
    messages_of(command).map(|coming| bytes(coming.message())).sum()
}

/// What it takes to see a message on which so many bytes were set.
fn view_steps(content: &Content, set_bytes: u64) -> u64 {
    let own = u64::from(content.header_size());
    match set_bytes {
        0 => own,
        _ => CHANGED_STEPS_PER_BYTE.saturating_mul(own.saturating_add(set_bytes)),
    }
}

/// What it takes to see the messages of a command on which something was set. The others are weighed by their bytes.
fn view_steps_of(command: &Command) -> u64 {
    let steps = messages_of(command).map(|coming| match coming.set_bytes() {
        0 => 0,
        set_bytes => view_steps(&coming.message().content, set_bytes),
    });
    steps.fold(0, u64::saturating_add)
}

/// The messages of a command that are published, in their order.
fn messages_of(command: &Command) -> impl Iterator<Item = Coming<'_>> {
    let mut sent: &[InboundMessage] = &[];
    let mut parts: &[Part] = &[];
    let mut arrived: &[Arrival] = &[];
    let mut of_peers: &[PeerArrival] = &[];
    match Asked::of(command) {
        Asked::Publish(messages) => sent = messages,
        Asked::Check(operation) => sent = published_by(operation),
        Asked::Commit(all) => parts = all,
        Asked::TakeIn(messages) => arrived = messages,
        Asked::TakeFromPeer(messages) => of_peers = messages,
        Asked::Cancel(_)
        | Asked::SendOn(_)
        | Asked::Rules { .. }
        | Asked::Plain
        | Asked::OfOutbox => {}
    }
    let of_parts = parts.iter().filter(|part| is_published(part));
    let of_parts = of_parts.flat_map(|part| part.operation.messages());
    let sent = sent.iter().chain(of_parts).map(Coming::Sent);
    let arrived = arrived.iter().map(Coming::Arrived);
    sent.chain(arrived).chain(of_peers.iter().map(Coming::FromPeer))
}

/// The messages of an operation that are published.
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

/// Whether a message is to be scheduled, so that no rule sees it now.
fn is_for_later(message: &InboundMessage, now: Timestamp) -> bool {
    message.envelope.scheduled_enqueue_time.is_some_and(|at| at > now)
}

/// What tells one message of a command from another, as far as rules see it: where its content lies, which
/// stays there for as long as the command waits, and what it has behind it. Copies of one publish share their
/// content, and differ in what rules have set on them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    content: (usize, usize),
    first: SequenceNumber,
    changes: Option<Bytes>,
}

impl Known {
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

    /// What was judged ahead is found again for a message by its content, its first number and what was set on it.
    /// Copies that share their content are told apart by the other two: rules see both (SQL-09).
    #[test]
    fn messages_that_are_judged_ahead_are_told_apart() {
        let content = Message::new("x").encode();
        let other = Message::new("x").encode();
        let all = [
            Known::of(&content, &journey(0, None)),
            Known::of(&content, &journey(7, None)),
            Known::of(&content, &journey(8, None)),
            Known::of(&content, &journey(7, set("a"))),
            Known::of(&content, &journey(7, set("b"))),
            // Equal bytes elsewhere are another message.
            Known::of(&other, &journey(7, set("a"))),
        ];
        for (place, known) in all.iter().enumerate() {
            for (other_place, other) in all.iter().enumerate() {
                assert_eq!(known == other, place == other_place, "{place} and {other_place}");
                assert_eq!(
                    known.cmp(other).is_eq(),
                    place == other_place,
                    "{place}, {other_place}"
                );
            }
        }
    }

    /// The same message is found, whatever holds its bytes now, and whatever its rules do not see.
    #[test]
    fn the_same_message_is_found_again() {
        let content = Message::new("x").encode();
        let found = Known::of(&content, &journey(7, set("a")));
        let journey = Journey { hops: 3, copies_spent: 9, ..journey(7, set("a")) };
        assert!(found == Known::of(&content.clone(), &journey));
    }
}
