//! The column "in transaction": an operation that may be part of a transaction gives the same
//! result there as outside. After a commit the contents are as after the operation, after a
//! rollback as without it.

use peeklock_core::command::{Command, Outcome};
use peeklock_core::ids::SequenceNumber;

use super::topics;
use super::*;
use crate::stage::{TICK, seconds};
use crate::subject::Work;

/// How an operation is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Never,
    Alone,
    Committed,
    RolledBack,
}

/// The operation as part of a transaction; `None` if it cannot be one (TXN-02).
fn work(s: &Stage, operation: Operation, found: &Found) -> Option<Work> {
    let [complete, abandon, defer, dead_letter] = Decision::all();
    let settle = |decision| Some(Work::Settle { token: found.token.clone(), decision });
    match operation {
        Operation::Send => Some(Work::Send(message("x"))),
        Operation::SendBatch => Some(Work::SendBatch(vec![message("x")])),
        Operation::Schedule => {
            let at = s.now().plus(minutes(1));
            Some(Work::Send(message("x").with_scheduled_enqueue_time(at)))
        }
        Operation::Complete => settle(complete),
        Operation::Abandon => settle(abandon),
        Operation::AbandonLater => settle(later()),
        Operation::Defer => settle(defer),
        Operation::DeadLetter => settle(dead_letter),
        Operation::Renew => Some(Work::Renew { token: found.token.clone() }),
        Operation::CancelSchedule => Some(Work::Cancel { sequences: vec![found.scheduled] }),
        Operation::ReceiveUnderLock
        | Operation::ReceiveAndDelete
        | Operation::ReceiveByNumber
        | Operation::ReceiveAndDeleteByNumber
        | Operation::Peek
        | Operation::BatchDelete
        | Operation::Purge
        | Operation::DeleteByNumber
        | Operation::Create
        | Operation::Update
        | Operation::Describe
        | Operation::Delete => None,
    }
}

/// Contents of all entities, read from the broker itself because no transport shows everything.
async fn everything(s: &Stage) -> String {
    let broker = s.broker();
    let mut all = String::new();
    let mut paths = broker.queue_paths(0, 10);
    for path in &paths {
        let queue = broker.describe_queue(path).await.unwrap();
        let told = (queue.counts, queue.size_bytes, queue.last_sequence);
        all.push_str(&format!("{path}: {told:?}\n"));
    }
    for topic in broker.topic_paths(0, 10) {
        let described = broker.describe_topic(&topic).await.unwrap();
        let told = (described.scheduled, described.size_bytes, described.last_sequence);
        all.push_str(&format!("{topic}: {told:?}\n"));
        paths.extend(broker.subscription_paths(&topic, 0, 10).unwrap());
        paths.push(topic);
    }
    for path in paths {
        for suffix in ["", "/$deadletterqueue", "/$Transfer/$deadletterqueue"] {
            // A topic does not have every sub-queue and cannot be peeked (PEK-11).
            let Ok(entity) = broker.entity(&format!("{path}{suffix}")) else { continue };
            let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
            let Ok(Outcome::Peeked(messages)) = entity.call(command).await else { continue };
            for message in messages {
                let facts = message.facts;
                let told = (facts.sequence, facts.state, facts.delivery_count, facts.size);
                all.push_str(&format!("{path}{suffix}: {told:?}\n"));
            }
        }
    }
    all
}

/// Carries out an operation in one of these ways in the middle of its lock. Returns the contents
/// then, and after the end of the lock unless it was settled or renewed.
async fn outcome(
    s: &Stage,
    furnish: &impl AsyncFn(&Stage) -> Found,
    (operation, path): (Operation, &str),
    run: Run,
) -> Result<String, String> {
    let found = furnish(s).await;
    let token = found.token.clone();
    s.advance(seconds(30)).await;
    let work = work(s, operation, &found);
    match (run, work) {
        (Run::Committed | Run::RolledBack, Some(work)) => {
            let transaction = s.begin().await.unwrap();
            s.within(transaction, path, work).await.map_err(|refusal| refusal.condition)?;
            if run == Run::Committed {
                let parts = s.commit(transaction).await.map_err(|refusal| refusal.text)?;
                assert_eq!(parts.len(), 1);
            } else {
                s.roll_back(transaction).await.map_err(|refusal| refusal.text)?;
            }
        }
        (Run::Alone, _) => {
            let done = super::carry_out(s, operation, path, found).await;
            done.map_err(|refusal| refusal.condition)?;
        }
        (Run::Never | Run::Committed | Run::RolledBack, _) => {}
    }
    let at_once = everything(s).await;
    // A sub-queue counts no delivery (SET-38), so a renewal shows whether the message was settled.
    let is_renewal = operation == Operation::Renew;
    let held = !is_renewal && s.renew(path, &token).await.is_ok();
    s.advance(if is_renewal { seconds(30) } else { minutes(1) }).await;
    s.advance(TICK).await;
    let later = everything(s).await;
    let held_later = s.renew(path, &token).await.is_ok();
    Ok(format!("{at_once}held: {held}\nlater {later}held: {held_later}\n"))
}

/// The contents without the last sequence numbers of queues and topics.
fn without_last_numbers(seen: &str) -> String {
    let is_number = |part: &str| part.ends_with("))") && !part.contains(',');
    let lines = seen.lines().map(|line| match line.rsplit_once(", SequenceNumber(") {
        Some((start, last)) if is_number(last) => start,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Judges one cell. Returns the error, if any.
async fn judge(
    s: &Stage,
    furnish: &impl AsyncFn(&Stage) -> Found,
    (operation, path): (Operation, &str),
    expected: &str,
) -> Option<String> {
    let mut runs = Vec::new();
    for run in [Run::Never, Run::Alone, Run::Committed, Run::RolledBack] {
        runs.push(outcome(s, furnish, (operation, path), run).await);
        clear(s).await;
    }
    if operation == Operation::Schedule {
        // The reserved number of a scheduled message is not used by any other message (SCH-13).
        runs = runs.into_iter().map(|run| run.map(|seen| without_last_numbers(&seen))).collect();
    }
    let refused = Err(expected.to_owned());
    let [never, alone, committed, rolled_back] = &runs[..] else { unreachable!("four runs") };
    if expected != YES {
        let is_refused = [alone, committed, rolled_back].iter().all(|run| **run == refused);
        return (!is_refused).then(|| format!("{operation:?}: {expected} expected, {runs:?}"));
    }
    if never == alone {
        return Some(format!("{operation:?} alone changes nothing that can be seen: {alone:?}"));
    }
    // Over AMQP a renewal is carried out immediately, outside the transaction (TXN-02).
    let is_outside = s.transport == Transport::Amqp && operation == Operation::Renew;
    let never = if is_outside { alone } else { never };
    if alone != committed {
        return Some(format!("{operation:?} alone gives {alone:?}\ncommitted {committed:?}"));
    }
    (never != rolled_back)
        .then(|| format!("{operation:?} rolled back leaves {rolled_back:?}\nwithout it {never:?}"))
}

fn column_of(
    transport: Transport,
    path: &str,
    furnish: impl AsyncFn(&Stage) -> Found,
    cells: impl IntoIterator<Item = (Operation, &'static str)>,
) {
    block_on(async {
        let s = Stage::open(transport, Setup::default()).await;
        let (mut wrong, mut judged) = (Vec::new(), 0);
        for (operation, expected) in cells {
            let has_place = MAY_BE_PART.contains(&operation) && expected != topics::NONE;
            if !has_place {
                continue;
            }
            judged += 1;
            wrong.extend(judge(&s, &furnish, (operation, path), expected).await);
        }
        s.end(IN_TRANSACTIONS).await;
        assert!(judged >= 3, "nothing was judged");
        assert!(wrong.is_empty(), "{path} over {transport:?}:\n{}", wrong.join("\n"));
    });
}

/// Operations that this column allows.
const MAY_BE_PART: [Operation; 9] = [
    Operation::Send,
    Operation::SendBatch,
    Operation::Schedule,
    Operation::CancelSchedule,
    Operation::Complete,
    Operation::Abandon,
    Operation::Defer,
    Operation::DeadLetter,
    Operation::Renew,
];

/// MAT-01, TXN-01, TXN-02, TXN-03, TXN-04, TXN-07, TXN-14: queues and their sub-queues.
pub fn column(transport: Transport, place: Place) {
    let column = Place::ALL.iter().position(|one| *one == place).unwrap();
    let cells = MATRIX.map(|(operation, cells)| (operation, cells[column]));
    column_of(transport, place.path(), async |s: &Stage| furnish(s, place).await, cells);
}

/// MAT-01, TXN-01, TXN-02, TXN-03, TXN-04, TXN-07, TXN-08, TXN-14: topics, subscriptions and their
/// sub-queues.
pub fn column_of_topics(transport: Transport, place: topics::Place) {
    let furnish = async |s: &Stage| topics::furnish(s, place).await;
    column_of(transport, place.path(), furnish, topics::cells(place));
}
