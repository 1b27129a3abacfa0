//! File 15: transactions, on the transports that have them.

mod across;
mod sessions;
mod topics;

use peeklock_core::command::Command;
use peeklock_core::description::TopicUpdate;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::transaction::{PartOutcome, Reach, Transactions};

pub use self::across::*;
pub use self::sessions::*;
pub use self::topics::*;
use super::*;
use crate::subject::Work;
use crate::subjects::Transport;

async fn bodies(s: &Stage, path: &str) -> Vec<String> {
    texts(&s.look(path).await)
}

/// Locks that outlive a transaction.
fn long_locks() -> QueueUpdate {
    QueueUpdate { lock_duration: Some(minutes(5)), ..QueueUpdate::default() }
}

async fn open(s: &Stage) {
    s.open_queue_with(ORDERS, long_locks()).await;
}

fn send(text: &str) -> Work {
    Work::Send(message(text))
}

fn settle(seen: &Seen, decision: Decision) -> Work {
    Work::Settle { token: seen.token().to_owned(), decision }
}

fn complete(seen: &Seen) -> Work {
    settle(seen, Decision::Complete)
}

fn numbers(parts: &[PartOutcome]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for part in parts {
        match part {
            PartOutcome::Accepted(number) => numbers.push(number.0),
            PartOutcome::AcceptedBatch(batch) => numbers.extend(batch.iter().map(|one| one.0)),
            PartOutcome::Done | PartOutcome::Pending(_) | PartOutcome::Renewed(_) => {}
        }
    }
    numbers
}

/// TXN-01, TXN-03, LIF-05: before the commit nothing is visible, after it everything.
pub async fn nothing_of_a_transaction_shows_before_its_commit_and_all_of_it_after(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "old").await;
    let old = s.take(ORDERS).await;
    let before = s.describe(ORDERS).await.unwrap();
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, complete(&old)).await.unwrap();
    s.within(transaction, ORDERS, send("new")).await.unwrap();
    s.assert_empty(ORDERS).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["old"]);
    let during = s.describe(ORDERS).await.unwrap();
    assert_eq!((during.counts, during.size_bytes), (before.counts, before.size_bytes));
    assert_eq!(during.last_sequence, SequenceNumber(1));
    let parts = s.commit(transaction).await.unwrap();
    assert_eq!(parts, [PartOutcome::Done, PartOutcome::Accepted(SequenceNumber(2))]);
    assert_eq!(texts(&s.take_all(ORDERS).await), ["new"]);
    assert_eq!(s.counts(ORDERS).await.active, 1);
    refused(s.settle(ORDERS, old.token(), Decision::Complete).await, "MessageLockLost");
}

/// TXN-04, MSG-13: an uncommitted message takes no number, and a lock stays as it was.
pub async fn after_a_rollback_nothing_was_sent_and_locks_are_held_with_the_same_tokens(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let held = s.take_all(ORDERS).await;
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, complete(&held[0])).await.unwrap();
    let why = Decision::DeadLetter { reason: None, description: None, properties: vec![] };
    s.within(transaction, ORDERS, settle(&held[1], why)).await.unwrap();
    s.within(transaction, ORDERS, send("never")).await.unwrap();
    s.roll_back(transaction).await.unwrap();
    s.assert_empty(ORDERS).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["a", "b"]);
    s.complete(ORDERS, &held[0]).await;
    s.advance(before(minutes(5))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 2);
    assert_eq!(s.put(ORDERS, "c").await, 3);
    s.assert_empty(DLQ).await;
}

/// TXN-02, SCH-13: send, schedule, complete, abandon, defer, dead-letter, renew.
pub async fn every_settlement_a_schedule_and_a_renewal_can_be_part_of_a_transaction(s: &Stage) {
    open(s).await;
    for text in ["complete", "abandon", "defer", "dead-letter", "renew"] {
        s.put(ORDERS, text).await;
    }
    let held = s.take_all(ORDERS).await;
    let transaction = s.begin().await.unwrap();
    let set = vec![property("key", "set")];
    let dead = Decision::DeadLetter {
        reason: Some("why".into()),
        description: None,
        properties: set.clone(),
    };
    let work = [
        complete(&held[0]),
        settle(&held[1], Decision::Abandon(set.clone())),
        settle(&held[2], Decision::Defer(set.clone())),
        settle(&held[3], dead),
        Work::Send(message("later").with_scheduled_enqueue_time(s.now().plus(minutes(9)))),
        Work::SendBatch(vec![message("one"), message("two")]),
    ];
    for one in work {
        s.within(transaction, ORDERS, one).await.unwrap();
    }
    s.advance(minutes(1)).await;
    let renew = Work::Renew { token: held[4].token().to_owned() };
    s.within(transaction, ORDERS, renew).await.unwrap();
    let parts = s.commit(transaction).await.unwrap();
    let until = s.now().plus(minutes(5));
    assert_eq!(parts[..4], [const { PartOutcome::Done }; 4]);
    // SCH-13: the scheduled message gets its number when it is issued.
    assert_eq!(parts[4], PartOutcome::Accepted(SequenceNumber(6)));
    assert_eq!(parts[6], PartOutcome::Renewed(until));
    assert_eq!(numbers(&parts), [6, 7, 8]);
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.deferred, counts.scheduled), (4, 1, 1));
    let dead = s.take(DLQ).await;
    assert_eq!((dead.reason(), dead.text_of("key")), (Some("why"), Some("set")));
    let there = s.take_all(ORDERS).await;
    assert_eq!(texts(&there), ["abandon", "one", "two"]);
    assert_eq!((there[0].delivery_count, there[0].text_of("key")), (2, Some("set")));
    s.advance(before(minutes(5))).await;
    s.complete(ORDERS, &held[4]).await;
}

/// TXN-02, TXN-04, SCH-04, SCH-05: scheduled messages are cancelled at the commit. After a rollback
/// they are still scheduled.
pub async fn scheduled_messages_are_cancelled_at_the_commit(s: &Stage) {
    open(s).await;
    let at = s.now().plus(minutes(1));
    let mut scheduled = Vec::new();
    for text in ["1", "2", "3"] {
        scheduled.push(s.schedule(ORDERS, message(text), at).await.unwrap());
    }
    let cancel = || Work::Cancel { sequences: scheduled[..2].to_vec() };
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, cancel()).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.scheduled, 3);
    s.roll_back(transaction).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.scheduled, 3);
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, cancel()).await.unwrap();
    s.within(transaction, ORDERS, send("instead")).await.unwrap();
    let parts = s.commit(transaction).await.unwrap();
    assert_eq!(parts, [PartOutcome::Done, PartOutcome::Accepted(SequenceNumber(4))]);
    assert_eq!(s.counts(ORDERS).await.scheduled, 1);
    s.advance(minutes(1)).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["instead", "3"]);
}

/// TXN-02: an operation that cannot be part of a transaction is refused, and the transaction stays
/// open.
pub async fn other_operations_cannot_be_part_of_a_transaction(s: &Stage) {
    open(s).await;
    let broker = s.broker();
    let entity = broker.entity(ORDERS).unwrap();
    let transactions = Transactions::new(broker);
    let id = transactions.begin(Reach::OneEntity).unwrap();
    let sequences = vec![SequenceNumber(1)];
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: 1,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let excluded = [
        receive,
        Command::ReceiveDeferred { mode: ReceiveMode::PeekLock, sequences, holder: None },
        Command::Peek { from: SequenceNumber(0), count_max: 1 },
        Command::DeleteBatch { count_max: 1, enqueued_before: None },
        Command::Describe,
        Command::AcceptSession {
            session: None,
            receiver: broker.receiver_id(),
            mode: ReceiveMode::PeekLock,
            wait: TimeSpan::ZERO,
        },
    ];
    for command in excluded {
        let refused = transactions.issue(id, &entity, command.clone()).await;
        let condition = refused.err().map(|rejection| rejection.condition().name());
        assert_eq!(condition, Some("InvalidOperation"), "{command:?}");
    }
    assert!(transactions.commit(id).unwrap().is_none());
}

/// TXN-05
pub async fn a_transaction_sends_at_most_100_messages_and_continues_without_the_next(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "held").await;
    let held = s.take(ORDERS).await;
    let transaction = s.begin().await.unwrap();
    for number in 0..97 {
        s.within(transaction, ORDERS, send(&number.to_string())).await.unwrap();
    }
    let four = vec![message("x"); 4];
    refused(s.within(transaction, ORDERS, Work::SendBatch(four)).await, "QuotaExceeded");
    let three = vec![message("x"); 3];
    s.within(transaction, ORDERS, Work::SendBatch(three)).await.unwrap();
    refused(s.within(transaction, ORDERS, send("101")).await, "QuotaExceeded");
    s.within(transaction, ORDERS, complete(&held)).await.unwrap();
    let parts = s.commit(transaction).await.unwrap();
    assert_eq!(numbers(&parts), (2..=101).collect::<Vec<_>>());
    assert_eq!(s.counts(ORDERS).await.active, 100);
}

/// TXN-06: the time counts from its first operation, not from its begin.
pub async fn a_transaction_times_out_two_minutes_after_its_first_operation(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "held").await;
    let held = s.take(ORDERS).await;
    let (late, in_time) = (s.begin().await.unwrap(), s.begin().await.unwrap());
    let unused = s.begin().await.unwrap();
    s.advance(minutes(2)).await;
    for transaction in [late, in_time] {
        s.within(transaction, ORDERS, send("sent")).await.unwrap();
        s.within(transaction, ORDERS, complete(&held)).await.unwrap();
    }
    s.advance(before(minutes(2))).await;
    s.within(late, ORDERS, send("sent too")).await.unwrap();
    s.roll_back(in_time).await.unwrap();
    s.advance(TICK).await;
    refused(s.within(late, ORDERS, send("late")).await, "TransactionTimedOut");
    refused(s.commit(late).await, "TransactionTimedOut");
    s.commit(unused).await.unwrap();
    assert_eq!(texts(&s.look(ORDERS).await), ["held"]);
    s.complete(ORDERS, &held).await;
}

/// TXN-07: an operation that cannot succeed is refused when it is issued, and the rest is committed
/// without it.
pub async fn a_failing_operation_is_refused_when_issued_with_its_own_error(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "held").await;
    s.put(ORDERS, "settled").await;
    let held = s.take_all(ORDERS).await;
    s.complete(ORDERS, &held[1]).await;
    let transaction = s.begin().await.unwrap();
    let within = |path, work| s.within(transaction, path, work);
    refused(within(ORDERS, complete(&held[1])).await, "MessageLockLost");
    refused(within(DLQ, complete(&held[0])).await, "MessageLockLost");
    refused(within(DLQ, send("x")).await, "InvalidOperation");
    let cancel = Work::Cancel { sequences: vec![1] };
    refused(within(ORDERS, cancel).await, "MessageNotFound");
    refused(within(DLQ, settle(&held[0], Decision::all()[3].clone())).await, "InvalidOperation");
    refused(within(ORDERS, Work::Renew { token: held[1].token().into() }).await, "MessageLockLost");
    let large = sized(MIB + 1, "large");
    refused(within(ORDERS, Work::Send(large)).await, "MessageSizeExceeded");
    let batch = vec![sized(MIB, "a"), sized(MIB, "b")];
    refused(within(ORDERS, Work::SendBatch(batch)).await, "MessageSizeExceeded");
    let properties = vec![property("k", "x".repeat(70_000))];
    let abandon = settle(&held[0], Decision::Abandon(properties));
    refused(within(ORDERS, abandon).await, "MessageSizeExceeded");
    within(ORDERS, complete(&held[0])).await.unwrap();
    s.commit(transaction).await.unwrap();
    assert!(s.look(ORDERS).await.is_empty());
}

/// TXN-07, QUO-03: a lock that ends before the commit fails the whole commit permanently.
pub async fn a_commit_with_one_failing_part_does_none(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let first = s.take(ORDERS).await;
    s.advance(seconds(30)).await;
    let second = s.take(ORDERS).await;
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, complete(&second)).await.unwrap();
    s.within(transaction, ORDERS, send("new")).await.unwrap();
    s.within(transaction, ORDERS, complete(&first)).await.unwrap();
    s.advance(seconds(30)).await;
    let refusal = refused(s.commit(transaction).await, "MessageLockLost");
    assert!(refusal.text.contains("operation 3"), "{}", refusal.text);
    let left = s.take_all(ORDERS).await;
    assert_eq!((texts(&left), left[0].delivery_count), (vec!["a".to_owned()], 2));
    assert_eq!(s.counts(ORDERS).await.active, 2);
    // The held lock stays held, and the failed message took no number.
    s.complete(ORDERS, &second).await;
    assert_eq!(s.put(ORDERS, "next").await, 3);
    s.advance(minutes(1)).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["a", "next"]);
}

/// TXN-07, TXN-11: a queue that is disabled meanwhile, and a deleted one. A refused commit is not
/// repeated when its reason is gone.
pub async fn a_commit_fails_with_the_state_of_the_queue(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "held").await;
    let held = s.take(ORDERS).await;
    let begin = async || {
        let transaction = s.begin().await.unwrap();
        s.within(transaction, ORDERS, complete(&held)).await.unwrap();
        s.within(transaction, ORDERS, send("new")).await.unwrap();
        transaction
    };
    let (first, second, third) = (begin().await, begin().await, begin().await);
    let status = |status| QueueUpdate { status: Some(status), ..QueueUpdate::default() };
    s.update(ORDERS, status(EntityStatus::SendDisabled)).await.unwrap();
    refused(s.commit(first).await, "EntityDisabled");
    assert_eq!(texts(&s.look(ORDERS).await), ["held"]);
    s.update(ORDERS, status(EntityStatus::Active)).await.unwrap();
    s.advance(seconds(1)).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["held"]);
    s.commit(second).await.unwrap();
    assert_eq!(texts(&s.look(ORDERS).await), ["new"]);
    s.delete(ORDERS).await.unwrap();
    s.open_queue(ORDERS).await;
    refused(s.commit(third).await, "EntityNotFound");
    assert!(s.look(ORDERS).await.is_empty());
}

/// TXN-07, SND-24: the quota is checked for all messages together.
pub async fn the_quota_covers_all_messages_of_a_transaction(s: &Stage) {
    let one_mebibyte = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
    s.open_queue_with(ORDERS, one_mebibyte).await;
    let transaction = s.begin().await.unwrap();
    for id in ["a", "b"] {
        s.within(transaction, ORDERS, Work::Send(sized(MIB / 2, id))).await.unwrap();
    }
    s.commit(transaction).await.unwrap();
    let full = s.begin().await.unwrap();
    refused(s.within(full, ORDERS, send("x")).await, "QuotaExceeded");
    s.advance(ms(1)).await;
    s.purge(ORDERS).await.unwrap();
    for id in ["c", "d"] {
        s.within(full, ORDERS, Work::Send(sized(MIB / 2 + 1, id))).await.unwrap();
    }
    refused(s.commit(full).await, "QuotaExceeded");
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// TXN-08
pub async fn a_transaction_covers_one_queue(s: &Stage) {
    open(s).await;
    s.open_queue("others").await;
    s.put("others", "held").await;
    let held = s.take("others").await;
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, send("a")).await.unwrap();
    refused(s.within(transaction, "others", complete(&held)).await, "InvalidOperation");
    refused(s.within(transaction, "ORDERS/$DeadLetterQueue", send("b")).await, "InvalidOperation");
    s.within(transaction, "ORDERS", send("c")).await.unwrap();
    s.commit(transaction).await.unwrap();
    assert_eq!(texts(&s.look(ORDERS).await), ["a", "c"]);
    s.complete("others", &held).await;
}

/// TXN-13, SND-31: numbers are consecutive in the order of sending, also if other clients sent
/// meanwhile.
pub async fn messages_of_a_transaction_get_consecutive_numbers_at_its_commit(s: &Stage) {
    open(s).await;
    let (first, second) = (s.begin().await.unwrap(), s.begin().await.unwrap());
    for text in ["1", "2", "3"] {
        s.within(first, ORDERS, send(&format!("first {text}"))).await.unwrap();
        s.within(second, ORDERS, send(&format!("second {text}"))).await.unwrap();
        s.put(ORDERS, "between").await;
    }
    assert_eq!(numbers(&s.commit(second).await.unwrap()), [4, 5, 6]);
    assert_eq!(s.put(ORDERS, "between").await, 7);
    assert_eq!(numbers(&s.commit(first).await.unwrap()), [8, 9, 10]);
    let seen = texts(&s.look(ORDERS).await);
    assert_eq!(seen[3..6], ["second 1", "second 2", "second 3"]);
    assert_eq!(seen[7..], ["first 1", "first 2", "first 3"]);
}

/// TXN-14, DLQ-08: a dead letter and its corrected copy.
pub async fn a_dead_letter_is_completed_and_its_copy_sent_as_one(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "wrong").await;
    let wrong = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &wrong).await;
    let dead = s.take(DLQ).await;
    let abandoned = s.begin().await.unwrap();
    s.within(abandoned, DLQ, complete(&dead)).await.unwrap();
    s.within(abandoned, ORDERS, send("never")).await.unwrap();
    s.roll_back(abandoned).await.unwrap();
    assert_eq!((s.counts(ORDERS).await.dead_letter, s.counts(ORDERS).await.active), (1, 0));
    let transaction = s.begin().await.unwrap();
    s.within(transaction, DLQ, complete(&dead)).await.unwrap();
    s.within(transaction, ORDERS, send("right")).await.unwrap();
    s.commit(transaction).await.unwrap();
    assert_eq!(s.drain(ORDERS).await, ["right"]);
    s.assert_empty(DLQ).await;
}

/// TXN-15, TXN-12: after a restart a committed transaction is complete, and others have no effect.
pub async fn a_restart_keeps_only_committed_transactions(s: &Stage) {
    open(s).await;
    for text in ["a", "b"] {
        s.put(ORDERS, text).await;
    }
    let held = s.take_all(ORDERS).await;
    let (committed, open) = (s.begin().await.unwrap(), s.begin().await.unwrap());
    for (transaction, seen, text) in [(committed, &held[0], "yes"), (open, &held[1], "no")] {
        s.within(transaction, ORDERS, complete(seen)).await.unwrap();
        s.within(transaction, ORDERS, send(text)).await.unwrap();
    }
    s.commit(committed).await.unwrap();
    let s = s.restart().await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["b", "yes"]);
    assert_eq!(s.put(ORDERS, "next").await, 4);
    s.check_counts().await;
    s.stop().await;
}

/// TXN-17
pub async fn a_connection_has_at_most_1000_open_transactions(s: &Stage) {
    open(s).await;
    let mut begun = Vec::new();
    for _ in 0..1_000 {
        begun.push(s.begin().await.unwrap());
    }
    refused(s.begin().await, "QuotaExceeded");
    s.roll_back(begun[0]).await.unwrap();
    s.commit(begun[1]).await.unwrap();
    s.begin().await.unwrap();
    s.within(begun[2], ORDERS, send("a")).await.unwrap();
    s.begin().await.unwrap();
    refused(s.begin().await, "QuotaExceeded");
    // A transaction that has timed out no longer counts (TXN-06), nor does one without an operation
    // by then.
    s.advance(minutes(2)).await;
    for _ in 0..1_000 {
        s.begin().await.unwrap();
    }
    refused(s.begin().await, "QuotaExceeded");
}

/// DUP-11, DUP-02, TXN-04
pub async fn ids_are_checked_when_a_transaction_commits(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let of = |id: &str| Work::Send(message(id).with_message_id(id));
    let forgotten = s.begin().await.unwrap();
    s.within(forgotten, ORDERS, of("x")).await.unwrap();
    s.roll_back(forgotten).await.unwrap();
    let transaction = s.begin().await.unwrap();
    for id in ["x", "y", "x", "z"] {
        s.within(transaction, ORDERS, of(id)).await.unwrap();
    }
    assert_eq!(s.send(ORDERS, message("y").with_message_id("y")).await.unwrap(), 1);
    assert_eq!(numbers(&s.commit(transaction).await.unwrap()), [2, 0, 0, 3]);
    assert_eq!(s.drain(ORDERS).await, ["y", "x", "z"]);
}

/// SET-13, SET-14: in a transaction a lock is settled once, and then cannot be renewed.
pub async fn a_lock_is_settled_once_in_a_transaction(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "a").await;
    let held = s.take(ORDERS).await;
    let transaction = s.begin().await.unwrap();
    let renew = Work::Renew { token: held.token().to_owned() };
    s.within(transaction, ORDERS, renew.clone()).await.unwrap();
    s.within(transaction, ORDERS, complete(&held)).await.unwrap();
    refused(s.within(transaction, ORDERS, complete(&held)).await, "MessageLockLost");
    // Over AMQP a renewal is carried out immediately, outside the transaction (TXN-02).
    match s.transport {
        Transport::Amqp => s.within(transaction, ORDERS, renew).await.unwrap(),
        _ => drop(refused(s.within(transaction, ORDERS, renew).await, "MessageLockLost")),
    }
    let other = s.begin().await.unwrap();
    s.within(other, ORDERS, settle(&held, Decision::Defer(vec![]))).await.unwrap();
    s.within(other, ORDERS, send("other")).await.unwrap();
    let count = if s.transport == Transport::Amqp { 3 } else { 2 };
    assert_eq!(s.commit(transaction).await.unwrap().len(), count);
    refused(s.commit(other).await, "MessageLockLost");
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// SCH-06: the instant is checked when the transaction commits.
pub async fn a_message_due_before_the_commit_is_enqueued_by_it(s: &Stage) {
    open(s).await;
    let transaction = s.begin().await.unwrap();
    let at = s.now().plus(minutes(1));
    s.within(transaction, ORDERS, Work::Send(message("a").with_scheduled_enqueue_time(at)))
        .await
        .unwrap();
    s.advance(minutes(1)).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    s.commit(transaction).await.unwrap();
    assert_eq!(s.take(ORDERS).await.enqueued_at, s.now());
}

/// ENT-02
pub async fn a_basic_namespace_has_no_transactions(s: &Stage) {
    refused(s.begin().await, "ArgumentError");
}

/// A broker of the Basic tier.
pub fn basic() -> Setup {
    let mut setup = Setup::default();
    setup.settings.limits = Limits::of(Tier::Basic);
    setup
}

/// QUO-05: a commit that sends needs room in the store. A commit that only settles needs none.
pub async fn a_full_store_refuses_only_commits_with_sends(s: &Stage) {
    open(s).await;
    s.send(ORDERS, sized(60 << 10, "a")).await.unwrap();
    let held = s.take(ORDERS).await;
    let (sends, settles) = (s.begin().await.unwrap(), s.begin().await.unwrap());
    s.within(sends, ORDERS, complete(&held)).await.unwrap();
    s.within(sends, ORDERS, Work::Send(sized(60 << 10, "b"))).await.unwrap();
    s.within(settles, ORDERS, complete(&held)).await.unwrap();
    refused(s.commit(sends).await, "ServerBusy");
    assert_eq!(s.counts(ORDERS).await.active, 1);
    s.commit(settles).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// A broker whose store has room for one message of that scenario.
pub fn small_store() -> Setup {
    Setup { capacity_bytes: Some(100 << 10), ..Setup::default() }
}

/// TXN-12: an in-process transaction ends with its handle, and with its client.
pub async fn a_dropped_transaction_is_rolled_back(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "held").await;
    let client = s.in_process();
    let (sender, receiver) = (client.sender(ORDERS).unwrap(), client.receiver(ORDERS).unwrap());
    let held = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    for _ in 0..2_000 {
        let transaction = client.begin_transaction().await.unwrap();
        transaction.complete(&receiver, &held).await.unwrap();
        transaction.send(&sender, message("never")).await.unwrap();
    }
    receiver.complete(&held).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// RTY-09, TXN-04: the delay of an abandon counts from the commit; a rollback leaves the lock as it is.
pub async fn the_delay_of_an_abandon_counts_from_the_commit(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let delay = Decision::Abandon(vec![property("peeklock-delay-ms", 10_000)]);
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, settle(&seen, delay.clone())).await.unwrap();
    s.roll_back(transaction).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.delayed, 0);
    s.advance(seconds(10)).await;
    s.assert_empty(ORDERS).await;
    s.renew(ORDERS, seen.token()).await.unwrap();
    // The same token settles in the next transaction.
    let transaction = s.begin().await.unwrap();
    s.within(transaction, ORDERS, settle(&seen, delay)).await.unwrap();
    s.advance(seconds(10)).await;
    s.commit(transaction).await.unwrap();
    s.advance(before(seconds(10))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.drain(ORDERS).await, ["a"]);
}
