//! A queue by the specification alone: every message ever sent in one list, an explicit state each,
//! linear scans everywhere. Written from file 23 and the files that it names, not from the machine.
//! Each rule has its id, and [`Oracle::reached`] counts how often it applied.
//!
//! Not covered: sessions and forwarding, and therefore the states of the transfer dead-letter
//! queue, which is empty without it.

#[path = "oracle/act.rs"]
pub mod act;
#[path = "oracle/look.rs"]
mod look;
#[path = "oracle/receive.rs"]
mod receive;
#[path = "oracle/send.rs"]
mod send;
#[path = "oracle/settle.rs"]
mod settle;
#[path = "oracle/time.rs"]
mod time;
#[path = "oracle/transaction.rs"]
mod transaction;

use std::collections::BTreeMap;

use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::JobId;
use peeklock_core::limits::Limits;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::operation::{LockName, Operation, Reply, Request, Turn};

/// State of a message, named as in the table of file 23. The two deferred states of the dead-letter
/// queue follow from DEF-09.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Scheduled,
    Available,
    /// Until [`Message::delayed_until`] (file 26).
    Delayed,
    Locked,
    Deferred,
    LockedDeferred,
    DlqAvailable,
    DlqDelayed,
    DlqLocked,
    DlqDeferred,
    DlqLockedDeferred,
    Gone,
}

/// Reason for which the broker dead-lettered a message, with the required content of its
/// description (DLQ-16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Expired,
    DeliveryCount(u32),
}

#[derive(Clone, Debug)]
pub struct Lock {
    pub name: LockName,
    pub until: Timestamp,
    pub holder: Option<u64>,
    /// Facts for operators (CON-02): the holder too, after it has left the lock.
    pub taken_by: Option<u64>,
    pub taken_at: Timestamp,
    pub renewals: u32,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub marker: u64,
    pub sequence: u64,
    pub state: State,
    /// For a scheduled message, the instant for which it is scheduled.
    pub enqueued_at: Timestamp,
    /// Its own time to live, lowered to the default (EXP-05).
    pub time_to_live: Option<TimeSpan>,
    /// Stored for a message with its own time to live (EXP-12).
    pub expires_at: Option<Timestamp>,
    /// The stored count (SET-29).
    pub count: u32,
    pub size: u32,
    pub header_size: u32,
    pub set: BTreeMap<String, String>,
    /// Number of times that properties were set on it (SET-41).
    pub set_count: usize,
    pub lock: Option<Lock>,
    /// End of its delay, if it is delayed.
    pub delayed_until: Option<Timestamp>,
    /// Its last change is not yet durable (DESIGN D5).
    pub in_flight: bool,
    /// A job sends it; it leaves or returns when the step is durable (CON-15).
    pub leaving: bool,
}

#[derive(Clone, Debug)]
pub struct Link {
    pub receiver: u64,
    pub sub_queue: SubQueue,
    pub mode: ReceiveMode,
    /// Total sent to the link since the attach.
    pub sent: u64,
    pub sent_bytes: u64,
    pub delivery_limit: u64,
    pub byte_limit: u64,
    /// The grant that waits for the end of its drain.
    drain: Option<u64>,
}

impl Link {
    /// RCV-16.
    pub const fn credit(&self) -> u64 {
        self.delivery_limit.saturating_sub(self.sent)
    }

    /// RCV-17: a link whose connection accepts no more is skipped.
    const fn can_take(&self) -> bool {
        self.credit() > 0 && self.sent_bytes < self.byte_limit
    }
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub ticket: u64,
    pub sub_queue: SubQueue,
    mode: ReceiveMode,
    count_max: u32,
    bytes_max: u64,
    /// `None` means without waiting (RCV-10).
    deadline: Option<Timestamp>,
    pub holder: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Demand {
    Call(u64),
    Link(u64),
}

#[derive(Clone, Debug)]
struct Remembered {
    id: u8,
    at: Timestamp,
    /// The number of a scheduled message, else 0 (DUP-12).
    sequence: u64,
}

/// The range of instants that must contain the last use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastUse {
    /// The last activity in the table of file 16.
    pub certain: Timestamp,
    /// The last moment that could count as an activity.
    pub possible: Timestamp,
    /// Idle time counts from here or later (TMP-14, TMP-15).
    pub idle_from: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Oracle {
    pub now: Timestamp,
    pub description: QueueDescription,
    pub messages: Vec<Message>,
    pub links: Vec<Link>,
    pub waiting: Vec<Waiting>,
    pub locks_given: u64,
    pub last_use: LastUse,
    /// When it would have been idle for long enough, before the requests of this turn.
    pub idle_at: Option<Timestamp>,
    pub full: bool,
    pub reached: BTreeMap<&'static str, u64>,
    limits: Limits,
    release_on_detach: bool,
    release_on_connection_loss: bool,
    /// Demand in the order of arrival (RCV-17).
    ring: Vec<Demand>,
    remembered: Vec<Remembered>,
    /// Ids for which the specification leaves open whether they are remembered.
    pub open_ids: Vec<u8>,
    next_sequence: u64,
    created_at: Timestamp,
    pub updated_at: Timestamp,
    turn: Turn,
    /// The last step of each job (CON-15).
    receipts: BTreeMap<JobId, act::Receipt>,
    /// Bytes of the broker's own properties of dead-lettered messages. The specification does not
    /// fix their text (DLQ-16), so the oracle gets their size before a turn.
    pub verdict_bytes: BTreeMap<u64, u32>,
    /// Messages that it dead-lettered without such a size.
    pub verdicts_missing: Vec<u64>,
    /// Error of the attempt that is being settled, for the description of its dead letter (DLQ-34).
    pub described_error: Option<String>,
}

impl Oracle {
    pub fn new(
        description: QueueDescription,
        limits: Limits,
        (release_on_detach, release_on_connection_loss): (bool, bool),
        now: Timestamp,
    ) -> Self {
        Self {
            now,
            description,
            messages: Vec::new(),
            links: Vec::new(),
            waiting: Vec::new(),
            locks_given: 0,
            last_use: LastUse { certain: Timestamp::NONE, possible: now, idle_from: now },
            idle_at: None,
            full: false,
            reached: BTreeMap::new(),
            limits,
            release_on_detach,
            release_on_connection_loss,
            ring: Vec::new(),
            remembered: Vec::new(),
            open_ids: Vec::new(),
            next_sequence: 1,
            created_at: now,
            updated_at: now,
            turn: Turn::default(),
            receipts: BTreeMap::new(),
            verdict_bytes: BTreeMap::new(),
            verdicts_missing: Vec::new(),
            described_error: None,
        }
    }

    /// Lets time pass to `now`, carries out the requests, and matches demand before and after the
    /// changes have become durable.
    pub fn turn(&mut self, now: Timestamp, requests: &[Request]) -> Turn {
        self.advance(now);
        for request in requests {
            let reply = self.apply(request);
            if let Some(reply) = reply {
                self.turn.replies.insert(request.ticket, reply);
            }
        }
        self.serve();
        self.time_out();
        while self.messages.iter().any(|message| message.in_flight) {
            let leaving = self.messages.iter().any(|message| message.leaving);
            self.commit();
            self.serve();
            if leaving {
                self.end_sends();
                self.serve();
            }
        }
        self.remember_use();
        std::mem::take(&mut self.turn)
    }

    /// Makes every change durable.
    fn commit(&mut self) {
        for message in &mut self.messages {
            message.in_flight = message.leaving;
        }
    }

    pub fn reach(&mut self, rule: &'static str) {
        *self.reached.entry(rule).or_default() += 1;
    }

    fn apply(&mut self, request: &Request) -> Option<Reply> {
        let Request { ticket, sub_queue, operation } = request;
        let (ticket, sub_queue) = (*ticket, *sub_queue);
        let was_busy = self.is_busy();
        let result = match operation {
            Operation::Send(draft) => self.send(sub_queue, draft),
            Operation::SendBatch(drafts) => self.send_batch(sub_queue, drafts),
            Operation::CancelScheduled(sequences) => self.cancel(sub_queue, sequences),
            Operation::Receive { mode, count_max, bytes_max, wait, holder } => {
                let deadline = (*wait > TimeSpan::ZERO)
                    .then(|| self.now.plus((*wait).min(self.limits.receive_wait_max)));
                self.receive(Waiting {
                    ticket,
                    sub_queue,
                    mode: *mode,
                    count_max: *count_max,
                    bytes_max: *bytes_max,
                    deadline,
                    holder: *holder,
                })
            }
            Operation::CancelReceive { call } => self.cancel_receive(*call),
            Operation::ReceiveDeferred { mode, sequences, holder } => {
                self.receive_deferred(sub_queue, *mode, sequences, *holder)
            }
            Operation::Attach { receiver, mode } => self.attach(sub_queue, *receiver, *mode),
            Operation::Grant { receiver, delivery_limit, byte_limit, drain } => {
                self.grant(ticket, *receiver, *delivery_limit, *byte_limit, *drain)
            }
            Operation::Detach { receiver, end } => self.detach(*receiver, *end),
            Operation::Settle { lock, settlement } => self.settle(sub_queue, *lock, settlement),
            Operation::RenewLock { lock } => self.renew(sub_queue, *lock),
            Operation::Peek { from, count_max } => self.peek(sub_queue, *from, *count_max),
            Operation::DeleteBatch { count_max, enqueued_before } => {
                self.delete_batch(sub_queue, *count_max, *enqueued_before)
            }
            Operation::DeleteDeferred { sequence } => self.delete_deferred(sub_queue, *sequence),
            Operation::BreakLocks { sequences, counts } => {
                self.break_locks(sub_queue, sequences, *counts)
            }
            Operation::Act(act) => self.act(sub_queue, act),
            Operation::ForgetJob(job) => {
                self.receipts.remove(job);
                Ok(Some(Reply::Done))
            }
            Operation::Update { description, read_at } => {
                self.update(sub_queue, description, *read_at)
            }
            Operation::Describe => self.describe(sub_queue),
            Operation::Inspect(query) => self.inspect(sub_queue, query),
            Operation::Check(part) => self.check(sub_queue, &part.operation),
            Operation::Commit(parts) => self.commit_all(parts),
        };
        if was_busy {
            self.last_use.idle_from = self.now;
            self.last_use.possible = self.now;
        }
        match result {
            Ok(reply) => reply,
            Err(conditions) => {
                self.reach("QUO-03");
                Some(Reply::Refused(conditions))
            }
        }
    }

    fn find(&self, sequence: u64, state: State) -> Option<usize> {
        self.messages
            .iter()
            .position(|message| message.sequence == sequence && message.state == state)
    }

    /// DESIGN D5: no client knows of a defer that is not durable.
    fn find_deferred(&self, sub_queue: SubQueue, sequence: u64) -> Option<usize> {
        let index = match sub_queue {
            SubQueue::Main => self.find(sequence, State::Deferred),
            SubQueue::DeadLetter => self.find(sequence, State::DlqDeferred),
            SubQueue::TransferDeadLetter => None,
        };
        index.filter(|index| !self.messages[*index].in_flight)
    }

    fn remove(&mut self, index: usize) {
        let message = &mut self.messages[index];
        message.lock = None;
        message.delayed_until = None;
        message.state = State::Gone;
        message.in_flight = true;
    }

    /// LIF-04, SET-27: locks and demand are lost, and everything durable is unchanged.
    pub fn crash(&mut self) {
        for index in 0..self.messages.len() {
            if self.messages[index].lock.is_some() {
                self.reach("LIF-04");
                self.release(index);
            }
        }
        self.links.clear();
        self.waiting.clear();
        self.ring.clear();
    }
}

type Conditions = Vec<Condition>;
type Answered = Result<Option<Reply>, Conditions>;

fn refuse<T>(condition: Condition) -> Result<T, Conditions> {
    Err(vec![condition])
}

/// `command.rs`: at least 1.
fn check_count(count_max: u32) -> Result<(), Conditions> {
    if count_max == 0 {
        return refuse(Condition::ArgumentOutOfRange);
    }
    Ok(())
}

/// The sub-queue of messages in a state.
pub const fn place(state: State) -> SubQueue {
    match state {
        State::Scheduled
        | State::Available
        | State::Delayed
        | State::Locked
        | State::Deferred
        | State::LockedDeferred
        | State::Gone => SubQueue::Main,
        State::DlqAvailable
        | State::DlqDelayed
        | State::DlqLocked
        | State::DlqDeferred
        | State::DlqLockedDeferred => SubQueue::DeadLetter,
    }
}
