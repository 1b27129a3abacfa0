//! Drives the real machine like its owner, with a store in memory: lets time pass, applies a list
//! of commands, matches demand, stores the records, and reports them durable. Outputs are converted
//! to the types of the oracle; violations of rules that need no oracle are reported.

#[path = "subject/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_core::change::{Change, DeadLetterCause, Durability, Removal};
use peeklock_core::command::{ActResult, Command, MachineOutcome, MessageFacts};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::effect::{Answer, Effect, Gate};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, LockToken, SequenceNumber, Ticket};
use peeklock_core::limits::Limits;
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::{Ctx, Machine, RemainingCapacity, StageNumber, StepOutput};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::store::{
    Batch, BatchId, Fence, MemoryStore, Reserved, SPACE_BYTES, Shard, Store, Submission,
};
use peeklock_core::time::Timestamp;
use peeklock_core::transfer::{Departure, HandOver, HandedOverMessage};
use peeklock_store_testing::{block_on, visit_records};

use self::words::{report, rests_on_change};
use crate::generator::{Profile, Random};
use crate::operation::{LockName, Report, Request, Seen, Turn};
use crate::oracle::act::destination_of_model;

const DUPLICATE_KEY: [u8; 16] = *b"model test key 1";
/// Ticket of requests of the test itself.
const OWN_TICKET: u64 = u64::MAX;

const ENTITY: EntityId = EntityId(7);
pub const SUB_QUEUES: [SubQueue; 3] =
    [SubQueue::Main, SubQueue::DeadLetter, SubQueue::TransferDeadLetter];

/// Stored data of a message.
struct Read {
    marker: u64,
    set: BTreeMap<String, String>,
    bytes: u32,
}

/// An output of the machine, before contents are read.
enum Output {
    Answer(u64, Result<MachineOutcome, Rejection>),
    Delivery(u64, MessageFacts),
    Detached(u64, Rejection),
    IdleElapsed,
}

/// Changes that are not yet stored.
pub struct Pending {
    pub stage: StageNumber,
    pub changes: Vec<Change>,
    batch: Batch,
    bytes_freed: u64,
}

pub struct Subject {
    pub machine: Queue,
    pub limits: Limits,
    pub now: Timestamp,
    pub full: bool,
    /// Tokens by the names that the oracle gave them.
    pub tokens: BTreeMap<LockName, LockToken>,
    /// Bytes that the broker's own properties added, by message (DLQ-14).
    pub verdicts: BTreeMap<u64, u32>,
    /// Stages that wait for their commit; empty after every turn, unless commits are delayed.
    pub pending: Vec<Pending>,
    config: QueueConfig,
    /// Bytes that are counted and not stored, by marker.
    pretended: BTreeMap<u64, u32>,
    /// Sent messages, by marker.
    sent: BTreeMap<u64, Message>,
    contents: BTreeMap<(u64, u16), Read>,
    store: MemoryStore,
    fence: Fence,
    next_batch: BatchId,
    stage: StageNumber,
    pub stored_bytes: u64,
    random: Random,
    /// Data of the next stage.
    changes: Vec<Change>,
    bytes_freed: u64,
    durability: Option<Durability>,
    outputs: Vec<Output>,
    /// Lists that jobs have handed over.
    lists: Vec<HandOver>,
    /// Empty receives that do not wait for a commit.
    open_and_empty: Vec<u64>,
    /// Every change since the last call, for the book.
    staged: Vec<(StageNumber, Vec<Change>)>,
    locks_seen: Vec<LockToken>,
}

impl Subject {
    pub fn new(profile: &Profile, seed: u64, now: Timestamp) -> Self {
        let store = MemoryStore::new(1, u64::MAX);
        let (fence, next_batch) =
            block_on(store.acquire(Shard(0))).expect("a new store can be owned");
        let config = QueueConfig {
            release_on_detach: profile.release_on_detach,
            release_on_connection_loss: profile.release_on_connection_loss,
            expire_whole_sessions: true,
            duplicate_key: DUPLICATE_KEY,
            forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
        };
        let machine = Queue::new(ENTITY, profile.description.clone(), config, now);
        let mut creation = Batch::default();
        machine.write_creation(&mut creation);
        let mut subject = Self {
            machine,
            limits: profile.limits.clone(),
            now,
            full: false,
            tokens: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            pending: Vec::new(),
            config,
            pretended: BTreeMap::new(),
            sent: BTreeMap::new(),
            contents: BTreeMap::new(),
            store,
            fence,
            next_batch,
            stage: StageNumber(1),
            stored_bytes: 0,
            random: Random::new(seed ^ 0x5ca1_ab1e),
            changes: Vec::new(),
            bytes_freed: 0,
            durability: None,
            outputs: Vec::new(),
            lists: Vec::new(),
            open_and_empty: Vec::new(),
            staged: Vec::new(),
            locks_seen: Vec::new(),
        };
        subject.submit(creation);
        subject
    }

    fn submit(&mut self, batch: Batch) {
        let submission =
            Submission { id: self.next_batch, fences: vec![self.fence], batch: Arc::new(batch) };
        self.next_batch = BatchId(self.next_batch.0 + 1);
        self.store.submit(
            submission,
            Box::new(|result| result.expect("the store in memory takes every batch")),
        );
    }

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.machine.next_deadline()
    }

    /// Runs one step and adds its outputs to the open stage.
    fn step<T>(&mut self, run: impl FnOnce(&mut Queue, &mut Ctx<'_>, &mut StepOutput) -> T) -> T {
        let mut step = StepOutput::default();
        let random = &mut self.random;
        let mut tokens = || random.next();
        let mut ctx = Ctx {
            now: self.now,
            stage: self.stage,
            stored_bytes: self.stored_bytes,
            room: if self.full { Reserved::Full } else { Reserved::Granted },
            remaining: RemainingCapacity::ALL,
            limits: &self.limits,
            tokens: &mut tokens,
        };
        let result = run(&mut self.machine, &mut ctx, &mut step);
        self.stored_bytes += step.bytes_added;
        self.bytes_freed += step.bytes_freed;
        self.stored_bytes -= step.bytes_departed;
        self.durability = self.durability.max(step.durability);
        self.changes.append(&mut step.changes);
        for effect in step.effects {
            self.note(effect);
        }
        result
    }

    fn note(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { ticket, result, gate } => {
                if let Ok(outcome) = &result {
                    check_gate(outcome, gate);
                    if matches!(outcome, MachineOutcome::Received(all) if all.is_empty())
                        && gate == Gate::Open
                    {
                        self.open_and_empty.push(ticket.0);
                    }
                }
                self.outputs.push(Output::Answer(ticket.0, result));
            }
            Effect::Deliver { receiver, facts, gate } => {
                assert!(
                    facts.lock.is_some() || gate == Gate::Commit,
                    "a removed message leaves before its removal is durable (D5): {facts:?}"
                );
                self.outputs.push(Output::Delivery(receiver.0, facts));
            }
            Effect::Detached { receiver, reason } => {
                self.outputs.push(Output::Detached(receiver.0, reason));
            }
            Effect::SessionEnded { .. } => panic!("there are no sessions here"),
            Effect::Load { .. } => panic!("a queue asks for no contents"),
            Effect::HandOver(list) => self.lists.push(*list),
            Effect::IdleElapsed => self.outputs.push(Output::IdleElapsed),
        }
    }

    /// Time passes, a list of commands is applied, and demand is matched. Changes are staged.
    pub fn apply_list(&mut self, now: Timestamp, requests: &[Request]) {
        assert!(now >= self.now, "time goes backwards");
        self.now = now;
        self.step(|machine, ctx, step| machine.advance(ctx, step));
        for request in requests {
            self.apply(request);
        }
        let before = self.changes.len();
        self.serve();
        // An empty answer waits for the moves that it triggered (EXP-34, DESIGN D5).
        let is_moving = self.changes[before..].iter().any(|change| {
            matches!(
                change,
                Change::Removed { reason: Removal::Expired, .. }
                    | Change::DeadLettered { cause: DeadLetterCause::Expired, .. }
            )
        });
        if let [Request { ticket, sub_queue: SubQueue::Main, .. }] = requests {
            assert!(
                !is_moving || !self.open_and_empty.contains(ticket),
                "an empty answer leaves before the moves that it triggered (EXP-34)"
            );
        }
        self.open_and_empty.clear();
        self.stage();
    }

    fn apply(&mut self, request: &Request) {
        let command = self.command(&request.operation);
        let ticket = Ticket(request.ticket);
        let changes_before = self.changes.len();
        let answer = self.step(|machine, ctx, step| {
            machine.apply(ticket, request.sub_queue, command, ctx, step)
        });
        match answer {
            Ok(Answer::Now(outcome, gate)) => {
                check_gate(&outcome, gate);
                assert!(
                    gate == Gate::Commit || !rests_on_change(&request.operation),
                    "this answer leaves before its change is durable (D5): {request:?}"
                );
                self.outputs.push(Output::Answer(request.ticket, Ok(outcome)));
            }
            Ok(Answer::Later) => {}
            Err(rejection) => {
                assert_eq!(
                    self.changes.len(),
                    changes_before,
                    "a rejection has changed something (QUO-03): {request:?} {rejection}"
                );
                self.outputs.push(Output::Answer(request.ticket, Err(rejection)));
            }
        }
    }

    fn serve(&mut self) {
        self.step(|machine, ctx, step| machine.serve(ctx, step));
    }

    /// Moves the gathered data into a stage of its own.
    fn stage(&mut self) {
        self.read_contents();
        let mut batch = Batch::default();
        for change in &self.changes {
            self.machine.records(change, &mut batch);
            if let Change::DeadLettered { sequence, verdict: Some(verdict), .. } = change {
                self.verdicts.insert(sequence.0, verdict.size_bytes());
            }
        }
        let wanted = self.machine.checkpoint(self.now, &mut batch);
        let durability = self.durability.take().max(wanted);
        let is_synced = self.changes.iter().any(|change| {
            !matches!(
                change,
                Change::DeliveryCounted { .. }
                    | Change::IdsForgotten { .. }
                    | Change::Departed { .. }
            )
        });
        assert!(
            !is_synced || durability == Some(Durability::Sync),
            "an answer may rest on these changes, but no sync was asked for (D5): {:?}",
            self.changes
        );
        if durability == Some(Durability::Sync) {
            batch.require_sync();
        }
        self.staged.push((self.stage, self.changes.clone()));
        self.pending.push(Pending {
            stage: self.stage,
            changes: std::mem::take(&mut self.changes),
            batch,
            bytes_freed: std::mem::take(&mut self.bytes_freed),
        });
        self.stage = StageNumber(self.stage.0 + 1);
    }

    /// Makes the oldest stage durable, then matches demand again in a new stage.
    pub fn commit_one(&mut self) -> Pending {
        let mut pending = self.pending.remove(0);
        let batch = std::mem::take(&mut pending.batch);
        if !batch.is_empty() {
            self.submit(batch);
        }
        self.read_contents();
        self.machine.committed(pending.stage);
        self.stored_bytes -= pending.bytes_freed;
        self.serve();
        if !self.changes.is_empty() {
            self.stage();
        }
        while !self.lists.is_empty() {
            self.end_lists();
        }
        pending
    }

    /// Ends the lists of jobs. The destination of the model decides by number; its batch deletes the
    /// records of a message that it takes.
    fn end_lists(&mut self) {
        for list in std::mem::take(&mut self.lists) {
            let (mut departures, mut batch) = (Vec::new(), Batch::default());
            let mut is_full = false;
            for HandedOverMessage { facts, .. } in &list.messages {
                let refused = |condition| {
                    Departure::NotAdmitted(Rejection::new(condition, "decided by the model"))
                };
                departures.push(match destination_of_model(facts.sequence.0) {
                    _ if is_full => Departure::NotTried,
                    ActResult::Done => {
                        batch.delete(&self.machine.content_key(facts.sequence));
                        for index in 0..facts.overlay_count {
                            batch.delete(&self.machine.overlay_key(facts.sequence, index));
                        }
                        Departure::Taken
                    }
                    ActResult::Duplicate => Departure::Duplicate,
                    ActResult::NoSession => refused(Condition::SessionIdIsNull),
                    _ => {
                        is_full = true;
                        refused(Condition::QuotaExceeded)
                    }
                });
            }
            if !batch.is_empty() {
                self.submit(batch);
            }
            let command = Command::EndTransfer { list: list.list, departures };
            let (ticket, main) = (Ticket(OWN_TICKET), SubQueue::Main);
            self.step(|machine, ctx, step| machine.apply(ticket, main, command, ctx, step))
                .expect("the end of a list is never refused");
        }
        self.serve();
        if !self.changes.is_empty() {
            self.stage();
        }
    }

    /// Runs one turn and makes all its consequences durable.
    pub fn turn(&mut self, now: Timestamp, requests: &[Request]) -> Turn {
        self.apply_list(now, requests);
        while !self.pending.is_empty() {
            self.commit_one();
        }
        self.take_outputs()
    }

    /// Changes staged since the last call.
    pub fn take_staged(&mut self) -> Vec<(StageNumber, Vec<Change>)> {
        std::mem::take(&mut self.staged)
    }

    /// A machine built from the durable records (LIF-04).
    pub fn rebuilt(&self, now: Timestamp) -> Queue {
        let blank = QueueDescription::new("blank", &self.limits);
        let mut machine = Queue::new(ENTITY, blank, self.config, now);
        let key = machine.content_key(SequenceNumber(1));
        let mut restored = Ok(());
        visit_records(&self.store, &key.cut(SPACE_BYTES), |key, value| {
            if restored.is_ok() {
                restored = machine.restore(key, value);
            }
        })
        .expect("the store in memory can be read");
        restored.expect("every record can be read");
        machine.restored(now);
        machine
    }

    /// Crashes the process: unstored changes are lost, and the rest is read back.
    pub fn crash(&mut self, now: Timestamp) {
        self.machine = self.rebuilt(now);
        self.now = now;
        self.pending.clear();
        self.outputs.clear();
        self.lists.clear();
        self.staged.clear();
        (self.fence, self.next_batch) =
            block_on(self.store.acquire(Shard(0))).expect("it can be owned");
        self.stored_bytes = self.report().size_bytes;
    }

    /// Description and counts of the live machine.
    pub fn report(&mut self) -> Report {
        let limits = self.limits.clone();
        match ask(&mut self.machine, self.now, &limits, SubQueue::Main, Command::Describe) {
            MachineOutcome::Described(described) => report(*described),
            other => panic!("a describe was answered with {other:?}"),
        }
    }

    /// Description, counts and all messages of a machine built from the durable records. Reading
    /// the live one would count as its use (PEK-09).
    pub fn durable(&self) -> (Report, [Vec<Seen>; 3]) {
        let mut machine = self.rebuilt(self.now);
        let described =
            match ask(&mut machine, self.now, &self.limits, SubQueue::Main, Command::Describe) {
                MachineOutcome::Described(described) => report(*described),
                other => panic!("a describe was answered with {other:?}"),
            };
        let all = SUB_QUEUES.map(|sub_queue| self.look(&mut machine, sub_queue));
        (described, all)
    }

    /// All messages of the live machine, at its end.
    pub fn look_at_live(&mut self) -> [Vec<Seen>; 3] {
        let rebuilt = self.rebuilt(self.now);
        let mut machine = std::mem::replace(&mut self.machine, rebuilt);
        let all = SUB_QUEUES.map(|sub_queue| self.look(&mut machine, sub_queue));
        self.machine = machine;
        all
    }

    fn look(&self, machine: &mut Queue, sub_queue: SubQueue) -> Vec<Seen> {
        let mut limits = self.limits.clone();
        limits.peek_count_max = usize::MAX;
        limits.peek_bytes_max = u64::MAX;
        limits.deferred_bytes_max = u64::MAX;
        let command = Command::Peek { from: SequenceNumber(0), count_max: u32::MAX };
        let MachineOutcome::Peeked(all) = ask(machine, self.now, &limits, sub_queue, command)
        else {
            panic!("a peek was not answered");
        };
        all.iter()
            .map(|facts| {
                assert_eq!(facts.lock, None, "a peek shows a lock (PEK-05)");
                let read = self.read(machine, facts).expect("the content of a message is stored");
                self.shown(facts, &read)
            })
            .collect()
    }
}

/// Sends a request that is no use of the entity, at an instant to which it was advanced.
fn ask(
    machine: &mut Queue,
    now: Timestamp,
    limits: &Limits,
    sub_queue: SubQueue,
    command: Command,
) -> MachineOutcome {
    let mut step = StepOutput::default();
    let mut tokens = || -> u64 { panic!("a question takes no lock") };
    let mut ctx = Ctx {
        now,
        stage: StageNumber(u64::MAX),
        stored_bytes: 0,
        room: Reserved::Granted,
        remaining: RemainingCapacity::ALL,
        limits,
        tokens: &mut tokens,
    };
    let answer = machine.apply(Ticket(OWN_TICKET), sub_queue, command, &mut ctx, &mut step);
    assert!(step.changes.is_empty(), "a question changed something: {:?}", step.changes);
    match answer {
        Ok(Answer::Now(outcome, _)) => outcome,
        other => panic!("a question was answered with {other:?}"),
    }
}

/// DESIGN D5: answers that may depend on changes wait for them.
fn check_gate(outcome: &MachineOutcome, gate: Gate) {
    let must_wait = match outcome {
        MachineOutcome::Accepted(_)
        | MachineOutcome::AcceptedBatch(_)
        | MachineOutcome::NumbersReserved { .. }
        | MachineOutcome::Peeked(_)
        | MachineOutcome::Deleted(_)
        | MachineOutcome::LocksBroken(_)
        | MachineOutcome::Acted(_)
        | MachineOutcome::Committed(_)
        | MachineOutcome::Described(_) => true,
        MachineOutcome::Received(all) => all.iter().any(|facts| facts.lock.is_none()),
        MachineOutcome::SessionState(_)
        | MachineOutcome::Sessions(_)
        | MachineOutcome::Inspected(_)
        | MachineOutcome::TopicDescribed(_)
        | MachineOutcome::SubscriptionDescribed(_)
        | MachineOutcome::Rules(_)
        | MachineOutcome::Explained(_)
        | MachineOutcome::Admitted(_)
        | MachineOutcome::TakenOver(_) => true,
        MachineOutcome::Done
        | MachineOutcome::Renewed(_)
        | MachineOutcome::Granted { .. }
        | MachineOutcome::SessionAccepted { .. } => false,
    };
    assert!(!must_wait || gate == Gate::Commit, "this answer leaves too early (D5): {outcome:?}");
}
