//! Locks that an operator breaks, and states of sessions that nobody holds.

use bytes::Bytes;

use super::*;
use crate::command::{BROKEN_LOCK_COUNT_MAX, MachineOutcome, OperatorCommand, SessionCommand};
use crate::condition::Condition;

const MAIN: SubQueue = SubQueue::Main;

/// The answer to a command of an operator.
pub(super) fn operate(
    stand: &mut Stand,
    sub_queue: SubQueue,
    command: OperatorCommand,
) -> Result<MachineOutcome, Condition> {
    let mut result = None;
    stand.queue.committed(StageNumber(stand.stage));
    stand.turn_asking(sub_queue, [Command::OfOperator(command)], |answer| {
        result = Some(match answer {
            Ok(Answer::Now(outcome, Gate::Commit)) => Ok(outcome),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.condition()),
        });
    });
    result.unwrap()
}

fn broken(answer: Result<MachineOutcome, Condition>) -> u64 {
    match answer {
        Ok(Outcome::LocksBroken(count)) => count,
        other => panic!("{other:?}"),
    }
}

fn break_locks(numbers: &[u64], counts: bool) -> OperatorCommand {
    let sequences = numbers.iter().copied().map(SequenceNumber).collect();
    OperatorCommand::BreakLocks { sequences, counts }
}

/// CON-26, SET-32: a broken lock makes the message available at once, uncounted or counted, and the
/// holder's next settlement fails. Messages without a lock are skipped.
#[test]
fn broken_lock_returns_its_message_and_fails_the_holder() {
    for (counts, delivery_count) in [(false, 0), (true, 1)] {
        let mut stand = Stand::new(|_| {});
        stand.send(3, |_| {});
        let locks = stand.receive(MAIN, 2, 1);
        let answer = operate(&mut stand, MAIN, break_locks(&[1, 1, 3, 99], counts));
        assert_eq!(broken(answer), 1, "only message 1 of these is locked");
        assert_eq!(stand.in_force(&locks), 1, "the other lock stays");
        stand.turn_asking(
            MAIN,
            [Command::Settle { token: locks[0], settlement: crate::command::Settlement::Complete }],
            |answer| {
                assert_eq!(answer.unwrap_err().condition(), Condition::MessageLockLost);
            },
        );
        let slot = stand.queue.slots.get(SequenceNumber(1)).unwrap();
        assert_eq!((slot.delivery_count, slot.lock), (delivery_count, None));
        stand.wait();
        let again = stand.receive(MAIN, 9, 2);
        let numbers: Vec<u64> = again.iter().map(|lock| lock.sequence().0).collect();
        assert_eq!(numbers, [1, 3]);
        stand.queue.check_invariants().unwrap();
    }
}

/// CON-26, SET-34: a counted break at the maximum count dead-letters the message.
#[test]
fn counted_break_dead_letters_at_the_maximum_count() {
    let mut stand = Stand::new(|queue| queue.max_delivery_count = 1);
    stand.send(1, |_| {});
    stand.receive(MAIN, 1, 1);
    assert_eq!(broken(operate(&mut stand, MAIN, break_locks(&[1], true))), 1);
    assert_eq!(stand.queue.counts().dead_letter, 1);
    stand.wait();
    stand.receive(SubQueue::DeadLetter, 1, 1);
    let other = operate(&mut stand, MAIN, break_locks(&[1], true));
    assert_eq!(broken(other), 0, "it is locked in another sub-queue");
    assert_eq!(broken(operate(&mut stand, SubQueue::DeadLetter, break_locks(&[1], true))), 1);
    assert_eq!(stand.queue.counts().dead_letter, 1, "a sub-queue counts no deliveries");
}

/// CON-26: a deferred message is deferred again.
#[test]
fn broken_lock_defers_a_deferred_message_again() {
    let mut stand = Stand::new(|_| {});
    stand.send(1, |_| {});
    let locks = stand.receive(MAIN, 1, 1);
    let defer = crate::command::Settlement::Defer { properties: None };
    stand.ask(Command::Settle { token: locks[0], settlement: defer });
    stand.wait();
    let (mode, sequences) = (ReceiveMode::PeekLock, vec![SequenceNumber(1)]);
    let receive = Command::ReceiveDeferred { mode, sequences, holder: None };
    stand.ask(receive.clone());
    assert_eq!(broken(operate(&mut stand, MAIN, break_locks(&[1], false))), 1);
    assert_eq!(stand.queue.counts().deferred, 1);
    assert_eq!(stand.receive(MAIN, 1, 1).len(), 0);
    stand.ask(receive);
}

/// CON-26, CON-80: at most 500 locks are broken by one command, and a lock whose time is over or
/// whose session has its lock is not.
#[test]
fn break_has_a_limit_and_refuses_messages_of_sessions() {
    let mut stand = Stand::new(|_| {});
    let most: Vec<u64> = (1..=BROKEN_LOCK_COUNT_MAX as u64).collect();
    assert_eq!(broken(operate(&mut stand, MAIN, break_locks(&most, false))), 0);
    let more: Vec<u64> = (1..=BROKEN_LOCK_COUNT_MAX as u64 + 1).collect();
    let refused = operate(&mut stand, MAIN, break_locks(&more, false));
    assert_eq!(refused.unwrap_err(), Condition::ArgumentOutOfRange);
    let session = || "s".into();
    for command in [
        OperatorCommand::BreakSession { session: session(), counts: true },
        OperatorCommand::SetSessionState { session: session(), state: None },
    ] {
        let refused = operate(&mut stand, MAIN, command);
        assert_eq!(refused.unwrap_err(), Condition::InvalidOperation);
    }
    let mut stand = Stand::new(|queue| queue.requires_session = true);
    let refused = operate(&mut stand, MAIN, break_locks(&[1], false));
    assert_eq!(refused.unwrap_err(), Condition::InvalidOperation);
}

/// CON-26, SES-15, SES-31: a broken session lock returns all messages under it, and its holder gets
/// `SessionLockLost`. More messages than a step moves are returned by later steps.
#[test]
fn broken_session_returns_all_messages() {
    for (counts, delivery_count) in [(false, 0), (true, 1)] {
        let mut stand = Stand::new(|queue| queue.requires_session = true);
        in_sessions(&mut stand, MANY);
        accept(&mut stand, 1);
        receive_in_session(&mut stand, 1, MANY);
        let end = || OperatorCommand::BreakSession { session: "s".into(), counts };
        assert_eq!(broken(operate(&mut stand, MAIN, end())), 1);
        let detached = |effect: &Effect| {
            matches!(effect, Effect::Detached { reason, .. }
                if reason.condition() == Condition::SessionLockLost)
        };
        assert!(stand.effects.iter().any(detached));
        assert!(stand.is_due(), "a step moves fewer messages");
        assert_eq!(broken(operate(&mut stand, MAIN, end())), 0, "it is broken already");
        let renew = Command::InSession { receiver: ReceiverId(1), command: SessionCommand::Renew };
        stand.turn_asking(MAIN, [renew], |answer| {
            assert_eq!(answer.unwrap_err().condition(), Condition::SessionLockLost);
        });
        stand.settle_down();
        let count = |number| stand.queue.slots.get(SequenceNumber(number)).unwrap().delivery_count;
        assert_eq!([count(1), count(MANY as u64)], [delivery_count; 2]);
        accept(&mut stand, 2);
        assert_eq!(receive_in_session(&mut stand, 2, MANY).len(), MANY);
    }
}

/// CON-27, SES-24, SES-26: the state of a session is set only while nobody holds it, with the
/// checks of a holder. Clearing the state of an unknown session does nothing.
#[test]
fn state_is_set_only_while_nobody_holds_the_session() {
    let mut stand = Stand::new(|queue| {
        queue.requires_session = true;
        queue.max_message_size_in_kilobytes = 1;
    });
    let set = |name: &str, state: Option<Vec<u8>>| OperatorCommand::SetSessionState {
        session: name.into(),
        state: state.map(Bytes::from),
    };
    let exists = |stand: &Stand, name| stand.queue.session_named(name).is_some();
    operate(&mut stand, MAIN, set("s", None)).unwrap();
    assert!(!exists(&stand, "s") && stand.changes == 0);
    operate(&mut stand, MAIN, set("s", Some(vec![1; 1_024]))).unwrap();
    assert!(exists(&stand, "s"));
    let larger = operate(&mut stand, MAIN, set("s", Some(vec![1; 1_025])));
    assert_eq!(larger.unwrap_err(), Condition::MessageSizeExceeded);
    let long = "x".repeat(stand.limits.message_id_chars_max + 1);
    let refused = operate(&mut stand, MAIN, set(&long, Some(vec![1])));
    assert_eq!(refused.unwrap_err(), Condition::ArgumentOutOfRange);
    assert!(!exists(&stand, &long));
    accept(&mut stand, 1);
    let held = operate(&mut stand, MAIN, set("s", None));
    assert_eq!(held.unwrap_err(), Condition::SessionCannotBeLocked);
    assert_eq!(stand.queue.size_bytes(), 1_024);
    stand.detach(1, LinkEnd::Orderly);
    operate(&mut stand, MAIN, set("s", None)).unwrap();
    assert_eq!(stand.queue.size_bytes(), 0);
    assert!(!exists(&stand, "s"));
    let dead = operate(&mut stand, SubQueue::DeadLetter, set("s", None));
    assert_eq!(dead.unwrap_err(), Condition::InvalidOperation);
}
