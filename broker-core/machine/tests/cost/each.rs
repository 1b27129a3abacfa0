//! Every kind of command, over queues and topics with messages: the predicted cost matches the
//! operations and bytes, and a command without a reservation stores little.

mod drawn;
mod via;

use std::collections::BTreeMap;

use peeklock_model::change::Change;
use peeklock_model::command::{
    Command, Deed, MessageFacts, OperatorCommand, Outcome, RuleCommand, SessionCommand, Settlement,
    TopicCommand,
};
use peeklock_model::effect::{Answer, Effect};
use peeklock_model::inspect::{Excerpt, Inquiry, LockQuery, SessionQuery};
use peeklock_model::transfer::ListNumber;
use peeklock_record::{ContentOp, Record};
use peeklock_words::description::EntityStatus;
use peeklock_words::ids::LockToken;
use peeklock_words::rule::{Filter, RuleDescription};

use self::drawn::{QUEUE_KINDS, topic_command};
use super::*;

/// Maximum bytes that an operation without a reservation may write in addition to its data: a
/// changed record.
const RECORD_BYTES_MAX: u64 = 1_024;
/// Maximum number of recent locks and numbers to use; most earlier ones are gone.
const KNOWN_MAX: usize = 40;
/// Maximum bytes of a rule, or of a description with all texts that a client may write.
const DESCRIPTION_BYTES_MAX: u64 = 16 << 10;

/// Name of a command. The match names every command, so that a new one must be drawn too.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Send { .. } => "Send",
        Command::SendBatch { .. } => "SendBatch",
        Command::SendVia { .. } => "SendVia",
        Command::TransferIn { .. } => "TransferIn",
        Command::EndTransfer { .. } => "EndTransfer",
        Command::TransferFromPeer { .. } => "TransferFromPeer",
        Command::CancelScheduled { .. } => "CancelScheduled",
        Command::Receive { .. } => "Receive",
        Command::CancelReceive { .. } => "CancelReceive",
        Command::ReceiveDeferred { .. } => "ReceiveDeferred",
        Command::Attach { .. } => "Attach",
        Command::SetCredit { .. } => "SetCredit",
        Command::Detach { .. } => "Detach",
        Command::Settle { .. } => "Settle",
        Command::RenewLock { .. } => "RenewLock",
        Command::Peek { .. } => "Peek",
        Command::AcceptSession { .. } => "AcceptSession",
        Command::InSession { command, .. } => match command {
            SessionCommand::Attach => "InSession Attach",
            SessionCommand::Receive { .. } => "InSession Receive",
            SessionCommand::ReceiveDeferred { .. } => "InSession ReceiveDeferred",
            SessionCommand::Renew => "InSession Renew",
            SessionCommand::GetState => "InSession GetState",
            SessionCommand::SetState { .. } => "InSession SetState",
            SessionCommand::DeleteBatch { .. } => "InSession DeleteBatch",
        },
        Command::PeekSession { .. } => "PeekSession",
        Command::ListSessions { .. } => "ListSessions",
        Command::DeleteBatchUnlocked { .. } => "DeleteBatchUnlocked",
        Command::DeleteBatch { .. } => "DeleteBatch",
        Command::DeleteDeferred { .. } => "DeleteDeferred",
        Command::Update { .. } => "Update",
        Command::Check { .. } => "Check",
        Command::Commit { .. } => "Commit",
        Command::UpdateSubscription { .. } => "UpdateSubscription",
        Command::OfTopic(command) => match command {
            TopicCommand::Update { .. } => "Topic Update",
            TopicCommand::CreateSubscription { .. } => "CreateSubscription",
            TopicCommand::RemoveSubscription { .. } => "RemoveSubscription",
            TopicCommand::InSubscription { command, .. } => match command {
                RuleCommand::Create(_) => "Rule Create",
                RuleCommand::Update(_) => "Rule Update",
                RuleCommand::Delete(_) => "Rule Delete",
                RuleCommand::Get(_) => "Rule Get",
                RuleCommand::List { .. } => "Rule List",
                RuleCommand::Explain(_) => "Rule Explain",
            },
        },
        Command::OfOperator(command) => match command {
            OperatorCommand::BreakLocks { .. } => "BreakLocks",
            OperatorCommand::BreakSession { .. } => "BreakSession",
            OperatorCommand::SetSessionState { .. } => "SetSessionState",
            OperatorCommand::Act(_) => "Act",
            OperatorCommand::ForgetJob(_) => "ForgetJob",
        },
        Command::Inspect(_) => "Inspect",
        Command::Describe => "Describe",
    }
}

const NAMES: [&str; 49] = [
    "Send",
    "SendBatch",
    "SendVia",
    "TransferIn",
    "EndTransfer",
    "TransferFromPeer",
    "CancelScheduled",
    "Receive",
    "CancelReceive",
    "ReceiveDeferred",
    "Attach",
    "SetCredit",
    "Detach",
    "Settle",
    "RenewLock",
    "Peek",
    "AcceptSession",
    "InSession Attach",
    "InSession Receive",
    "InSession ReceiveDeferred",
    "InSession Renew",
    "InSession GetState",
    "InSession SetState",
    "InSession DeleteBatch",
    "PeekSession",
    "ListSessions",
    "DeleteBatchUnlocked",
    "DeleteBatch",
    "DeleteDeferred",
    "Update",
    "Check",
    "Commit",
    "UpdateSubscription",
    "Topic Update",
    "CreateSubscription",
    "RemoveSubscription",
    "Rule Create",
    "Rule Update",
    "Rule Delete",
    "Rule Get",
    "Rule List",
    "Rule Explain",
    "BreakLocks",
    "BreakSession",
    "SetSessionState",
    "Act",
    "ForgetJob",
    "Inspect",
    "Describe",
];

/// Number of operations of a command, and bytes of its messages, properties and states, computed
/// independently.
fn counted(command: &Command) -> (u64, u64) {
    let message = |message: &InboundMessage| message.content.as_bytes().len() as u64;
    let overlay = |settlement: &Settlement| match settlement {
        Settlement::Abandon { properties: Some(overlay), delay: _ }
        | Settlement::Defer { properties: Some(overlay) }
        | Settlement::DeadLetter { properties: Some(overlay) } => overlay.as_bytes().len() as u64,
        _ => 0,
    };
    let operation = |operation: &Operation| match operation {
        Operation::Send { message: one } => (1, message(one)),
        Operation::SendBatch { messages } | Operation::SendVia { messages, .. } => {
            (messages.len() as u64, messages.iter().map(message).sum())
        }
        Operation::Settle { settlement, .. } => (1, overlay(settlement)),
        Operation::RenewLock { .. } => (1, 0),
        Operation::CancelScheduled { sequences } => {
            (sequences.len() as u64, 8 * sequences.len() as u64)
        }
        Operation::SetSessionState { state, .. } => {
            (1, state.as_ref().map_or(0, |state| state.len() as u64))
        }
    };
    // The filters of these rules select everything.
    let rule = |rule: &RuleDescription| {
        assert_eq!((&rule.filter, &rule.action), (&Filter::True, &None));
        // In addition to the allocations of the rule.
        rule.name.len() as u64 + 96
    };
    let (count, bytes) = match command {
        Command::Send { message: one } => (1, message(one)),
        Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
            (messages.len() as u64, messages.iter().map(message).sum())
        }
        // Memory for the facts of each message that may be shown.
        Command::Peek { count_max, .. } | Command::PeekSession { count_max, .. } => {
            (1, 384 * u64::from(*count_max).min(250))
        }
        // Memory for each row, for the facts of messages too.
        Command::Inspect(Inquiry::Heads(query)) => (1, 640 * u64::from(query.count_max)),
        Command::Inspect(Inquiry::Locks(LockQuery { count_max, .. }))
        | Command::Inspect(Inquiry::Sessions(SessionQuery { count_max, .. })) => {
            (1, 256 * u64::from(*count_max))
        }
        Command::Inspect(Inquiry::Timeline(query)) => (1, 8 * u64::from(query.slot_count)),
        Command::TransferIn { messages, .. } => {
            (messages.len() as u64, messages.iter().map(|it| message(&it.message)).sum())
        }
        Command::TransferFromPeer { messages, .. } => {
            (messages.len() as u64, messages.iter().map(|it| message(&it.message)).sum())
        }
        Command::EndTransfer { departures, .. } => (departures.len() as u64, 0),
        Command::CancelScheduled { sequences }
        | Command::ReceiveDeferred { sequences, .. }
        | Command::InSession { command: SessionCommand::ReceiveDeferred { sequences }, .. }
        | Command::OfOperator(OperatorCommand::BreakLocks { sequences, .. }) => {
            (sequences.len() as u64, 0)
        }
        // Memory for each result, and the texts of the deed once.
        Command::OfOperator(OperatorCommand::Act(act)) => {
            let texts = match &act.deed {
                Deed::DeadLetter { reason, description } => {
                    reason.iter().chain(description).map(|text| text.len() as u64).sum()
                }
                Deed::Resubmit { edit, .. } | Deed::Move { edit, .. } => {
                    edit.as_ref().map_or(0, |edit| {
                        let body = edit.body.as_ref().map_or(0, |body| body.as_bytes().len());
                        (edit.changes.as_bytes().len() + body) as u64
                    })
                }
                Deed::Delete
                | Deed::Undefer
                | Deed::Reschedule(_)
                | Deed::PutBack(_)
                | Deed::Export(_) => 0,
            };
            let count = act.sequences.len() as u64;
            let kept = act.kept.iter().flat_map(|kept| kept.values());
            let kept: u64 = kept.map(|record| 16 + record.len() as u64).sum();
            (count, 16 * count + texts + kept)
        }
        Command::Settle { settlement, .. } => (1, overlay(settlement)),
        Command::Check { operation: one } => (1, operation(one).1),
        Command::Commit { parts } => parts
            .iter()
            .map(|part| operation(&part.operation))
            .fold((0, 0), |(count, bytes), (more, of)| (count + more, bytes + of)),
        Command::InSession { command: SessionCommand::SetState { state }, .. }
        | Command::OfOperator(OperatorCommand::SetSessionState { state, .. }) => {
            (1, state.as_ref().map_or(0, |state| state.len() as u64))
        }
        Command::OfTopic(TopicCommand::CreateSubscription { rules, .. }) => {
            (rules.len() as u64, rules.iter().map(rule).sum())
        }
        Command::OfTopic(TopicCommand::InSubscription {
            command: RuleCommand::Create(one) | RuleCommand::Update(one),
            ..
        }) => (1, rule(one)),
        Command::OfTopic(TopicCommand::InSubscription {
            command: RuleCommand::Explain(one),
            ..
        }) => (1, message(one)),
        _ => (1, 0),
    };
    (count.max(1), bytes)
}

/// A machine, and the known facts about its content.
struct World<'a, M> {
    machine: M,
    limits: &'a Limits,
    tickets: u64,
    locks: Vec<LockToken>,
    /// Number of locks taken.
    locked: u64,
    /// Numbers of messages, removed ones included.
    numbers: Vec<SequenceNumber>,
    /// Numbers of deferred messages.
    deferred: Vec<SequenceNumber>,
    lists: Vec<(ListNumber, usize)>,
    /// Number of times that each command was carried out, and refused.
    done: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, String>,
    /// The largest number of steps of a command.
    most_steps: u64,
    /// Number of overlays on shown and removed messages.
    set: u64,
}

/// Returns the messages in an answer.
fn shown(answer: &Result<Answer, peeklock_words::error::Rejection>) -> &[MessageFacts] {
    match answer {
        Ok(Answer::Now(Outcome::Received(shown) | Outcome::Peeked(shown), _)) => shown,
        _ => &[],
    }
}

/// Number of steps of the messages in an excerpt.
fn inspected(answer: &Result<Answer, peeklock_words::error::Rejection>) -> u64 {
    match answer {
        Ok(Answer::Now(Outcome::Inspected(excerpt), _)) => match &**excerpt {
            Excerpt::Heads { heads, .. } => {
                heads.iter().map(|head| head.message.work() as u64).sum()
            }
            _ => 0,
        },
        _ => 0,
    }
}

/// Number of overlays on a message that a command delivers outside its answer.
fn set_on_delivered(effect: &Effect) -> u64 {
    let all = match effect {
        Effect::Answer { result: Ok(Outcome::Received(all)), .. } => all.as_slice(),
        Effect::Deliver { facts, .. } => std::slice::from_ref(facts),
        _ => &[],
    };
    all.iter().map(|facts| u64::from(facts.overlay_count)).sum()
}

impl<'a, M: Machine> World<'a, M> {
    fn new(machine: M, limits: &'a Limits) -> Self {
        Self {
            machine,
            limits,
            tickets: 1,
            locks: Vec::new(),
            locked: 0,
            numbers: Vec::new(),
            deferred: Vec::new(),
            lists: Vec::new(),
            done: BTreeMap::new(),
            refused: BTreeMap::new(),
            most_steps: 0,
            set: 0,
        }
    }

    /// Runs a command, and compares its writes with its predicted cost.
    fn ask(&mut self, command: Command) {
        self.ask_in(SubQueue::Main, command);
    }

    /// Runs a command against a sub-queue.
    fn ask_in(&mut self, sub_queue: SubQueue, command: Command) {
        let (cost, name, told) = (command.cost(), name(&command), format!("{command:?}"));
        assert_eq!((cost.count, cost.bytes), counted(&command), "{told}");
        let describes = matches!(
            command,
            Command::Update { .. } | Command::UpdateSubscription { .. } | Command::OfTopic(_)
        );
        // A settlement in a transaction is stored even if the store is full, as outside a
        // transaction; so are the failed deliveries of a detached holder.
        let settled: u64 = match &command {
            Command::Detach { .. } | Command::OfOperator(OperatorCommand::BreakSession { .. }) => {
                RECORD_BYTES_MAX * self.locked
            }
            Command::Commit { parts } => {
                parts.iter().map(|part| settled_bytes(&part.operation)).sum()
            }
            _ => 0,
        };
        let mut step = StepOutput::default();
        let mut token = 0;
        let mut tokens = || {
            token += 1;
            token
        };
        self.tickets += 1;
        let stage = StageNumber(self.tickets);
        let mut ctx = Ctx {
            now: now(),
            stage,
            stored_bytes: 0,
            room: Reserved::Granted,
            remaining: RemainingCapacity::ALL,
            limits: self.limits,
            tokens: &mut tokens,
        };
        let deferred = match &command {
            Command::Settle { token, settlement: Settlement::Defer { .. } } => {
                Some(token.sequence())
            }
            _ => None,
        };
        let steps_max = self.machine.work_of(&command, now(), self.limits);
        let answer =
            self.machine.apply(Ticket(self.tickets), sub_queue, command, &mut ctx, &mut step);
        // As the shell weighs a turn.
        let steps = step.moves.max(step.changes.iter().map(Change::work).sum())
            + shown(&answer).iter().map(|facts| facts.work() as u64).sum::<u64>()
            + inspected(&answer)
            + step.effects.iter().map(set_on_delivered).sum::<u64>();
        assert!(steps <= steps_max, "{steps} steps, not {steps_max}: {told}");
        self.most_steps = self.most_steps.max(steps);
        self.set += shown(&answer).iter().map(|facts| u64::from(facts.overlay_count)).sum::<u64>();
        for change in &step.changes {
            if let Change::Removed { overlay_count, .. } = change {
                self.set += u64::from(*overlay_count);
            }
        }
        if answer.is_ok() {
            self.deferred.extend(deferred);
            self.deferred.drain(..self.deferred.len().saturating_sub(KNOWN_MAX));
        }
        let mut batch = Batch::default();
        for change in &step.changes {
            self.machine.records(change, &mut batch);
        }
        match &answer {
            Ok(_) => *self.done.entry(name).or_default() += 1,
            Err(rejection) => {
                assert!(batch.records().next().is_none(), "{told}: refused, and written");
                self.refused.insert(name, rejection.to_string());
            }
        }
        let written: u64 = batch.records().map(put).sum();
        let allowed = match cost.stored {
            Some(stored) => {
                assert!(batch.bytes() >= written, "{told}");
                stored.bytes + stored.published * self.machine.send_overhead() + settled
            }
            None => {
                let description = if describes { DESCRIPTION_BYTES_MAX } else { 0 };
                cost.bytes + cost.count * RECORD_BYTES_MAX + description + settled
            }
        };
        assert!(written <= allowed, "{written} of {allowed}: {told}");
        self.machine.serve(&mut ctx, &mut step);
        self.machine.committed(stage);
        if let Ok(Answer::Now(outcome, _)) = answer {
            self.note(outcome);
        }
        for effect in step.effects {
            match effect {
                Effect::Answer { result: Ok(outcome), .. } => self.note(outcome),
                Effect::Deliver { facts, .. } => {
                    self.took(&facts);
                }
                Effect::HandOver(list) => self.lists.push((list.list, list.messages.len())),
                _ => {}
            }
        }
    }

    fn took(&mut self, facts: &MessageFacts) {
        let Some(lock) = facts.lock else { return };
        self.numbers.push(facts.sequence);
        self.locked += 1;
        self.locks.push(lock.token);
        self.locks.drain(..self.locks.len().saturating_sub(KNOWN_MAX));
    }

    fn note(&mut self, outcome: peeklock_model::command::MachineOutcome) {
        match outcome {
            Outcome::Received(messages) => {
                for facts in messages {
                    self.took(&facts);
                }
            }
            Outcome::Accepted(sequence) => self.numbers.push(sequence),
            Outcome::AcceptedBatch(sequences) => self.numbers.extend(sequences),
            _ => {}
        }
        self.numbers.drain(..self.numbers.len().saturating_sub(KNOWN_MAX));
    }
}

/// Bytes that a settlement or renewal may store.
fn settled_bytes(operation: &Operation) -> u64 {
    match operation {
        Operation::Settle { settlement, .. } => settlement.bytes() + RECORD_BYTES_MAX,
        Operation::RenewLock { .. } | Operation::CancelScheduled { .. } => RECORD_BYTES_MAX,
        Operation::Send { .. }
        | Operation::SendBatch { .. }
        | Operation::SendVia { .. }
        | Operation::SetSessionState { .. } => 0,
    }
}

/// Bytes that a record stores.
fn put(record: Record<'_>) -> u64 {
    match record {
        Record::Put { key, value, content } => {
            let content = if let ContentOp::New(bytes) = content { bytes.len() } else { 0 };
            (key.len() + value.len() + content) as u64
        }
        Record::Delete { .. } | Record::DeleteIn { .. } | Record::DeletePrefix { .. } => 0,
    }
}

/// DESIGN D6, D11, SET-41: for every kind of command, the cost has its operations and bytes. Moved,
/// shown and removed messages with their overlays are within the predicted steps, and stored bytes
/// within the reservation, or few without one.
#[test]
fn each_command_stays_within_its_predicted_cost() {
    let limits = Limits::default();
    let mut random = Random(0x0123_4567_89ab_cdef);
    let mut done: BTreeMap<&str, u64> = BTreeMap::new();
    let mut refused: BTreeMap<&str, String> = BTreeMap::new();
    let mut set = 0;
    for requires_session in [false, true] {
        let description = QueueDescription {
            requires_session,
            max_size_in_megabytes: 1_024,
            ..QueueDescription::new("orders", &limits)
        };
        let queue = Queue::new(EntityId(1), description.clone(), config(), now());
        let mut world = World::new(queue, &limits);
        if requires_session {
            let mut message = random.message();
            message.content = Message::new("a").with_session_id("s").encode();
            message.envelope = message.content.envelope(&PropertyLimits::default(), &KEY);
            world.ask(Command::Send { message });
            world.ask(Command::AcceptSession {
                session: Some("s".into()),
                receiver: HOLDER,
                mode: ReceiveMode::PeekLock,
                wait: TimeSpan::ZERO,
            });
        }
        for _ in 0..10_000 {
            let kind = random.below(QUEUE_KINDS);
            let command = random.asked(&world, kind);
            world.ask(command);
        }
        // The link of a held session is closed, and opened again.
        let receiver = ReceiverId(90);
        world.ask(Command::AcceptSession {
            session: Some("another".into()),
            receiver,
            mode: ReceiveMode::PeekLock,
            wait: TimeSpan::ZERO,
        });
        for status in [EntityStatus::ReceiveDisabled, EntityStatus::Active] {
            let update = QueueDescription { status, ..description.clone() };
            world.ask(Command::Update { description: Box::new(update), read_at: None });
        }
        world.ask(Command::InSession { receiver, command: SessionCommand::Attach });
        assert!(world.most_steps >= 10, "{} steps at most", world.most_steps);
        set += world.set;
        done.extend(world.done);
        refused.extend(world.refused);
    }
    assert!(set > 100, "properties were set {set} times on what was shown and removed");
    let mut world = World::new(a_topic(&limits), &limits);
    for number in 0..600 {
        let command = topic_command(&mut random, number, &limits);
        world.ask(command);
    }
    for number in 0..100 {
        let kind = [0, 1, 2, 5, 6, 29, 30, 31, 32, 35, 36][number % 11];
        let command = random.asked(&world, kind);
        world.ask(command);
    }
    done.extend(world.done);
    let description = SubscriptionDescription::new("events", "s", &limits);
    let topic = Arc::new(TopicDescription::new("events", &limits));
    let subscription =
        Queue::subscription(EntityId(2), description.clone(), topic, config(), now());
    let mut world = World::new(subscription, &limits);
    world.ask(Command::UpdateSubscription { description: Box::new(description), read_at: None });
    done.extend(world.done);
    for name in NAMES {
        assert!(done.contains_key(name), "{name} was never carried out: {:?}", refused.get(name));
    }
}

fn a_topic(limits: &Limits) -> Topic {
    let description = TopicDescription {
        max_size_in_megabytes: 1_024,
        ..TopicDescription::new("events", limits)
    };
    Topic::new(EntityId(1), description, config(), now())
}
