//! Drives one queue like its owner: lets time pass, applies a command, matches demand, stores the
//! records, and reports them durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::change::Durability;
use peeklock_core::command::{
    Command, Described, InboundMessage, LinkEnd, MachineOutcome, MessageFacts, ReceiveMode,
    SessionCommand, SessionFilter, Settlement, StateFacts,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::effect::{Answer, Effect};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::{Ctx, Machine, RemainingCapacity, StageNumber, StepOutput};
use peeklock_core::message::{Message, PropertyLimits};
use peeklock_core::path::SubQueue;
use peeklock_core::store::{
    Batch, BatchId, Fence, MemoryStore, Reserved, SPACE_BYTES, Shard, Store, Submission,
};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{block_on, visit_records};

const KEY: [u8; 16] = *b"session tests ke";
const ENTITY: EntityId = EntityId(7);

/// Condition of a refusal.
pub type Refused = Condition;

/// A queue under test.
pub struct Stand {
    pub machine: Queue,
    pub limits: Limits,
    pub now: Timestamp,
    /// Whether stages become durable automatically after the command that made them.
    pub commits: bool,
    pub room: Reserved,
    pub stored_bytes: u64,
    /// Links that the entity has closed.
    pub detached: BTreeMap<ReceiverId, Condition>,
    /// Deliveries to links.
    pub delivered: Vec<(ReceiverId, MessageFacts)>,
    answers: BTreeMap<Ticket, Result<MachineOutcome, Rejection>>,
    config: QueueConfig,
    store: MemoryStore,
    fence: Fence,
    next_batch: BatchId,
    stage: StageNumber,
    pending: Vec<(StageNumber, Batch, u64)>,
    next_ticket: u64,
    random: u64,
}

/// A description that requires sessions, with a lock of 30 s.
pub fn sessionful() -> QueueDescription {
    QueueDescription {
        requires_session: true,
        lock_duration: TimeSpan::from_seconds(30),
        ..QueueDescription::new("orders", &Limits::of(Tier::Premium))
    }
}

/// A message of a session.
pub fn message(session: &str) -> Message {
    Message { session_id: Some(session.into()), ..Message::default() }
}

pub fn seconds(seconds: i64) -> TimeSpan {
    TimeSpan::from_seconds(seconds)
}

impl Stand {
    pub fn new() -> Self {
        Self::of(sessionful(), true)
    }

    pub fn of(description: QueueDescription, expire_whole_sessions: bool) -> Self {
        let store = MemoryStore::new(1, u64::MAX);
        let (fence, next_batch) = block_on(store.acquire(Shard(0))).unwrap();
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions,
            duplicate_key: KEY,
            forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
        };
        let machine = Queue::new(ENTITY, description, config, now);
        let mut stand = Self {
            machine,
            limits: Limits::of(Tier::Premium),
            now,
            commits: true,
            room: Reserved::Granted,
            stored_bytes: 0,
            detached: BTreeMap::new(),
            delivered: Vec::new(),
            answers: BTreeMap::new(),
            config,
            store,
            fence,
            next_batch,
            stage: StageNumber(1),
            pending: Vec::new(),
            next_ticket: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        let mut creation = Batch::default();
        stand.machine.write_creation(&mut creation);
        stand.submit(creation);
        stand
    }

    fn submit(&mut self, batch: Batch) {
        let submission =
            Submission { id: self.next_batch, fences: vec![self.fence], batch: Arc::new(batch) };
        self.next_batch = BatchId(self.next_batch.0 + 1);
        self.store.submit(submission, Box::new(|result| result.unwrap()));
    }

    /// Runs one unit of the machine and adds its changes to the open stage.
    fn step<T>(&mut self, run: impl FnOnce(&mut Queue, &mut Ctx<'_>, &mut StepOutput) -> T) -> T {
        let mut step = StepOutput::default();
        let random = &mut self.random;
        let mut tokens = || {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            *random
        };
        let mut ctx = Ctx {
            now: self.now,
            stage: self.stage,
            stored_bytes: self.stored_bytes,
            room: self.room,
            remaining: RemainingCapacity::ALL,
            limits: &self.limits,
            tokens: &mut tokens,
        };
        let result = run(&mut self.machine, &mut ctx, &mut step);
        self.stored_bytes += step.bytes_added;
        let mut batch = Batch::default();
        for change in &step.changes {
            self.machine.records(change, &mut batch);
        }
        let durability = step.durability.max(self.machine.checkpoint(self.now, &mut batch));
        assert!(step.changes.is_empty() || durability.is_some());
        if durability == Some(Durability::Sync) {
            batch.require_sync();
        }
        if !batch.is_empty() {
            self.pending.push((self.stage, batch, step.bytes_freed));
            self.stage = StageNumber(self.stage.0 + 1);
        }
        for effect in step.effects {
            match effect {
                Effect::Answer { ticket, result, .. } => {
                    assert!(self.answers.insert(ticket, result).is_none(), "answered twice");
                }
                Effect::Deliver { receiver, facts, .. } => self.delivered.push((receiver, facts)),
                Effect::Detached { receiver, reason } => {
                    self.detached.insert(receiver, reason.condition());
                }
                Effect::SessionEnded { .. }
                | Effect::IdleElapsed
                | Effect::Load { .. }
                | Effect::HandOver(_) => {}
            }
        }
        self.machine.check_invariants().unwrap();
        result
    }

    /// Makes the oldest stage durable without reporting it.
    pub fn store_one(&mut self) {
        let (_, batch, _) = self.pending.remove(0);
        self.submit(batch);
    }

    /// Makes everything durable and matches demand again, until nothing more follows.
    pub fn commit(&mut self) {
        while let Some((last, ..)) = self.pending.last() {
            let last = *last;
            for (_, batch, freed) in std::mem::take(&mut self.pending) {
                self.submit(batch);
                self.stored_bytes -= freed;
            }
            self.machine.committed(last);
            self.step(|machine, ctx, step| machine.serve(ctx, step));
        }
    }

    /// Lets time pass, and processes due events.
    pub fn wait(&mut self, span: TimeSpan) {
        self.now = self.now.plus(span);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            self.step(|machine, ctx, step| {
                machine.advance(ctx, step);
                machine.serve(ctx, step);
            });
            if self.commits {
                self.commit();
            }
            if self.machine.next_deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
    }

    /// Sends a command, whose answer may come later.
    pub fn ask(&mut self, sub_queue: SubQueue, command: Command) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.step(|machine, ctx, step| machine.advance(ctx, step));
        let answer = self.step(|machine, ctx, step| {
            let answer = machine.apply(ticket, sub_queue, command, ctx, step);
            assert!(answer.is_ok() || step.changes.is_empty(), "a rejection changed something");
            answer
        });
        match answer {
            Ok(Answer::Now(outcome, _)) => {
                self.answers.insert(ticket, Ok(outcome));
            }
            Ok(Answer::Later) => {}
            Err(rejection) => {
                self.answers.insert(ticket, Err(rejection));
            }
        }
        self.step(|machine, ctx, step| machine.serve(ctx, step));
        if self.commits {
            self.commit();
        }
        ticket
    }

    /// The answer, if it has arrived.
    pub fn answer(&mut self, ticket: Ticket) -> Option<Result<MachineOutcome, Refused>> {
        let answer = self.answers.remove(&ticket)?;
        Some(answer.map_err(|rejection| rejection.condition()))
    }

    pub fn on(&mut self, sub_queue: SubQueue, command: Command) -> Result<MachineOutcome, Refused> {
        let ticket = self.ask(sub_queue, command);
        self.answer(ticket).expect("the command is answered at once")
    }

    pub fn main(&mut self, command: Command) -> Result<MachineOutcome, Refused> {
        self.on(SubQueue::Main, command)
    }

    pub fn inbound(message: Message) -> InboundMessage {
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        InboundMessage { content, envelope }
    }

    pub fn try_send(&mut self, message: Message) -> Result<u64, Refused> {
        match self.main(Command::Send { message: Self::inbound(message) })? {
            MachineOutcome::Accepted(sequence) => Ok(sequence.0),
            other => panic!("a send was answered with {other:?}"),
        }
    }

    pub fn send(&mut self, session: &str) -> u64 {
        self.try_send(message(session)).unwrap()
    }

    pub fn send_with_ttl(&mut self, session: &str, time_to_live: TimeSpan) -> u64 {
        let message = Message { time_to_live: Some(time_to_live), ..message(session) };
        self.try_send(message).unwrap()
    }

    fn accept_command(session: Option<&str>, receiver: u64, wait: TimeSpan) -> Command {
        Command::AcceptSession {
            session: session.map(Box::from),
            receiver: ReceiverId(receiver),
            mode: ReceiveMode::PeekLock,
            wait,
        }
    }

    /// Accepts the given session or the next available one. Returns its id.
    pub fn accept(&mut self, session: Option<&str>, receiver: u64) -> Result<String, Refused> {
        let outcome = self.main(Self::accept_command(session, receiver, TimeSpan::ZERO));
        accepted(outcome, receiver)
    }

    /// A call that waits for a session.
    pub fn accept_later(&mut self, receiver: u64, wait: TimeSpan) -> Ticket {
        self.ask(SubQueue::Main, Self::accept_command(None, receiver, wait))
    }

    /// The answer to such a call, if it has arrived.
    pub fn accepted(&mut self, ticket: Ticket, receiver: u64) -> Option<Result<String, Refused>> {
        self.answer(ticket).map(|outcome| accepted(outcome, receiver))
    }

    pub fn close(&mut self, receiver: u64, end: LinkEnd) {
        let command = Command::Detach { receiver: ReceiverId(receiver), end };
        self.main(command).unwrap();
    }

    pub fn in_session(
        &mut self,
        receiver: u64,
        command: SessionCommand,
    ) -> Result<MachineOutcome, Refused> {
        self.main(Command::InSession { receiver: ReceiverId(receiver), command })
    }

    /// Receives up to `count` available messages.
    pub fn receive(&mut self, receiver: u64, count: u32) -> Result<Vec<MessageFacts>, Refused> {
        let wait = TimeSpan::ZERO;
        let command = SessionCommand::Receive { count_max: count, bytes_max: u64::MAX, wait };
        match self.in_session(receiver, command)? {
            MachineOutcome::Received(messages) => Ok(messages),
            other => panic!("a receive was answered with {other:?}"),
        }
    }

    /// Sequence numbers of the received messages.
    pub fn numbers(&mut self, receiver: u64, count: u32) -> Vec<u64> {
        self.receive(receiver, count).unwrap().iter().map(|facts| facts.sequence.0).collect()
    }

    pub fn settle_with(&mut self, token: LockToken, settlement: Settlement) -> Result<(), Refused> {
        self.main(Command::Settle { token, settlement }).map(|_| ())
    }

    pub fn complete(&mut self, facts: &MessageFacts) -> Result<(), Refused> {
        self.settle_with(facts.lock.unwrap().token, Settlement::Complete)
    }

    pub fn abandon(&mut self, facts: &MessageFacts) -> Result<(), Refused> {
        self.settle_with(
            facts.lock.unwrap().token,
            Settlement::Abandon { properties: None, delay: None },
        )
    }

    pub fn abandon_with_delay(
        &mut self,
        facts: &MessageFacts,
        delay: TimeSpan,
    ) -> Result<(), Refused> {
        let settlement = Settlement::Abandon { properties: None, delay: Some(delay) };
        self.settle_with(facts.lock.unwrap().token, settlement)
    }

    pub fn renew(&mut self, receiver: u64) -> Result<Timestamp, Refused> {
        match self.in_session(receiver, SessionCommand::Renew)? {
            MachineOutcome::Renewed(until) => Ok(until),
            other => panic!("a renewal was answered with {other:?}"),
        }
    }

    pub fn set_state(&mut self, receiver: u64, state: Option<&[u8]>) -> Result<(), Refused> {
        let state = state.map(Bytes::copy_from_slice);
        self.in_session(receiver, SessionCommand::SetState { state }).map(|_| ())
    }

    /// The state as its holder reads it, from the store if the answer refers to it.
    pub fn state(&mut self, receiver: u64) -> Result<Option<Vec<u8>>, Refused> {
        match self.in_session(receiver, SessionCommand::GetState)? {
            MachineOutcome::SessionState(None) => Ok(None),
            MachineOutcome::SessionState(Some(StateFacts::Fresh(bytes))) => {
                Ok(Some(bytes.to_vec()))
            }
            MachineOutcome::SessionState(Some(StateFacts::Stored(key))) => {
                let mut contents = Vec::new();
                self.store.pin(&[key], &mut contents);
                let content = contents.remove(0).expect("the store has the state");
                Ok(Some(content.loaded().expect("a store in memory").to_vec()))
            }
            other => panic!("a read of a state was answered with {other:?}"),
        }
    }

    pub fn sessions(&mut self, which: SessionFilter) -> Vec<String> {
        match self.main(Command::ListSessions { which, after: None, skip: 0, top: u32::MAX }) {
            Ok(MachineOutcome::Sessions(names)) => names.iter().map(ToString::to_string).collect(),
            other => panic!("a list was answered with {other:?}"),
        }
    }

    pub fn peek(&mut self, sub_queue: SubQueue) -> Vec<MessageFacts> {
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        match self.on(sub_queue, command) {
            Ok(MachineOutcome::Peeked(messages)) => messages,
            other => panic!("a peek was answered with {other:?}"),
        }
    }

    /// Sequence numbers of the messages in a sub-queue.
    pub fn peeked(&mut self, sub_queue: SubQueue) -> Vec<u64> {
        self.peek(sub_queue).iter().map(|facts| facts.sequence.0).collect()
    }

    pub fn describe(&mut self) -> Described {
        match self.main(Command::Describe) {
            Ok(MachineOutcome::Described(described)) => *described,
            other => panic!("a describe was answered with {other:?}"),
        }
    }

    /// Crashes the process: changes that are not durable are lost, and the rest is read back.
    pub fn crash(&mut self) {
        let blank = QueueDescription::new("blank", &self.limits);
        let mut machine = Queue::new(ENTITY, blank, self.config, self.now);
        let key = machine.content_key(SequenceNumber(1));
        visit_records(&self.store, &key.cut(SPACE_BYTES), |key, value| {
            machine.restore(key, value).unwrap();
        })
        .unwrap();
        machine.restored(self.now);
        machine.check_invariants().unwrap();
        self.stored_bytes = machine.size_bytes();
        self.machine = machine;
        self.pending.clear();
        self.answers.clear();
        (self.fence, self.next_batch) = block_on(self.store.acquire(Shard(0))).unwrap();
    }
}

fn accepted(outcome: Result<MachineOutcome, Refused>, expected: u64) -> Result<String, Refused> {
    match outcome? {
        MachineOutcome::SessionAccepted { session, receiver, .. } => {
            assert_eq!(receiver, ReceiverId(expected));
            Ok(session.to_string())
        }
        other => panic!("an accept was answered with {other:?}"),
    }
}
