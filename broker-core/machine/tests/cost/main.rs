//! Predicted costs of commands: random commands run against all kinds of queues and against topics,
//! and their bytes and stored records are compared with the prediction.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod each;
mod rules;

use std::sync::Arc;

use bytes::Bytes;
use peeklock_machine::config::{ForwardingConfig, QueueConfig};
use peeklock_machine::queue::Queue;
use peeklock_machine::topic::Topic;
use peeklock_machine::{Ctx, Machine, RemainingCapacity, StageNumber, StepOutput};
use peeklock_model::command::{
    Command, InboundMessage, PeerArrival, ReceiveMode, SessionCommand, TopicCommand,
};
use peeklock_model::transaction::{Operation, Part};
use peeklock_model::transfer::peer::PeerSource;
use peeklock_record::{Batch, Reserved};
use peeklock_words::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_words::ids::{EntityId, ReceiverId, SequenceNumber, Ticket};
use peeklock_words::limits::Limits;
use peeklock_words::message::{Message, PropertyLimits};
use peeklock_words::path::SubQueue;
use peeklock_words::time::{TimeSpan, Timestamp};

const KEY: [u8; 16] = [7; 16];
const HOLDER: ReceiverId = ReceiverId(1);

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns a text of 1 to `chars_max` characters, often of maximum length.
    fn text(&mut self, chars_max: u64) -> String {
        let chars = if self.one_in(2) { chars_max } else { 1 + self.below(chars_max) };
        (0..chars).map(|_| char::from(b'a' + u8::try_from(self.below(26)).unwrap())).collect()
    }

    fn message(&mut self) -> InboundMessage {
        let body = vec![0; usize::try_from(self.below(2_000)).unwrap()];
        let mut message = Message::new(body).with_message_id(self.text(128));
        if self.one_in(2) {
            message = message.with_session_id(self.text(128));
        }
        if self.one_in(2) {
            message = message.with_application_property("p", self.text(300));
        }
        if self.one_in(4) {
            message.scheduled_enqueue_time = Some(now().plus(TimeSpan::from_days(1)));
        }
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        InboundMessage { content, envelope }
    }

    fn messages(&mut self) -> Vec<InboundMessage> {
        (0..1 + self.below(5)).map(|_| self.message()).collect()
    }

    fn arrivals(&mut self) -> Vec<PeerArrival> {
        let arrival = |message: InboundMessage, number: u64| PeerArrival {
            message,
            sequence: SequenceNumber(number),
            enqueued_at: now(),
            enqueued_sequence: SequenceNumber(number),
            hops: 1,
            copies_spent: 0,
            dead_letter_source: None,
        };
        let first = self.below(1 << 40);
        self.messages().into_iter().zip(first..).map(|(one, at)| arrival(one, at)).collect()
    }

    fn command(&mut self) -> Command {
        match self.below(6) {
            0 => Command::Send { message: self.message() },
            1 => Command::SendBatch { messages: self.messages() },
            2 => Command::SendVia {
                destination: Arc::from(self.text(260)),
                messages: self.messages(),
            },
            3 => Command::TransferFromPeer {
                source: PeerSource { broker: 7, entity: EntityId(9), sub_queue: SubQueue::Main },
                messages: self.arrivals(),
            },
            4 => {
                let part = |operation| Part {
                    member: None,
                    sub_queue: SubQueue::Main,
                    operation,
                    numbers: Vec::new(),
                };
                let one = Operation::Send { message: self.message() };
                let more = Operation::SendBatch { messages: self.messages() };
                Command::Commit { parts: vec![part(one), part(more)] }
            }
            _ => {
                let bytes = vec![1; usize::try_from(self.below(3_000)).unwrap()];
                let state = Some(Bytes::from(bytes));
                let command = SessionCommand::SetState { state };
                Command::InSession { receiver: HOLDER, command }
            }
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000)
}

fn config() -> QueueConfig {
    QueueConfig {
        release_on_detach: false,
        release_on_connection_loss: false,
        expire_whole_sessions: true,
        duplicate_key: KEY,
        forwarding: ForwardingConfig::default(),
    }
}

/// Runs a command; returns its records unless it was refused.
fn written(machine: &mut impl Machine, command: Command, limits: &Limits) -> Option<Batch> {
    let mut step = StepOutput::default();
    let mut ctx = Ctx {
        now: now(),
        stage: StageNumber(1),
        stored_bytes: 0,
        room: Reserved::Granted,
        remaining: RemainingCapacity::ALL,
        limits,
        tokens: &mut || 7,
    };
    machine.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step).ok()?;
    let mut batch = Batch::default();
    for change in &step.changes {
        machine.records(change, &mut batch);
    }
    Some(batch)
}

/// Bytes of the contents in a command.
fn brought(command: &Command) -> u64 {
    let of = |message: &InboundMessage| message.content.as_bytes().len() as u64;
    match command {
        Command::Send { message } => of(message),
        Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
            messages.iter().map(of).sum()
        }
        Command::TransferFromPeer { messages, .. } => {
            messages.iter().map(|arrival| of(&arrival.message)).sum()
        }
        Command::Commit { parts } => {
            parts.iter().flat_map(|part| part.operation.messages()).map(of).sum()
        }
        Command::InSession { command: SessionCommand::SetState { state: Some(state) }, .. } => {
            state.len() as u64
        }
        other => panic!("{other:?} is not drawn"),
    }
}

/// Runs random commands against a machine; returns the number carried out, and the largest ratio of
/// stored to reserved bytes.
fn judge(machine: &mut impl Machine, limits: &Limits, random: &mut Random) -> (usize, f64) {
    let (mut carried_out, mut nearest) = (0, 0.0_f64);
    for _ in 0..300 {
        let command = random.command();
        let (cost, told) = (command.cost(), format!("{command:?}"));
        assert_eq!(cost.bytes, brought(&command), "{told}");
        let stored = cost.stored.unwrap();
        let reserved = machine.room_of(stored);
        let Some(batch) = written(machine, command, limits) else { continue };
        assert!(batch.bytes() <= reserved, "{} of {reserved}: {told}", batch.bytes());
        carried_out += 1;
        nearest = nearest.max(batch.bytes() as f64 / reserved as f64);
    }
    (carried_out, nearest)
}

/// DESIGN D6, D11: the cost of a command has its bytes, and a queue stores at most the reserved
/// bytes.
#[test]
fn queue_stores_at_most_the_predicted_bytes() {
    let limits = Limits::default();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for (requires_session, detects) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let description = QueueDescription {
            requires_session,
            requires_duplicate_detection: detects,
            max_size_in_megabytes: 1_024,
            ..QueueDescription::new("orders", &limits)
        };
        let mut queue = Queue::new(EntityId(1), description, config(), now());
        if requires_session {
            let accept = Command::AcceptSession {
                session: Some("s".into()),
                receiver: HOLDER,
                mode: ReceiveMode::PeekLock,
                wait: TimeSpan::ZERO,
            };
            written(&mut queue, accept, &limits).unwrap();
        }
        let (count, nearest) = judge(&mut queue, &limits, &mut random);
        assert!(count > 60, "{count} carried out");
        assert!(nearest > 0.8, "{nearest}: too much is reserved");
    }
}

/// DESIGN D6, D11, TOP-10: the same for a topic, where the copies are part of the prediction for
/// each message.
#[test]
fn topic_stores_at_most_the_predicted_bytes() {
    let limits = Limits::default();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (count, requires_session) in [(0, false), (1, false), (1, true), (20, false), (20, true)] {
        let description = TopicDescription {
            max_size_in_megabytes: 1_024,
            requires_duplicate_detection: requires_session,
            ..TopicDescription::new("events", &limits)
        };
        let mut topic = Topic::new(EntityId(1), description, config(), now());
        for number in 0..count {
            let description = SubscriptionDescription {
                requires_session,
                ..SubscriptionDescription::new("events", number.to_string(), &limits)
            };
            let command = Command::OfTopic(TopicCommand::CreateSubscription {
                id: EntityId(number + 2),
                description: Box::new(description),
                rules: Vec::new(),
            });
            written(&mut topic, command, &limits).unwrap();
        }
        let (carried_out, nearest) = judge(&mut topic, &limits, &mut random);
        assert!(carried_out > 100, "{carried_out} carried out");
        assert!(nearest > 0.6, "{nearest}: too much is reserved");
    }
}
