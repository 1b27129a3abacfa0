//! The order of messages within a session, settlement, and reading from outside.

use peeklock_core::command::{
    Command, Drain, LinkEnd, MachineOutcome, ReceiveMode, SessionCommand, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::ids::{ReceiverId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::stand::{Stand, message, seconds};

/// SES-19, SES-20: ascending, and an abandoned message is the next one.
#[test]
fn an_abandoned_message_is_next() {
    let mut stand = Stand::new();
    let numbers: Vec<u64> = (0..4).map(|_| stand.send("a")).collect();
    stand.accept(Some("a"), 1).unwrap();
    let first = stand.receive(1, 2).unwrap();
    assert_eq!(first[1].sequence.0, numbers[1]);
    stand.abandon(&first[0]).unwrap();
    let next = stand.receive(1, 2).unwrap();
    assert_eq!(next.iter().map(|one| one.sequence.0).collect::<Vec<_>>(), [numbers[0], numbers[2]]);
    assert_eq!(next[0].shown_delivery_count(), 2);
}

/// SES-20, DESIGN D5: while the abandon is being stored, later messages wait.
#[test]
fn messages_after_an_abandon_in_flight_wait() {
    let mut stand = Stand::new();
    for _ in 0..3 {
        stand.send("a");
    }
    stand.accept(Some("a"), 1).unwrap();
    let first = stand.receive(1, 1).unwrap().remove(0);
    stand.commits = false;
    stand.abandon(&first).unwrap();
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    let command = SessionCommand::Receive { count_max: 9, bytes_max: u64::MAX, wait: seconds(9) };
    let command = Command::InSession { receiver: ReceiverId(1), command };
    let call = stand.ask(SubQueue::Main, command);
    stand.commit();
    let Some(Ok(MachineOutcome::Received(all))) = stand.answer(call) else { panic!("served") };
    assert_eq!(all.iter().map(|one| one.sequence.0).collect::<Vec<_>>(), [1, 2, 3]);
}

/// SES-19: a message is not overtaken by a later one that is durable first, because stages become
/// durable in order. A scheduled message takes its place when it is enqueued.
#[test]
fn a_scheduled_message_joins_its_session_at_its_instant() {
    let mut stand = Stand::new();
    let at = stand.now.plus(seconds(10));
    let scheduled = Message { scheduled_enqueue_time: Some(at), ..message("a") };
    stand.try_send(scheduled).unwrap();
    let second = stand.send("a");
    assert_eq!(stand.accept(None, 1), Ok("a".into()));
    assert_eq!(stand.numbers(1, 10), [second]);
    stand.wait(seconds(10));
    assert_eq!(stand.numbers(1, 10), [second + 1]);
    assert_eq!(stand.peeked(SubQueue::Main), [second, second + 1]);
}

/// SES-22: a dead-lettered message leaves its session, and the receiver continues.
#[test]
fn a_dead_letter_is_out_of_its_session() {
    let mut stand = Stand::new();
    stand.send("a");
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    let first = stand.receive(1, 1).unwrap().remove(0);
    let settlement = Settlement::DeadLetter { properties: None };
    stand.settle_with(first.lock.unwrap().token, settlement).unwrap();
    assert_eq!(stand.numbers(1, 10), [2]);
    stand.close(1, LinkEnd::Orderly);
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 10,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Ok(MachineOutcome::Received(dead)) = stand.on(SubQueue::DeadLetter, receive) else {
        panic!()
    };
    let lock = dead[0].lock.unwrap();
    assert_eq!(dead[0].sequence.0, 1);
    // There each lock is independent: it is renewed, ended and settled without a session.
    let renew = Command::RenewLock { token: lock.token };
    assert!(stand.on(SubQueue::DeadLetter, renew.clone()).is_ok());
    stand.wait(seconds(30));
    assert_eq!(stand.on(SubQueue::DeadLetter, renew).unwrap_err(), Condition::MessageLockLost);
}

/// SES-21: receive-and-delete takes only messages of the session, in order.
#[test]
fn receive_and_delete_works_by_session() {
    let mut stand = Stand::new();
    for session in ["a", "b", "a"] {
        stand.send(session);
    }
    let accept = Command::AcceptSession {
        session: Some("a".into()),
        receiver: ReceiverId(1),
        mode: ReceiveMode::ReceiveAndDelete,
        wait: TimeSpan::ZERO,
    };
    stand.main(accept).unwrap();
    let received = stand.receive(1, 10).unwrap();
    assert_eq!(received.iter().map(|one| one.sequence.0).collect::<Vec<_>>(), [1, 3]);
    assert!(received.iter().all(|one| one.lock.is_none()));
    assert_eq!(stand.peeked(SubQueue::Main), [2]);
}

/// SES-21, RCV-16, RCV-17, RCV-18: credit of the link applies only to its session.
#[test]
fn a_link_gets_messages_of_its_session_by_credit() {
    let mut stand = Stand::new();
    for session in ["a", "b", "a", "a"] {
        stand.send(session);
    }
    stand.accept(Some("a"), 1).unwrap();
    assert!(stand.delivered.is_empty());
    let grant = |delivery_limit, drain| Command::SetCredit {
        receiver: ReceiverId(1),
        delivery_limit,
        byte_limit: u64::MAX,
        drain,
    };
    stand.main(grant(2, Drain::No)).unwrap();
    let numbers = |stand: &Stand| -> Vec<u64> {
        stand.delivered.iter().map(|(_, facts)| facts.sequence.0).collect()
    };
    assert_eq!(numbers(&stand), [1, 3]);
    let drained = stand.main(grant(10, Drain::Yes));
    assert!(matches!(drained, Ok(MachineOutcome::Granted { unused: 7 })));
    assert_eq!(numbers(&stand), [1, 3, 4]);
    stand.main(grant(10, Drain::No)).unwrap();
    stand.send("b");
    stand.send("a");
    assert_eq!(numbers(&stand), [1, 3, 4, 6]);
}

/// DEF-08: a deferred message is received by the holder of its session.
#[test]
fn deferred_messages_belong_to_their_session() {
    let mut stand = Stand::new();
    stand.send("a");
    stand.send("b");
    stand.accept(Some("a"), 1).unwrap();
    let first = stand.receive(1, 1).unwrap().remove(0);
    let defer = Settlement::Defer { properties: None };
    stand.settle_with(first.lock.unwrap().token, defer).unwrap();
    stand.accept(Some("b"), 2).unwrap();
    let sequences = vec![SequenceNumber(1)];
    let by_number = SessionCommand::ReceiveDeferred { sequences: sequences.clone() };
    let refused = stand.in_session(2, by_number.clone());
    assert_eq!(refused.unwrap_err(), Condition::SessionLockLost);
    let plain = Command::ReceiveDeferred { mode: ReceiveMode::PeekLock, sequences, holder: None };
    assert_eq!(stand.main(plain).unwrap_err(), Condition::SessionLockLost);
    let Ok(MachineOutcome::Received(found)) = stand.in_session(1, by_number.clone()) else {
        panic!()
    };
    assert_eq!(found[0].sequence.0, 1);
    // The session lock ends: the message is deferred as before, and counted once more (DEF-05,
    // SES-30, SET-33).
    stand.wait(seconds(30));
    let peeked = stand.peek(SubQueue::Main);
    assert_eq!((peeked[0].sequence.0, peeked[0].delivery_count), (1, 2));
    // Accepting requires no active message (DEF-08).
    assert_eq!(stand.accept(Some("a"), 3), Ok("a".into()));
    assert!(stand.in_session(3, by_number).is_ok());
}

/// PEK-07: by session without its lock; without a session, all.
#[test]
fn peeking_shows_one_session_or_all() {
    let mut stand = Stand::new();
    for session in ["a", "b", "a"] {
        stand.send(session);
    }
    stand.accept(Some("a"), 1).unwrap();
    stand.receive(1, 1).unwrap();
    let peek = |session: &str, from| Command::PeekSession {
        session: session.into(),
        from: SequenceNumber(from),
        count_max: 10,
    };
    let mut numbers = |command| match stand.main(command) {
        Ok(MachineOutcome::Peeked(all)) => all.iter().map(|one| one.sequence.0).collect::<Vec<_>>(),
        other => panic!("a peek was answered with {other:?}"),
    };
    assert_eq!(numbers(peek("a", 0)), [1, 3]);
    assert_eq!(numbers(peek("a", 2)), [3]);
    assert_eq!(numbers(peek("nobody", 0)), [0; 0]);
    assert_eq!(stand.peeked(SubQueue::Main), [1, 2, 3]);
}

/// DEL-07: the holder deletes in its session, an operator in all sessions that are not held.
#[test]
fn batch_deletes_respect_sessions() {
    let mut stand = Stand::new();
    for session in ["a", "b", "a", "c", "b"] {
        stand.send(session);
    }
    stand.wait(seconds(1));
    stand.accept(Some("a"), 1).unwrap();
    stand.receive(1, 1).unwrap();
    let admin = Command::DeleteBatchUnlocked { count_max: 2, enqueued_before: None };
    assert!(matches!(stand.main(admin.clone()), Ok(MachineOutcome::Deleted(2))));
    assert_eq!(stand.peeked(SubQueue::Main), [1, 3, 5]);
    let own = SessionCommand::DeleteBatch { count_max: 9, enqueued_before: None };
    assert!(matches!(stand.in_session(1, own), Ok(MachineOutcome::Deleted(1))));
    assert!(matches!(stand.main(admin.clone()), Ok(MachineOutcome::Deleted(1))));
    assert!(matches!(stand.main(admin), Ok(MachineOutcome::Deleted(0))));
    assert_eq!(stand.peeked(SubQueue::Main), [1]);
}
