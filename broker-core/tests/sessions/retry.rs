//! Retry with a delay in sessions (RTY-22 to RTY-25), and further effects of a delay.

use peeklock_core::command::{
    Command, Counts, LinkEnd, MachineOutcome, MessageState, SessionFilter,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{
    Jitter, QueueDescription, RetryKind, RetryPolicy, SessionRetryOrder,
};
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::stand::{Stand, message, seconds, sessionful};

/// A stand with `count` messages in session `a`, which receiver 1 holds.
fn holding(order: SessionRetryOrder, count: u32) -> Stand {
    let description = QueueDescription {
        session_retry_order: order,
        dead_lettering_on_message_expiration: true,
        ..sessionful()
    };
    let mut stand = Stand::of(description, true);
    for _ in 0..count {
        stand.send("a");
    }
    stand.accept(Some("a"), 1).unwrap();
    stand
}

fn fixed(delay: TimeSpan) -> RetryPolicy {
    RetryPolicy { kind: RetryKind::Fixed, delay, delay_max: None, jitter: Jitter::NONE }
}

fn update(stand: &mut Stand, change: impl FnOnce(&mut QueueDescription)) {
    let mut description = stand.describe().description;
    change(&mut description);
    let command = Command::Update { description: Box::new(description), read_at: None };
    stand.main(command).unwrap();
}

/// RTY-22, RTY-03: by default a delayed message blocks only later messages. Messages in flight can
/// be settled, and the lock renewed. When it is due it comes first.
#[test]
fn a_delayed_message_blocks_later_messages() {
    let mut stand = holding(SessionRetryOrder::Hold, 5);
    let first = stand.receive(1, 3).unwrap();
    stand.abandon_with_delay(&first[1], seconds(10)).unwrap();
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    stand.abandon(&first[0]).unwrap();
    assert_eq!(stand.numbers(1, 10), [1], "it is before the delayed one");
    stand.complete(&first[2]).unwrap();
    stand.wait(TimeSpan::from_ms(9_999));
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    assert!(stand.renew(1).is_ok());
    stand.wait(TimeSpan::from_ms(1));
    let again = stand.receive(1, 10).unwrap();
    assert_eq!(again.iter().map(|one| one.sequence.0).collect::<Vec<_>>(), [2, 4, 5]);
    assert_eq!(again[0].shown_delivery_count(), 2);
}

/// RTY-22, RTY-04: a waiting receive is answered when the message is due.
#[test]
fn a_waiting_receive_gets_the_message_when_it_is_due() {
    use peeklock_core::command::SessionCommand;
    use peeklock_core::ids::ReceiverId;

    let mut stand = holding(SessionRetryOrder::Hold, 2);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.abandon_with_delay(&first, seconds(5)).unwrap();
    let wait = seconds(20);
    let command = SessionCommand::Receive { count_max: 9, bytes_max: u64::MAX, wait };
    let command = Command::InSession { receiver: ReceiverId(1), command };
    let call = stand.ask(SubQueue::Main, command);
    stand.wait(TimeSpan::from_ms(4_999));
    assert!(stand.answer(call).is_none());
    stand.wait(TimeSpan::from_ms(1));
    let Some(Ok(MachineOutcome::Received(all))) = stand.answer(call) else { panic!("it is due") };
    assert_eq!(all.iter().map(|one| one.sequence.0).collect::<Vec<_>>(), [1, 2]);
}

/// RTY-23: with `pass` later messages are delivered. When the delayed message is due, it precedes
/// the remaining ones, also while the abandon is being stored.
#[test]
fn later_messages_pass_a_delayed_one_if_configured() {
    let mut stand = holding(SessionRetryOrder::Pass, 4);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.commits = false;
    stand.abandon_with_delay(&first, seconds(10)).unwrap();
    assert_eq!(stand.numbers(1, 1), [2]);
    stand.commits = true;
    stand.commit();
    assert_eq!(stand.numbers(1, 1), [3]);
    stand.wait(seconds(10));
    assert_eq!(stand.numbers(1, 10), [1, 4]);
}

/// RTY-23, SES-20: a message that is due before its abandon is durable is no longer passed.
#[test]
fn a_message_due_in_flight_blocks_later_messages() {
    let mut stand = holding(SessionRetryOrder::Pass, 2);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.commits = false;
    stand.abandon_with_delay(&first, seconds(1)).unwrap();
    stand.wait(seconds(1));
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    stand.commit();
    stand.commits = true;
    assert_eq!(stand.numbers(1, 10), [1, 2]);
}

/// RTY-23: the order can be changed while messages are delayed.
#[test]
fn a_change_of_the_order_applies_to_delayed_messages() {
    let mut stand = holding(SessionRetryOrder::Hold, 3);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.abandon_with_delay(&first, seconds(10)).unwrap();
    update(&mut stand, |description| description.session_retry_order = SessionRetryOrder::Pass);
    assert_eq!(stand.numbers(1, 1), [2]);
    update(&mut stand, |description| description.session_retry_order = SessionRetryOrder::Hold);
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    stand.wait(seconds(10));
    assert_eq!(stand.numbers(1, 10), [1, 3]);
}

/// RTY-24: accept next does not offer a blocked session, and wakes for it. Accept by id holds it,
/// and gets nothing until then.
#[test]
fn a_blocked_session_is_not_next() {
    let mut stand = holding(SessionRetryOrder::Hold, 2);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.abandon_with_delay(&first, seconds(10)).unwrap();
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(None, 2), Err(Condition::ServiceTimeout));
    assert_eq!(stand.accept(Some("a"), 3), Ok("a".into()));
    assert_eq!(stand.numbers(3, 10), [0; 0]);
    stand.close(3, LinkEnd::Orderly);
    let call = stand.accept_later(4, seconds(60));
    stand.wait(TimeSpan::from_ms(9_999));
    assert_eq!(stand.accepted(call, 4), None);
    stand.wait(TimeSpan::from_ms(1));
    assert_eq!(stand.accepted(call, 4), Some(Ok("a".into())));
    assert_eq!(stand.numbers(4, 10), [1, 2]);
}

/// RTY-24: a session whose lowest active message is available is offered, even if later messages
/// are delayed. With `pass`, any session with an available message is offered.
#[test]
fn a_session_with_an_available_message_is_next() {
    let mut stand = holding(SessionRetryOrder::Hold, 2);
    let both = stand.receive(1, 2).unwrap();
    stand.abandon_with_delay(&both[1], seconds(10)).unwrap();
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(None, 2), Ok("a".into()));
    assert_eq!(stand.numbers(2, 10), [1]);

    let mut stand = holding(SessionRetryOrder::Pass, 2);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.abandon_with_delay(&first, seconds(10)).unwrap();
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(None, 2), Ok("a".into()));
    assert_eq!(stand.numbers(2, 10), [2]);
}

/// RTY-25, RTY-17: with a policy, messages that are unsettled when the lock times out or the
/// connection breaks are delayed, each by its own count. RTY-19: not when the session is closed.
#[test]
fn a_lost_session_delays_each_message_by_its_own_count() {
    let linear = RetryPolicy { kind: RetryKind::Linear, ..fixed(seconds(10)) };
    let description = QueueDescription {
        retry_policy: Some(linear),
        session_retry_order: SessionRetryOrder::Pass,
        ..sessionful()
    };
    let mut stand = Stand::of(description, true);
    stand.send("a");
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.abandon_with_delay(&first, TimeSpan::ZERO).unwrap();
    assert_eq!(stand.numbers(1, 10), [1, 2], "its own delay wins over the policy");
    stand.wait(seconds(30));
    let until: Vec<_> =
        stand.peek(SubQueue::Main).iter().map(|facts| facts.delayed_until.unwrap()).collect();
    assert_eq!(until, [stand.now.plus(seconds(20)), stand.now.plus(seconds(10))]);
    stand.wait(seconds(20));
    for (receiver, end, is_delayed) in
        [(2, LinkEnd::Orderly, false), (3, LinkEnd::ByBroker, false), (4, LinkEnd::Broken, true)]
    {
        stand.accept(Some("a"), receiver).unwrap();
        assert_eq!(stand.numbers(receiver, 10), [1, 2]);
        stand.close(receiver, end);
        let states: Vec<_> =
            stand.peek(SubQueue::Main).iter().map(|facts| facts.delayed_until.is_some()).collect();
        assert_eq!(states, [is_delayed; 2], "{end:?}");
    }
}

/// RTY-25, EXP-41: an expiring session takes its delayed messages with it, whichever message is the
/// cause, and whether or not a delayed one becomes due meanwhile.
#[test]
fn a_session_expires_with_its_delayed_messages() {
    for (cause, others) in [(1, [2, 3]), (2, [1, 3])] {
        for order in SessionRetryOrder::ALL {
            let mut stand = holding(order, 0);
            for number in 1..=3 {
                match number == cause {
                    true => stand.send_with_ttl("a", seconds(5)),
                    false => stand.send("a"),
                };
            }
            let first = stand.receive(1, 1).unwrap().remove(0);
            stand.abandon_with_delay(&first, seconds(10)).unwrap();
            stand.wait(seconds(5));
            assert_eq!(stand.numbers(1, 10), [0; 0]);
            let mut dead = vec![cause, others[0], others[1]];
            dead.sort_unstable();
            assert_eq!(stand.peeked(SubQueue::DeadLetter), dead);
            let Counts { active, delayed, .. } = stand.describe().counts;
            assert_eq!((active, delayed), (0, 0));
            stand.wait(seconds(20));
            stand.send("a");
            assert_eq!(stand.numbers(1, 10), [4], "nothing holds it up");
        }
    }
}

/// RTY-06, RTY-11, RTY-12: after a restart a message is delayed until the same instant, and
/// messages that became due meanwhile are available. They count as active, and are shown with their
/// instant.
#[test]
fn delays_survive_a_restart() {
    let mut stand = holding(SessionRetryOrder::Hold, 3);
    let all = stand.receive(1, 3).unwrap();
    stand.abandon_with_delay(&all[0], seconds(10)).unwrap();
    stand.abandon_with_delay(&all[2], seconds(20)).unwrap();
    let until = stand.now.plus(seconds(20));
    let counts = stand.describe().counts;
    assert_eq!((counts.active, counts.delayed, counts.total()), (3, 2, 3));
    stand.crash();
    assert_eq!(stand.describe().counts, counts);
    assert_eq!(stand.sessions(SessionFilter::WithActiveMessages), ["a"]);
    assert_eq!(stand.accept(None, 2), Err(Condition::ServiceTimeout));
    stand.now = stand.now.plus(seconds(15));
    stand.crash();
    assert_eq!(stand.describe().counts, Counts { delayed: 1, ..counts });
    let shown: Vec<_> = stand
        .peek(SubQueue::Main)
        .iter()
        .map(|facts| (facts.sequence.0, facts.delivery_count, facts.state, facts.delayed_until))
        .collect();
    let (active, delayed) = (MessageState::Active, MessageState::Delayed);
    assert_eq!(shown, [(1, 1, active, None), (2, 0, active, None), (3, 1, delayed, Some(until))]);
    assert_eq!(stand.accept(None, 3), Ok("a".into()));
    assert_eq!(stand.numbers(3, 10), [1, 2]);
    stand.wait(seconds(5));
    assert_eq!(stand.numbers(3, 10), [3]);
}

/// RTY-06: an abandon that was lost with the process has no effect.
#[test]
fn an_unstored_delay_has_no_effect() {
    let mut stand = holding(SessionRetryOrder::Hold, 1);
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.commits = false;
    stand.abandon_with_delay(&first, seconds(10)).unwrap();
    stand.crash();
    let found = stand.peek(SubQueue::Main);
    assert_eq!((found[0].state, found[0].delivery_count), (MessageState::Active, 0));
}

/// RTY-13, DEL-07: both forms of a batch delete remove delayed messages like available ones, lowest
/// numbers first, and so does the delete by number.
#[test]
fn delayed_messages_are_deleted_like_available_ones() {
    use peeklock_core::command::SessionCommand;
    use peeklock_core::ids::SequenceNumber;

    for order in SessionRetryOrder::ALL {
        let mut stand = holding(order, 3);
        stand.wait(seconds(1));
        let first = stand.receive(1, 2).unwrap();
        stand.abandon_with_delay(&first[0], seconds(10)).unwrap();
        stand.abandon_with_delay(&first[1], seconds(10)).unwrap();
        let delete = SessionCommand::DeleteBatch { count_max: 1, enqueued_before: None };
        let deleted = stand.in_session(1, delete).unwrap();
        assert!(matches!(deleted, MachineOutcome::Deleted(1)), "{order:?}");
        assert_eq!(stand.peeked(SubQueue::Main), [2, 3]);
        stand.try_send(message("b")).unwrap();
        stand.wait(seconds(1));
        let delete = |count_max| Command::DeleteBatchUnlocked { count_max, enqueued_before: None };
        let deleted = stand.main(delete(10)).unwrap();
        assert!(matches!(deleted, MachineOutcome::Deleted(1)), "that of `b`: {order:?}");
        stand.close(1, LinkEnd::Orderly);
        let deleted = stand.main(delete(1)).unwrap();
        assert!(matches!(deleted, MachineOutcome::Deleted(1)), "{order:?}");
        assert_eq!(stand.peeked(SubQueue::Main), [3]);
        stand.accept(Some("a"), 2).unwrap();
        let third = stand.receive(2, 1).unwrap().remove(0);
        stand.abandon_with_delay(&third, seconds(10)).unwrap();
        let by_number = Command::DeleteDeferred { sequence: SequenceNumber(3) };
        assert!(stand.main(by_number.clone()).is_ok(), "{order:?}");
        assert_eq!(stand.main(by_number).unwrap_err(), Condition::MessageNotFound);
        assert_eq!(stand.describe().counts, Counts::default());
    }
}
