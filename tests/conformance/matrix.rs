//! The operation matrix of file 23 as data, and one test for each of its columns.
//!
//! A cell has the result of an operation in a place: `YES`, or the name of an error. If an
//! operation is allowed in a place that has nothing for it, the cell has the error for a missing
//! thing, which is returned only after the operation was accepted.
//!
//! The parts have names, under which [`crate::faces`] lists operations that do not use the
//! transport of a test.

pub mod kinds;
pub mod tests;
pub mod topics;
pub mod transactions;

use peeklock_core::command::ReceiveMode;
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::message::Value;
use peeklock_core::time::TimeSpan;

use crate::stage::{DLQ, ORDERS, Setup, Stage, TDLQ, block_on, identity, message, minutes, ms};
use crate::subject::{Answer, Decision};
use crate::subjects::Transport;

/// The columns of queues.
const QUEUES: &str = "matrix::queues";
/// The columns of topics and subscriptions, except for the next part.
const TOPICS: &str = "matrix::topics";
/// The columns of the transfer dead-letter queues of topics.
const TRANSFER_DEAD_LETTERS_OF_TOPICS: &str = "matrix::transfer_dead_letters_of_topics";
/// The columns of entities that require sessions or forward.
const KINDS: &str = "matrix::kinds";
/// All columns in transactions.
const IN_TRANSACTIONS: &str = "matrix::in_transactions";

const YES: &str = "yes";
const INVALID: &str = "InvalidOperation";
const DISABLED: &str = "EntityDisabled";
const ABSENT: &str = "EntityNotFound";
const LOST: &str = "MessageLockLost";
const UNKNOWN: &str = "MessageNotFound";
const EXISTS: &str = "EntityAlreadyExists";

/// The columns of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Queue,
    DeadLetterQueue,
    TransferDeadLetterQueue,
    Absent,
    DeadLetterQueueOfAbsent,
    Disabled,
    SendDisabled,
    ReceiveDisabled,
    DeadLetterQueueOfDisabled,
    DeadLetterQueueOfSendDisabled,
    DeadLetterQueueOfReceiveDisabled,
}

/// The rows of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Send,
    SendBatch,
    Schedule,
    CancelSchedule,
    ReceiveUnderLock,
    ReceiveAndDelete,
    ReceiveByNumber,
    ReceiveAndDeleteByNumber,
    Complete,
    Abandon,
    AbandonLater,
    Defer,
    DeadLetter,
    Renew,
    Peek,
    BatchDelete,
    Purge,
    DeleteByNumber,
    Create,
    Update,
    Describe,
    Delete,
}

/// One row: the cells in the order of [`Place`].
type Row = (Operation, [&'static str; 11]);

#[rustfmt::skip]
const MATRIX: [Row; 22] = {
    use Operation::*;
    const N: &str = ABSENT;
    const I: &str = INVALID;
    const D: &str = DISABLED;
    [
    //                           queue   DLQ     TDLQ     absent and  disabled  no send  no receive  their DLQs: disabled,
    //                                                    its DLQ                                    no send, no receive
    (Send,                      [YES,    I,      I,       N,   N,     D,        D,       YES,        I,      I,      I]),
    (SendBatch,                 [YES,    I,      I,       N,   N,     D,        D,       YES,        I,      I,      I]),
    (Schedule,                  [YES,    I,      I,       N,   N,     D,        D,       YES,        I,      I,      I]),
    (CancelSchedule,            [YES,    I,      I,       N,   N,     YES,      YES,     YES,        I,      I,      I]),
    (ReceiveUnderLock,          [YES,    YES,    YES,     N,   N,     D,        YES,     D,          D,      YES,    D]),
    (ReceiveAndDelete,          [YES,    YES,    YES,     N,   N,     D,        YES,     D,          D,      YES,    D]),
    (ReceiveByNumber,           [YES,    YES,    UNKNOWN, N,   N,     D,        YES,     D,          D,      YES,    D]),
    (ReceiveAndDeleteByNumber,  [YES,    YES,    UNKNOWN, N,   N,     D,        YES,     D,          D,      YES,    D]),
    (Complete,                  [YES,    YES,    LOST,    N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (Abandon,                   [YES,    YES,    LOST,    N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (AbandonLater,              [YES,    YES,    LOST,    N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (Defer,                     [YES,    YES,    LOST,    N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (DeadLetter,                [YES,    I,      I,       N,   N,     YES,      YES,     YES,        I,      I,      I]),
    (Renew,                     [YES,    YES,    LOST,    N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (Peek,                      [YES,    YES,    YES,     N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (BatchDelete,               [YES,    YES,    YES,     N,   N,     D,        YES,     D,          D,      YES,    D]),
    (Purge,                     [YES,    YES,    YES,     N,   N,     D,        YES,     D,          D,      YES,    D]),
    (DeleteByNumber,            [YES,    YES,    UNKNOWN, N,   N,     YES,      YES,     YES,        YES,    YES,    YES]),
    (Create,                    [EXISTS, I,      I,       YES, I,     EXISTS,   EXISTS,  EXISTS,     I,      I,      I]),
    (Update,                    [YES,    I,      I,       N,   N,     YES,      YES,     YES,        I,      I,      I]),
    (Describe,                  [YES,    I,      I,       N,   N,     YES,      YES,     YES,        I,      I,      I]),
    (Delete,                    [YES,    I,      I,       N,   N,     YES,      YES,     YES,        I,      I,      I]),
    ]
};

impl Place {
    const ALL: [Self; 11] = [
        Self::Queue,
        Self::DeadLetterQueue,
        Self::TransferDeadLetterQueue,
        Self::Absent,
        Self::DeadLetterQueueOfAbsent,
        Self::Disabled,
        Self::SendDisabled,
        Self::ReceiveDisabled,
        Self::DeadLetterQueueOfDisabled,
        Self::DeadLetterQueueOfSendDisabled,
        Self::DeadLetterQueueOfReceiveDisabled,
    ];

    const fn path(self) -> &'static str {
        match self {
            Self::Queue | Self::Disabled | Self::SendDisabled | Self::ReceiveDisabled => ORDERS,
            Self::DeadLetterQueue
            | Self::DeadLetterQueueOfDisabled
            | Self::DeadLetterQueueOfSendDisabled
            | Self::DeadLetterQueueOfReceiveDisabled => DLQ,
            Self::TransferDeadLetterQueue => TDLQ,
            Self::Absent => "absent",
            Self::DeadLetterQueueOfAbsent => "absent/$deadletterqueue",
        }
    }

    const fn status(self) -> EntityStatus {
        match self {
            Self::Disabled | Self::DeadLetterQueueOfDisabled => EntityStatus::Disabled,
            Self::SendDisabled | Self::DeadLetterQueueOfSendDisabled => EntityStatus::SendDisabled,
            Self::ReceiveDisabled | Self::DeadLetterQueueOfReceiveDisabled => {
                EntityStatus::ReceiveDisabled
            }
            Self::Queue
            | Self::DeadLetterQueue
            | Self::TransferDeadLetterQueue
            | Self::Absent
            | Self::DeadLetterQueueOfAbsent => EntityStatus::Active,
        }
    }
}

/// Prepared messages that an operation refers to.
struct Found {
    token: String,
    deferred: u64,
    scheduled: u64,
}

/// Creates a queue with an available, a locked and a deferred message in the place, and a scheduled
/// one.
async fn furnish(s: &Stage, place: Place) -> Found {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    let scheduled = s.schedule(ORDERS, message("scheduled"), at).await.unwrap();
    for text in ["deferred", "locked", "available"] {
        s.put(ORDERS, text).await;
    }
    let path = place.path();
    if path == DLQ {
        for seen in s.take_all(ORDERS).await {
            s.dead_letter(ORDERS, &seen).await;
        }
    }
    let holder = if path == DLQ { DLQ } else { ORDERS };
    let deferred = s.take(holder).await;
    s.defer(holder, &deferred).await;
    let locked = s.take(holder).await;
    s.advance(ms(1)).await;
    let status = Some(place.status());
    s.update(ORDERS, QueueUpdate { status, ..QueueUpdate::default() }).await.unwrap();
    Found { token: locked.token().to_owned(), deferred: deferred.sequence, scheduled }
}

/// An abandon with a delay, in the form that every transport has.
fn later() -> Decision {
    Decision::Abandon(vec![("peeklock-delay-ms".to_owned(), Value::I32(5_000))])
}

async fn carry_out(s: &Stage, operation: Operation, path: &str, found: Found) -> Answer<()> {
    let Found { token, deferred, scheduled } = found;
    let (lock, delete, now) =
        (ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete, TimeSpan::ZERO);
    let settle = |decision| s.settle(path, &token, decision);
    let [complete, abandon, defer, dead_letter] = Decision::all();
    match operation {
        Operation::Send => s.send(path, message("x")).await.map(drop),
        Operation::SendBatch => s.send_batch(path, vec![message("x")]).await.map(drop),
        Operation::Schedule => {
            s.schedule(path, message("x"), s.now().plus(minutes(1))).await.map(drop)
        }
        Operation::CancelSchedule => s.cancel(path, &[scheduled]).await,
        Operation::ReceiveUnderLock => s.receive(path, lock, 1, now).await.map(drop),
        Operation::ReceiveAndDelete => s.receive(path, delete, 1, now).await.map(drop),
        Operation::ReceiveByNumber => s.receive_deferred(path, lock, &[deferred]).await.map(drop),
        Operation::ReceiveAndDeleteByNumber => {
            s.receive_deferred(path, delete, &[deferred]).await.map(drop)
        }
        Operation::Complete => settle(complete).await,
        Operation::Abandon => settle(abandon).await,
        Operation::AbandonLater => settle(later()).await,
        Operation::Defer => settle(defer).await,
        Operation::DeadLetter => settle(dead_letter).await,
        Operation::Renew => s.renew(path, &token).await.map(drop),
        Operation::Peek => s.peek(path, 0, 1).await.map(drop),
        Operation::BatchDelete => s.delete_batch(path, 1, None).await.map(drop),
        Operation::Purge => s.purge(path).await.map(drop),
        Operation::DeleteByNumber => s.delete_deferred(path, deferred).await,
        Operation::Create => s.create(path, QueueUpdate::default()).await.map(drop),
        Operation::Update => s.update(path, QueueUpdate::default()).await.map(drop),
        Operation::Describe => s.describe(path).await.map(drop),
        Operation::Delete => s.delete(path).await,
    }
}

/// Deletes all entities before the next cell.
async fn clear(s: &Stage) {
    for path in s.list(0, 10).await.unwrap() {
        s.delete(&path).await.unwrap();
    }
    for path in s.topic_paths(0, 10).await.unwrap() {
        s.delete_topic(&path).await.unwrap();
    }
}

/// RTY-31, MAT-01, MAT-02, MAT-04, ENT-24, ENT-25, ENT-29, ADR-14, DLQ-02, DLQ-07, SND-20: every
/// cell of one column holds; the failure lists all wrong cells.
pub fn column(transport: Transport, place: Place) {
    block_on(async {
        let s = Stage::open(transport, Setup::default()).await;
        let column = Place::ALL.iter().position(|one| *one == place).unwrap();
        let mut wrong = Vec::new();
        for (operation, cells) in MATRIX {
            let found = furnish(&s, place).await;
            let answer = carry_out(&s, operation, place.path(), found).await;
            let got = match &answer {
                Ok(()) => YES,
                Err(refusal) => {
                    identity(&refusal.text);
                    &refusal.condition
                }
            };
            if got != cells[column] {
                wrong.push(format!("{operation:?}: {} expected, {got} given", cells[column]));
            }
            clear(&s).await;
        }
        s.end(QUEUES).await;
        assert!(wrong.is_empty(), "{place:?} over {transport:?}:\n{}", wrong.join("\n"));
    });
}
