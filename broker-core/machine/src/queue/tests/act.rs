//! Steps of an operator's job on messages that are named by number.

use std::sync::Arc;

use super::operator::operate;
use super::*;
use crate::command::{
    ACT_COUNT_MAX, Act, ActResult, BodyEdit, Deed, Edit, JobStep, MachineOutcome, NewInstant,
    OperatorCommand, RECEIPT_AGE_MAX, RECEIPT_COUNT_MAX, Settlement,
};
use crate::condition::Condition;
use crate::ids::JobId;
use crate::slot::SlotState;

const MAIN: SubQueue = SubQueue::Main;

pub(super) fn act(numbers: &[u64], deed: Deed) -> Act {
    let sequences = numbers.iter().copied().map(SequenceNumber).collect();
    Act { step: None, sequences, deed, breaks_locks: false, kept: None }
}

pub(super) fn of_job(job: u128, number: u64, act: Act) -> Act {
    Act { step: Some(JobStep { job: JobId(job), number }), ..act }
}

fn dead_letter(reason: &str) -> Deed {
    Deed::DeadLetter { reason: Some(reason.into()), description: None }
}

pub(super) fn ask(
    stand: &mut Stand,
    sub_queue: SubQueue,
    act: Act,
) -> Result<Vec<ActResult>, Condition> {
    let answer = operate(stand, sub_queue, OperatorCommand::Act(Box::new(act)));
    stand.queue.check_invariants().unwrap();
    answer.map(|outcome| match outcome {
        MachineOutcome::Acted(messages) => messages.iter().map(|one| one.result).collect(),
        other => panic!("{other:?}"),
    })
}

pub(super) fn results(stand: &mut Stand, sub_queue: SubQueue, act: Act) -> Vec<ActResult> {
    ask(stand, sub_queue, act).unwrap()
}

pub(super) fn forget(stand: &mut Stand, job: u128) {
    let done = operate(stand, MAIN, OperatorCommand::ForgetJob(JobId(job))).unwrap();
    assert!(matches!(done, Outcome::Done));
}

/// Defers the messages of these locks.
fn defer(stand: &mut Stand, locks: &[LockToken]) {
    for token in locks {
        let settlement = Settlement::Defer { properties: None };
        stand.ask(Command::Settle { token: *token, settlement });
    }
    stand.wait();
}

/// A queue rebuilt from the records of its receipts only.
fn receipts_after_restart(stand: &Stand, changes: &[Change]) -> Queue {
    let limits = &stand.limits;
    let description = QueueDescription::new("a", limits);
    let mut queue = Queue::new(EntityId(1), description, stand.queue.config, stand.now);
    let mut batch = crate::record::Batch::default();
    for change in changes {
        stand.queue.records(change, &mut batch);
    }
    for record in batch.records() {
        if let crate::record::Record::Put { key, value, .. } = record {
            queue.restore(key, value).unwrap();
        }
    }
    queue
}

/// CON-12: each deed, for messages in each state. A message that it does not apply to is left alone
/// and reported; no other message is locked or counted.
#[test]
fn deeds_apply_to_their_states_and_report_the_rest() {
    use ActResult::{Busy, Done, Locked, NotFound, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(5, |_| {});
    let locks = stand.receive(MAIN, 3, 1);
    defer(&mut stand, &locks[..1]);
    let later = stand.now.plus(TimeSpan::from_minutes(60));
    stand.send(2, |message| message.scheduled_enqueue_time = Some(later));
    // 1 is deferred, 2 and 3 locked, 4 and 5 available, 6 and 7 scheduled.
    let all = [1, 2, 4, 6, 99];
    let undeferred = results(&mut stand, MAIN, act(&all, Deed::Undefer));
    assert_eq!(undeferred, [Done, Locked, WrongState, WrongState, NotFound]);
    let moved = Deed::Reschedule(NewInstant::Later(TimeSpan::from_minutes(60)));
    let moved = results(&mut stand, MAIN, act(&all, moved));
    assert_eq!(moved, [WrongState, Locked, WrongState, Done, NotFound]);
    let dead = results(&mut stand, MAIN, act(&all, dead_letter("wrong")));
    assert_eq!(dead, [Done, Locked, Done, WrongState, NotFound]);
    // The changes of messages 1 and 4 are not durable at the second command of the same turn.
    let mut both = Vec::new();
    let deletions = [act(&[3, 5], Deed::Delete), act(&[1, 6], Deed::Delete)]
        .map(|act| Command::OfOperator(OperatorCommand::Act(Box::new(act))));
    stand.turn_asking(MAIN, deletions, |answer| both.push(answer.unwrap()));
    let [first, second] = &both[..] else { panic!("{both:?}") };
    let of = |answer: &Answer| match answer {
        Answer::Now(Outcome::Acted(all), Gate::Commit) => {
            all.iter().map(|one| one.result).collect()
        }
        other => panic!("{other:?}"),
    };
    let (first, second): (Vec<ActResult>, Vec<ActResult>) = (of(first), of(second));
    assert_eq!((&first[..], &second[..]), (&[Locked, Done][..], &[NotFound, Done][..]));
    let dead = results(&mut stand, SubQueue::DeadLetter, act(&[1, 4, 5], Deed::Delete));
    assert_eq!(dead, [Done, Done, NotFound]);
    assert_eq!(stand.in_force(&locks), 2, "locks of others stay");
    let counts = stand.queue.counts();
    assert_eq!((counts.active, counts.scheduled, counts.dead_letter), (2, 1, 0));
    // A message that was just sent is not durable.
    stand.turn_before_commit(
        MAIN,
        [Command::CancelScheduled { sequences: vec![SequenceNumber(7)] }],
    );
    assert_eq!(results(&mut stand, MAIN, act(&[7], Deed::Delete)), [NotFound]);
    let message = {
        let content = Message::new("").encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        crate::command::InboundMessage { content, envelope }
    };
    let delete = OperatorCommand::Act(Box::new(act(&[8], Deed::Delete)));
    let commands = [Command::Send { message }, Command::OfOperator(delete)];
    let mut last = None;
    stand.turn_asking(MAIN, commands, |answer| last = Some(of_any(answer)));
    assert_eq!(last.unwrap(), [Busy]);
}

fn of_any(answer: Result<Answer, Rejection>) -> Vec<ActResult> {
    match answer.unwrap() {
        Answer::Now(Outcome::Acted(all), _) => all.iter().map(|one| one.result).collect(),
        _ => Vec::new(),
    }
}

/// CON-12, CON-26, SET-32: with the flag, a deed breaks the lock of a receiver, uncounted; its next
/// settlement fails.
#[test]
fn deed_breaks_a_lock_only_if_asked() {
    for deed in [Deed::Delete, dead_letter("wrong")] {
        let mut stand = Stand::new(|_| {});
        stand.send(2, |_| {});
        let locks = stand.receive(MAIN, 2, 1);
        let left = act(&[1], deed.clone());
        assert_eq!(results(&mut stand, MAIN, left.clone()), [ActResult::Locked]);
        let broken = Act { breaks_locks: true, ..left };
        assert_eq!(results(&mut stand, MAIN, broken), [ActResult::Done]);
        assert_eq!(stand.in_force(&locks), 1);
        let settlement = Settlement::Complete;
        stand.turn_asking(MAIN, [Command::Settle { token: locks[0], settlement }], |answer| {
            assert_eq!(answer.unwrap_err().condition(), Condition::MessageLockLost);
        });
        let count = stand.queue.slots.get(SequenceNumber(1)).map_or(0, |slot| slot.delivery_count);
        assert_eq!(count, 0);
    }
}

/// CON-12, CON-26, DEF-01, RCV-26: an undeferred message is active again at its place, with its delivery
/// count. In a queue with sessions it returns to the order of its session. An expired one stays.
#[test]
fn undeferred_message_returns_to_its_place() {
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    let locks = stand.receive(MAIN, 1, 1);
    defer(&mut stand, &locks);
    assert_eq!(results(&mut stand, MAIN, act(&[1], Deed::Undefer)), [ActResult::Done]);
    let slot = stand.queue.slots.get(SequenceNumber(1)).unwrap();
    assert_eq!((slot.delivery_count, slot.state), (1, SlotState::Active));
    let again = stand.receive(MAIN, 3, 1);
    assert_eq!(again.iter().map(|lock| lock.sequence().0).collect::<Vec<_>>(), [1, 2, 3]);

    let mut stand = Stand::new(|queue| queue.requires_session = true);
    in_sessions(&mut stand, 2);
    accept(&mut stand, 1);
    let first = receive_in_session(&mut stand, 1, 1);
    let settlement = Settlement::Defer { properties: None };
    let settle = Command::Settle { token: first[0], settlement };
    stand.turn(MAIN, Some(settle));
    assert_eq!(results(&mut stand, MAIN, act(&[1], Deed::Undefer)), [ActResult::Done]);
    stand.wait();
    let again = receive_in_session(&mut stand, 1, 2);
    assert_eq!(again.iter().map(|lock| lock.sequence().0).collect::<Vec<_>>(), [1, 2]);
    let dead = Act { breaks_locks: true, ..act(&[2], dead_letter("wrong")) };
    let locked = results(&mut stand, MAIN, dead);
    assert_eq!(locked, [ActResult::Locked], "only the lock of the session is broken");
    stand.settle_down();

    let mut stand = Stand::new(|_| {});
    stand.send(1, |message| message.time_to_live = Some(TimeSpan::from_seconds(5)));
    let locks = stand.receive(MAIN, 1, 1);
    defer(&mut stand, &locks);
    stand.now = stand.now.plus(TimeSpan::from_seconds(5));
    assert_eq!(results(&mut stand, MAIN, act(&[1], Deed::Undefer)), [ActResult::Expired]);
    assert_eq!(stand.queue.counts().deferred, 1);
}

/// CON-12, SCH-03, EXP-17: a rescheduled message is enqueued at its new instant, from which its time
/// to live counts.
#[test]
fn rescheduled_message_is_enqueued_at_its_new_instant() {
    let hours = |count: i64| TimeSpan::from_minutes(60 * count);
    let (start, mut stand) = (Timestamp::from_unix_ms(1_800_000_000_000), Stand::new(|_| {}));
    stand.send(4, |message| {
        message.scheduled_enqueue_time = Some(start.plus(hours(2)));
        message.time_to_live = Some(hours(1));
    });
    let to = |instant| Deed::Reschedule(instant);
    for (number, instant, at) in [
        (1, NewInstant::Later(hours(1)), start.plus(hours(3))),
        (2, NewInstant::At(start.plus(hours(5))), start.plus(hours(5))),
        (3, NewInstant::Earlier(hours(9)), start),
        (4, NewInstant::Now, start),
    ] {
        assert_eq!(results(&mut stand, MAIN, act(&[number], to(instant))), [ActResult::Done]);
        let slot = stand.queue.slots.get(SequenceNumber(number)).unwrap();
        assert_eq!((slot.enqueued_at, slot.expires_at), (at, at.plus(hours(1))));
    }
    stand.wait();
    stand.settle_down();
    let counts = stand.queue.counts();
    assert_eq!((counts.active, counts.scheduled), (2, 2));
    stand.now = start.plus(hours(3));
    stand.settle_down();
    assert_eq!(stand.queue.counts().scheduled, 1);
}

/// CON-12: an instant beyond the calendar, also as the end of the time to live, is refused for the
/// whole step.
#[test]
fn instant_beyond_the_calendar_is_refused() {
    let mut stand = Stand::new(|_| {});
    let at = stand.now.plus(TimeSpan::from_minutes(60));
    stand.send(2, |message| {
        message.scheduled_enqueue_time = Some(at);
        message.time_to_live = Some(TimeSpan::from_minutes(60));
    });
    let last = Timestamp::NEVER.minus(TimeSpan::from_minutes(1));
    for to in
        [NewInstant::At(Timestamp::NEVER), NewInstant::Later(TimeSpan::MAX), NewInstant::At(last)]
    {
        let refused = ask(&mut stand, MAIN, act(&[9, 2], Deed::Reschedule(to)));
        assert_eq!(refused.unwrap_err(), Condition::ArgumentOutOfRange);
    }
    assert_eq!(stand.queue.slots.get(SequenceNumber(2)).unwrap().enqueued_at, at);
}

/// CON-12, SET-10, SET-11: reason and description are limited as for a receiver: a message whose
/// header has no room for them is left alone, and texts over their limits are refused.
#[test]
fn reason_and_description_have_their_limits() {
    let mut stand = Stand::new(|_| {});
    stand.limits.header_bytes_max = 2_000;
    stand.send(1, |message| message.subject = Some("x".repeat(1_900)));
    stand.send(1, |_| {});
    let both = act(&[1, 2], dead_letter(&"y".repeat(200)));
    assert_eq!(results(&mut stand, MAIN, both), [ActResult::TooLarge, ActResult::Done]);
    assert_eq!(stand.queue.counts().dead_letter, 1);
    let long = "y".repeat(stand.limits.dead_letter_reason_chars_max + 1);
    let refused = ask(&mut stand, MAIN, act(&[1], dead_letter(&long)));
    assert_eq!(refused.unwrap_err(), Condition::ArgumentOutOfRange);
}

/// CON-12, CON-80: a step has 1 to 256 messages, none twice, and a deed that its sub-queue permits.
#[test]
fn step_is_refused_as_a_whole_if_it_is_invalid() {
    let mut stand = Stand::new(|_| {});
    stand.send(1, |_| {});
    let most: Vec<u64> = (1..=ACT_COUNT_MAX as u64).collect();
    assert_eq!(results(&mut stand, MAIN, act(&most, Deed::Undefer)).len(), ACT_COUNT_MAX);
    let more: Vec<u64> = (1..=ACT_COUNT_MAX as u64 + 1).collect();
    let dead = SubQueue::DeadLetter;
    for (sub_queue, act, condition) in [
        (MAIN, act(&more, Deed::Delete), Condition::ArgumentOutOfRange),
        (MAIN, act(&[], Deed::Delete), Condition::ArgumentOutOfRange),
        (MAIN, act(&[1, 1], Deed::Delete), Condition::ArgumentError),
        (dead, act(&[1], dead_letter("again")), Condition::InvalidOperation),
        (dead, act(&[1], Deed::Reschedule(NewInstant::Now)), Condition::InvalidOperation),
    ] {
        assert_eq!(ask(&mut stand, sub_queue, act).unwrap_err(), condition);
    }
    assert_eq!(stand.queue.counts().active, 1);
}

/// CON-15: a repeated step changes nothing and has the answer of its first run, also after a
/// restart. An earlier step, and a step with other messages or another deed, are refused.
#[test]
fn repeated_step_answers_from_its_receipt() {
    use ActResult::{Done, NotFound, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    let step = of_job(1, 7, act(&[1, 9], Deed::Delete));
    assert_eq!(results(&mut stand, MAIN, step.clone()), [Done, NotFound]);
    for _ in 0..2 {
        assert_eq!(results(&mut stand, MAIN, step.clone()), [Done, NotFound]);
        assert_eq!(stand.changes, 0, "a repetition changes nothing");
    }
    let again = act(&[1, 9], Deed::Delete);
    assert_eq!(results(&mut stand, MAIN, again.clone()), [NotFound; 2], "a step without a job");
    let others = of_job(2, 7, again.clone());
    assert_eq!(results(&mut stand, MAIN, others), [NotFound; 2], "a step of another job");
    for refused in [
        of_job(1, 6, again.clone()),
        of_job(1, 7, act(&[1], Deed::Delete)),
        of_job(1, 7, act(&[1, 2], Deed::Delete)),
        of_job(1, 7, act(&[1, 9], Deed::Undefer)),
        of_job(1, 7, act(&[1, 9], dead_letter("wrong"))),
        of_job(1, 7, Act { breaks_locks: true, ..again.clone() }),
    ] {
        assert_eq!(ask(&mut stand, MAIN, refused).unwrap_err(), Condition::InvalidOperation);
    }
    let elsewhere = ask(&mut stand, SubQueue::DeadLetter, step.clone());
    assert_eq!(elsewhere.unwrap_err(), Condition::InvalidOperation);
    let next = of_job(1, 8, act(&[2], Deed::Undefer));
    assert_eq!(results(&mut stand, MAIN, next), [WrongState]);
    let old = ask(&mut stand, MAIN, step.clone());
    assert_eq!(old.unwrap_err(), Condition::InvalidOperation, "only the last step is kept");
    forget(&mut stand, 1);
    assert_eq!(results(&mut stand, MAIN, step), [NotFound; 2], "the job is forgotten");
}

/// CON-15, CON-16: a step with another body is another step, also if its bytes follow each other in
/// the same order.
#[test]
fn step_with_another_body_is_refused() {
    let mut stand = Stand::new(|_| {});
    let step = |changes: &'static str, body: Option<BodyEdit>| {
        let changes = crate::message::Overlay::from_bytes(changes.into());
        let edit = Some(Arc::new(Edit { changes, new_id: false, body }));
        of_job(1, 7, act(&[9], Deed::Move { to: "to".into(), edit }))
    };
    let whole = |text: &'static str| Some(BodyEdit::Whole(text.into()));
    let first = step("xy", whole("b"));
    for _ in 0..2 {
        assert_eq!(results(&mut stand, MAIN, first.clone()), [ActResult::NotFound]);
    }
    for refused in [
        step("xy", None),
        step("xy", whole("c")),
        step("x", whole("yb")),
        step("xy\x0cb", None),
        step("xy", Some(BodyEdit::MergePatch("b".into()))),
    ] {
        assert_eq!(ask(&mut stand, MAIN, refused).unwrap_err(), Condition::InvalidOperation);
    }
}

/// CON-15, CON-80: an entity keeps the receipts of 8 jobs. A job that was silent for a day makes way
/// for a ninth; until then the ninth is refused. A forgotten job frees its place. Receipts count as
/// remembered ids of the broker, and survive a restart.
#[test]
fn receipts_are_bounded_and_durable() {
    let mut stand = Stand::new(|_| {});
    let step = |job| of_job(job, 1, act(&[5], Deed::Delete));
    for job in 1..=RECEIPT_COUNT_MAX as u128 {
        results(&mut stand, MAIN, step(job));
        stand.now = stand.now.plus(TimeSpan::from_seconds(1));
    }
    assert_eq!(stand.queue.memory_use().duplicate_ids, RECEIPT_COUNT_MAX as u64);
    assert_eq!(ask(&mut stand, MAIN, step(9)).unwrap_err(), Condition::QuotaExceeded);
    results(&mut stand, MAIN, of_job(3, 2, act(&[5], Deed::Delete)));
    forget(&mut stand, 2);
    results(&mut stand, MAIN, step(9));
    let first = stand.now.minus(TimeSpan::from_seconds(8));
    stand.now = first.plus(RECEIPT_AGE_MAX).minus(TimeSpan::from_ticks(1));
    assert_eq!(ask(&mut stand, MAIN, step(10)).unwrap_err(), Condition::QuotaExceeded);
    stand.now = first.plus(RECEIPT_AGE_MAX);
    results(&mut stand, MAIN, step(10));
    let jobs = |queue: &Queue| queue.receipts.iter().map(|one| one.step.job.0).collect::<Vec<_>>();
    assert_eq!(jobs(&stand.queue), [3, 4, 5, 6, 7, 8, 9, 10], "the oldest made way");
    let kept = stand.queue.receipts.iter().cloned();
    let changes: Vec<Change> = kept.map(|one| Change::Receipted(Box::new(one))).collect();
    let again = receipts_after_restart(&stand, &changes);
    assert!(again.receipts.iter().eq(stand.queue.receipts.iter()));
}
