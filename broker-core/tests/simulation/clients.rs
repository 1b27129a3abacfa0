//! Clients that send any command at any time, including ones that must be refused.

mod sessions;

use peeklock_core::command::{
    Command, Drain, LinkEnd, LockGrant, Outcome, ReceiveMode, ReceivedMessage, Settlement,
};
use peeklock_core::description::{EntityStatus, QueueDescription};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::limits::Limits;
use peeklock_core::message::{Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::request::Released;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{Operation, Part};
use peeklock_store_testing::Random;

pub use self::sessions::name;
use self::sessions::{Hold, draw};

pub const DUPLICATE_KEY: [u8; 16] = *b"simulator key 16";

/// The client's knowledge of a message that it sends.
#[derive(Clone, Debug)]
pub struct Sent {
    pub marker: u64,
    pub message_id: Option<u64>,
    pub time_to_live: Option<TimeSpan>,
    pub scheduled_at: Option<Timestamp>,
    /// Session id, for a queue that requires sessions.
    pub session: Option<u64>,
}

/// A drawn command.
pub struct DrawnCommand {
    pub sub_queue: SubQueue,
    pub command: Command,
    pub sent: Vec<Sent>,
}

/// Clients' memory of an entity, including outdated facts.
#[derive(Default)]
struct Memory {
    locks: Vec<(SubQueue, LockToken)>,
    deferred: Vec<(SubQueue, SequenceNumber)>,
    scheduled: Vec<SequenceNumber>,
    links: Vec<Link>,
    holders: Vec<ReceiverId>,
    holds: Vec<Hold>,
    calls: Vec<Ticket>,
}

struct Link {
    receiver: ReceiverId,
    delivery_limit: u64,
    byte_limit: u64,
}

pub struct Clients {
    memories: Vec<Memory>,
    edge: Edge,
    next_marker: u64,
    next_receiver: u64,
    /// One message of this many is large.
    pub large_one_in: u64,
}

const REMEMBERED_MAX: usize = 40;

impl Clients {
    pub fn new(seed: u64, limits: &Limits, entity_count: usize) -> Self {
        let entropy = Entropy::with_key([seed.to_le_bytes()[0]; 16]);
        Self {
            memories: (0..entity_count).map(|_| Memory::default()).collect(),
            edge: Edge::new(entropy, limits, DUPLICATE_KEY),
            next_marker: 1,
            next_receiver: 1,
            large_one_in: 12,
        }
    }

    /// The broker crashed, or the entity was rebuilt: links are gone.
    pub fn lose_links(&mut self, entity: usize) {
        self.memories[entity].links.clear();
        self.memories[entity].holds.clear();
        self.memories[entity].calls.clear();
    }

    /// The entity was deleted.
    pub fn forget(&mut self, entity: usize) {
        self.memories[entity] = Memory::default();
    }

    pub fn remember_call(&mut self, entity: usize, ticket: Ticket) {
        push(&mut self.memories[entity].calls, ticket);
    }

    /// Records an output of the broker.
    pub fn note_output(&mut self, entity: usize, sub_queue: SubQueue, released: &Released) {
        self.note_session_output(entity, released);
        match released {
            Released::Answer { result: Ok(Outcome::Received(messages)), .. } => {
                for message in messages {
                    self.remember(entity, sub_queue, message);
                }
            }
            Released::Answer { result: Ok(Outcome::Accepted(sequence)), .. } => {
                push(&mut self.memories[entity].scheduled, *sequence);
            }
            Released::Delivery { message, .. } => {
                self.remember(entity, message.facts.sub_queue, message);
            }
            Released::Detached { receiver, .. } | Released::Closed { receiver, .. } => {
                self.memories[entity].links.retain(|link| link.receiver != *receiver);
            }
            Released::Answer { .. } => {}
        }
    }

    fn remember(&mut self, entity: usize, sub_queue: SubQueue, message: &ReceivedMessage) {
        if let Some(LockGrant { token, .. }) = message.facts.lock {
            push(&mut self.memories[entity].locks, (sub_queue, token));
        }
    }

    /// Draws a command for an entity.
    pub fn ask(
        &mut self,
        entity: usize,
        description: &QueueDescription,
        now: Timestamp,
        random: &mut Random,
    ) -> DrawnCommand {
        if description.requires_session {
            return self.ask_by_session(entity, description, now, random);
        }
        let sub_queue = match random.below(10) {
            0..=7 => SubQueue::Main,
            8 => SubQueue::DeadLetter,
            _ => SubQueue::TransferDeadLetter,
        };
        let sub_queue = if random.one_in(6) { SubQueue::DeadLetter } else { sub_queue };
        let mut sent = Vec::new();
        let main = SubQueue::Main;
        let (sub_queue, command) = match random.below(100) {
            0..=17 => {
                let (message, note) = self.message(description, now, random);
                sent.push(note);
                let to = if random.one_in(60) { sub_queue } else { main };
                (to, Command::Send { message })
            }
            18..=24 => {
                let mut messages = Vec::new();
                for _ in 0..random.between(1, 5) {
                    let (message, note) = self.message(description, now, random);
                    sent.push(note);
                    messages.push(message);
                }
                (main, Command::SendBatch { messages })
            }
            25..=43 => (sub_queue, self.receive(entity, random)),
            44..=66 => self.settle(entity, random),
            67..=70 => {
                let (of, token) = self.lock(entity, random);
                (of, Command::RenewLock { token })
            }
            71..=77 => self.link(entity, sub_queue, random),
            78..=83 => {
                let Memory { deferred, .. } = &self.memories[entity];
                let (of, first) = random
                    .pick(deferred)
                    .copied()
                    .unwrap_or((main, SequenceNumber(random.between(1, 20))));
                let mut sequences = vec![first];
                sequences.extend(
                    deferred
                        .iter()
                        .filter(|(at, next)| *at == of && *next != first)
                        .map(|one| one.1),
                );
                sequences.truncate(random.index(3) + 1);
                let (mode, holder) = (mode(random), self.holder(entity, random));
                match random.below(5) {
                    0 => (of, Command::DeleteDeferred { sequence: first }),
                    _ => (of, Command::ReceiveDeferred { mode, sequences, holder }),
                }
            }
            84..=86 => {
                let sequence = random.pick(&self.memories[entity].scheduled).copied();
                let sequence = sequence.unwrap_or(SequenceNumber(random.between(1, 9)));
                (main, Command::CancelScheduled { sequences: vec![sequence] })
            }
            87..=89 => {
                let from = SequenceNumber(random.below(30));
                (sub_queue, Command::Peek { from, count_max: 20 })
            }
            90 => {
                let count_max = u32::try_from(random.between(1, 3)).unwrap_or(1);
                (sub_queue, Command::DeleteBatch { count_max, enqueued_before: None })
            }
            91..=93 => {
                let call = random.pick(&self.memories[entity].calls).copied();
                (main, Command::CancelReceive { call: call.unwrap_or(Ticket(1)) })
            }
            94 => (main, self.update(description, random)),
            95..=97 => (main, self.commit(entity, (description, now), &mut sent, random)),
            98 => {
                let (of, command) = self.settle(entity, random);
                match Operation::of(command) {
                    Ok(operation) => (of, Command::Check { operation }),
                    Err(_) => (main, Command::Describe),
                }
            }
            _ => (main, Command::Describe),
        };
        DrawnCommand { sub_queue, command, sent }
    }

    fn message(
        &mut self,
        description: &QueueDescription,
        now: Timestamp,
        random: &mut Random,
    ) -> (peeklock_core::command::InboundMessage, Sent) {
        let marker = self.next_marker;
        self.next_marker += 1;
        let mut message = Message::new(marker.to_string());
        let message_id = description.requires_duplicate_detection.then(|| random.below(40));
        if let Some(id) = message_id {
            message.message_id = Some(format!("id {id}").as_str().into());
        }
        let time_to_live = random
            .one_in(8)
            .then(|| TimeSpan::from_ms(i64::try_from(random.between(300, 20_000)).unwrap_or(300)));
        message.time_to_live = time_to_live;
        let scheduled_at = random.one_in(9).then(|| {
            now.plus(TimeSpan::from_ms(i64::try_from(random.between(10, 20_000)).unwrap_or(10)))
        });
        message.scheduled_enqueue_time = scheduled_at;
        let session = description.requires_session.then(|| draw(random));
        message.session_id = session.map(name);
        let mut message = self.edge.take(message);
        if random.one_in(self.large_one_in) {
            // Counted and not stored, so that quotas are reached with little memory.
            message.envelope.size += u32::try_from(random.between(50_000, 200_000)).unwrap_or(0);
        }
        (message, Sent { marker, message_id, time_to_live, scheduled_at, session })
    }

    fn receive(&mut self, entity: usize, random: &mut Random) -> Command {
        let wait = match random.below(4) {
            0 | 1 => 0,
            2 => random.between(1, 2_000),
            _ => random.between(2_000, 60_000),
        };
        Command::Receive {
            mode: mode(random),
            count_max: u32::try_from(random.between(1, 6)).unwrap_or(1),
            bytes_max: if random.one_in(4) { 150 } else { 1 << 20 },
            wait: TimeSpan::from_ms(i64::try_from(wait).unwrap_or(0)),
            holder: self.holder(entity, random),
        }
    }

    fn holder(&mut self, entity: usize, random: &mut Random) -> Option<ReceiverId> {
        if random.one_in(2) {
            return None;
        }
        if let Some(holder) = random.pick(&self.memories[entity].holders)
            && !random.one_in(4)
        {
            return Some(*holder);
        }
        let holder = self.fresh_receiver();
        push(&mut self.memories[entity].holders, holder);
        Some(holder)
    }

    fn fresh_receiver(&mut self) -> ReceiverId {
        let receiver = ReceiverId(self.next_receiver);
        self.next_receiver += 1;
        receiver
    }

    /// A lock, usually a recent one, sometimes one that never existed.
    fn lock(&self, entity: usize, random: &mut Random) -> (SubQueue, LockToken) {
        let locks = &self.memories[entity].locks;
        let recent = &locks[locks.len().saturating_sub(6)..];
        let known = if random.one_in(4) { random.pick(locks) } else { random.pick(recent) };
        match known {
            Some(known) if !random.one_in(40) => *known,
            _ => (SubQueue::Main, LockToken::new(SequenceNumber(random.between(1, 30)), 7)),
        }
    }

    fn settle(&mut self, entity: usize, random: &mut Random) -> (SubQueue, Command) {
        let (of, token) = self.lock(entity, random);
        let properties = random.one_in(4).then(|| {
            Overlay::encode(&[("p".to_owned(), Value::String("q".repeat(random.index(60))))])
                .expect("a small overlay is legal")
        });
        let settlement = match random.below(11) {
            0..=4 => Settlement::Complete,
            5 | 6 => {
                let delay = i64::try_from(random.below(20_000)).unwrap_or(0);
                let delay = random.one_in(2).then(|| TimeSpan::from_ms(delay));
                Settlement::Abandon { properties, delay }
            }
            7 => {
                push(&mut self.memories[entity].deferred, (of, token.sequence()));
                Settlement::Defer { properties }
            }
            8 => Settlement::Release,
            _ => Settlement::DeadLetter { properties },
        };
        let of = if random.one_in(50) { SubQueue::DeadLetter } else { of };
        (of, Command::Settle { token, settlement })
    }

    /// A transaction: some settlements and some sends in any order, also with ended locks.
    fn commit(
        &mut self,
        entity: usize,
        (description, now): (&QueueDescription, Timestamp),
        sent: &mut Vec<Sent>,
        random: &mut Random,
    ) -> Command {
        let mut parts = Vec::new();
        for _ in 0..random.between(1, 4) {
            let (sub_queue, command) = if random.one_in(2) {
                let (message, note) = self.message(description, now, random);
                sent.push(note);
                (SubQueue::Main, Command::Send { message })
            } else {
                self.settle(entity, random)
            };
            // A release cannot be part of a transaction.
            if let Ok(operation) = Operation::of(command) {
                parts.push(Part { member: None, sub_queue, operation, numbers: Vec::new() });
            }
        }
        Command::Commit { parts }
    }

    fn link(
        &mut self,
        entity: usize,
        sub_queue: SubQueue,
        random: &mut Random,
    ) -> (SubQueue, Command) {
        let links = &mut self.memories[entity].links;
        let place = random.index(links.len());
        let detaches = links.len() >= 4 || random.one_in(6);
        if !links.is_empty() && detaches {
            let receiver = links.remove(place).receiver;
            return (sub_queue, Command::Detach { receiver, end: link_end(random) });
        }
        if random.one_in(12)
            && let Some(holder) = random.pick(&self.memories[entity].holders)
        {
            return (sub_queue, Command::Detach { receiver: *holder, end: link_end(random) });
        }
        let links = &mut self.memories[entity].links;
        if links.is_empty() || random.one_in(4) {
            let receiver = self.fresh_receiver();
            let link = Link { receiver, delivery_limit: 0, byte_limit: 0 };
            push(&mut self.memories[entity].links, link);
            return (sub_queue, Command::Attach { receiver, mode: mode(random) });
        }
        let link = &mut links[place];
        link.delivery_limit += random.below(8);
        link.byte_limit += random.below(3_000);
        let drain = if random.one_in(3) { Drain::Yes } else { Drain::No };
        let command = Command::SetCredit {
            receiver: link.receiver,
            delivery_limit: link.delivery_limit,
            byte_limit: link.byte_limit,
            drain,
        };
        (sub_queue, command)
    }

    fn update(&mut self, current: &QueueDescription, random: &mut Random) -> Command {
        let mut description = current.clone();
        description.status = match random.below(8) {
            0 => EntityStatus::Disabled,
            1 => EntityStatus::SendDisabled,
            2 => EntityStatus::ReceiveDisabled,
            _ => EntityStatus::Active,
        };
        let seconds = i64::try_from(random.between(1, 30)).unwrap_or(1);
        description.lock_duration = TimeSpan::from_seconds(seconds);
        description.max_delivery_count = u32::try_from(random.between(1, 6)).unwrap_or(1);
        Command::Update { description: Box::new(description), read_at: None }
    }
}

fn mode(random: &mut Random) -> ReceiveMode {
    if random.one_in(5) { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock }
}

fn link_end(random: &mut Random) -> LinkEnd {
    match random.below(4) {
        0 => LinkEnd::Orderly,
        1 => LinkEnd::Broken,
        2 => LinkEnd::Lost,
        _ => LinkEnd::ByBroker,
    }
}

fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == REMEMBERED_MAX {
        list.remove(0);
    }
    list.push(item);
}
