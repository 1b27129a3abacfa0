//! Accepting, holding and losing sessions.

use peeklock_core::command::{
    Command, LinkEnd, MachineOutcome, ReceiveMode, SessionCommand, SessionFilter, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityStatus, QueueDescription};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::stand::{Stand, message, seconds, sessionful};

fn plain_receive() -> Command {
    Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: Some(ReceiverId(99)),
    }
}

/// SES-01, RCV-28, SND-25: every message has a session id, and is received only by session.
#[test]
fn a_queue_with_sessions_requires_a_session() {
    let mut stand = Stand::new();
    assert_eq!(stand.try_send(Message::default()), Err(Condition::InvalidOperation));
    let batch = [message("a"), Message::default()].map(Stand::inbound).into();
    let refused = stand.main(Command::SendBatch { messages: batch });
    assert_eq!(refused.unwrap_err(), Condition::InvalidOperation);
    assert_eq!(stand.describe().counts.total(), 0);
    assert_eq!(stand.main(plain_receive()).unwrap_err(), Condition::InvalidOperation);
    let attach = Command::Attach { receiver: ReceiverId(1), mode: ReceiveMode::PeekLock };
    assert_eq!(stand.main(attach).unwrap_err(), Condition::InvalidOperation);
    let batch = Command::DeleteBatch { count_max: 1, enqueued_before: None };
    assert_eq!(stand.main(batch).unwrap_err(), Condition::InvalidOperation);
    // The dead-letter queue is received without sessions (DLQ-11, MAT-04).
    let received = stand.on(SubQueue::DeadLetter, plain_receive()).unwrap();
    assert!(matches!(received, MachineOutcome::Received(all) if all.is_empty()));
}

/// SES-03, SND-25: the empty id is a session like others: it is accepted as the next one, and by
/// its id.
#[test]
fn the_empty_id_is_a_session() {
    let mut stand = Stand::new();
    stand.send("");
    stand.send("a");
    assert_eq!(stand.accept(None, 1), Ok("".into()));
    assert_eq!(stand.accept(Some(""), 2), Err(Condition::SessionCannotBeLocked));
    assert_eq!(stand.numbers(1, 10), [1]);
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(Some(""), 2), Ok("".into()));
    assert_eq!(stand.accept(None, 3), Ok("a".into()));
}

/// SES-09, MAT-04: an entity without sessions, and a sub-queue, have none to accept.
#[test]
fn a_queue_without_sessions_accepts_none() {
    let plain = QueueDescription { requires_session: false, ..sessionful() };
    let mut stand = Stand::of(plain, true);
    assert_eq!(stand.accept(Some("a"), 1), Err(Condition::InvalidOperation));
    assert_eq!(stand.accept(None, 1), Err(Condition::InvalidOperation));
    assert_eq!(stand.receive(1, 1).unwrap_err(), Condition::InvalidOperation);
    assert_eq!(stand.describe().sessions, None);
    // A session id has no effect there (MSG-10).
    stand.try_send(Message::default()).unwrap();
    stand.send("a");

    let mut stand = Stand::new();
    let accept = Command::AcceptSession {
        session: None,
        receiver: ReceiverId(1),
        mode: ReceiveMode::PeekLock,
        wait: TimeSpan::ZERO,
    };
    let refused = stand.on(SubQueue::DeadLetter, accept);
    assert_eq!(refused.unwrap_err(), Condition::InvalidOperation);
}

/// SES-05, SES-06, SES-11: by id, also before the first message, and only for one receiver.
#[test]
fn a_session_is_held_by_one() {
    let mut stand = Stand::new();
    assert_eq!(stand.accept(Some("a"), 1), Ok("a".into()));
    assert_eq!(stand.accept(Some("a"), 2), Err(Condition::SessionCannotBeLocked));
    let number = stand.send("a");
    assert_eq!(stand.numbers(1, 10), [number]);
    assert_eq!(stand.receive(2, 10).unwrap_err(), Condition::SessionLockLost);
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(Some("a"), 2), Ok("a".into()));
    assert_eq!(stand.numbers(2, 10), [number]);
}

/// SES-03: ids are compared exactly; at most 128 characters.
#[test]
fn session_ids_are_exact() {
    let mut stand = Stand::new();
    stand.send("a");
    stand.send("A");
    assert_eq!(stand.sessions(SessionFilter::All), ["A", "a"]);
    assert_eq!(stand.accept(Some("A"), 1), Ok("A".into()));
    assert_eq!(stand.accept(Some("a"), 2), Ok("a".into()));
    assert_eq!(stand.numbers(1, 10), [2]);
    assert_eq!(stand.accept(Some(&"ä".repeat(129)), 3), Err(Condition::ArgumentOutOfRange));
    assert!(stand.accept(Some(&"ä".repeat(128)), 3).is_ok());
    // A receiver holds one session.
    assert_eq!(stand.accept(Some("b"), 3), Err(Condition::InvalidOperation));
}

/// SES-07: accept next takes the session whose lowest available number is smallest.
#[test]
fn the_oldest_message_decides_which_session_is_next() {
    let mut stand = Stand::new();
    for session in ["c", "a", "b", "a"] {
        stand.send(session);
    }
    assert_eq!(stand.accept(None, 1), Ok("c".into()));
    assert_eq!(stand.accept(None, 2), Ok("a".into()));
    let first = stand.receive(2, 1).unwrap().remove(0);
    stand.complete(&first).unwrap();
    stand.close(2, LinkEnd::Orderly);
    assert_eq!(stand.accept(None, 3), Ok("b".into()));
    assert_eq!(stand.accept(None, 4), Ok("a".into()));
    assert_eq!(stand.accept(None, 5), Err(Condition::ServiceTimeout));
}

/// SES-08: calls wait in order for at most their time. A withdrawn one gets nothing.
#[test]
fn accepts_wait_in_order() {
    let mut stand = Stand::new();
    let withdrawn = stand.accept_later(1, seconds(60));
    let gone = stand.accept_later(2, seconds(60));
    let short = stand.accept_later(3, seconds(5));
    let first = stand.accept_later(4, seconds(60));
    let second = stand.accept_later(5, seconds(60));
    stand.main(Command::CancelReceive { call: withdrawn }).unwrap();
    assert_eq!(stand.accepted(withdrawn, 1), Some(Err(Condition::OperationCancelled)));
    stand.close(2, LinkEnd::Broken);
    assert_eq!(stand.accepted(gone, 2), Some(Err(Condition::OperationCancelled)));
    stand.wait(seconds(5));
    assert_eq!(stand.accepted(short, 3), Some(Err(Condition::ServiceTimeout)));
    assert!(Condition::ServiceTimeout.retryable() && !Condition::SessionCannotBeLocked.retryable());
    stand.send("a");
    stand.send("a");
    stand.send("b");
    assert_eq!(stand.accepted(first, 4), Some(Ok("a".into())));
    assert_eq!(stand.accepted(second, 5), Some(Ok("b".into())));
    assert_eq!(stand.numbers(4, 10), [1, 2]);
}

/// SES-08: workers that accept again after each session share the sessions, and no session waits
/// while a worker does.
#[test]
fn repeated_accepts_share_sessions() {
    let mut stand = Stand::new();
    let mut served = [0u32; 5];
    let mut calls: Vec<_> = (0..5u64).map(|worker| (worker, 1 + worker)).collect();
    let mut waiting: Vec<_> = calls
        .drain(..)
        .map(|(worker, receiver)| (worker, receiver, stand.accept_later(receiver, seconds(7))))
        .collect();
    let mut next_receiver = 10;
    for second in 0..600u64 {
        stand.send(&format!("session {second}"));
        let mut again = Vec::new();
        let mut granted = 0;
        for (worker, receiver, call) in std::mem::take(&mut waiting) {
            match stand.accepted(call, receiver) {
                Some(Ok(_)) => {
                    granted += 1;
                    served[usize::try_from(worker).unwrap()] += 1;
                    let message = stand.receive(receiver, 1).unwrap().remove(0);
                    stand.complete(&message).unwrap();
                    stand.close(receiver, LinkEnd::Orderly);
                    again.push(worker);
                }
                Some(Err(condition)) => {
                    assert_eq!(condition, Condition::ServiceTimeout);
                    again.push(worker);
                }
                None => waiting.push((worker, receiver, call)),
            }
        }
        assert!(granted > 0 || waiting.is_empty(), "a session waits while workers do");
        // Each accepts at its own time, like separate processes.
        for worker in again {
            next_receiver += 1;
            stand.wait(TimeSpan::from_ms(10 + 7 * i64::try_from(worker).unwrap()));
            let wait = seconds(5 + i64::try_from(worker).unwrap());
            let call = stand.accept_later(next_receiver, wait);
            waiting.push((worker, next_receiver, call));
        }
        stand.wait(seconds(1));
    }
    assert!(served.iter().all(|count| *count >= 60), "{served:?}");
}

/// SES-12, SES-14: the lock lasts LockDuration. Renewing it also extends the locks of the messages.
#[test]
fn a_session_is_renewed_as_a_whole() {
    let mut stand = Stand::new();
    stand.send("a");
    let accepted_at = stand.now;
    stand.accept(Some("a"), 1).unwrap();
    stand.wait(seconds(20));
    let received = stand.receive(1, 1).unwrap().remove(0);
    let lock = received.lock.unwrap();
    assert_eq!(lock.until, accepted_at.plus(seconds(30)));
    let renew = Command::RenewLock { token: lock.token };
    assert_eq!(stand.main(renew).unwrap_err(), Condition::InvalidOperation);
    assert_eq!(stand.renew(1), Ok(accepted_at.plus(seconds(50))));
    stand.wait(seconds(29));
    assert_eq!(stand.complete(&received), Ok(()));
    stand.wait(seconds(1));
    assert_eq!(stand.renew(1), Err(Condition::SessionLockLost));
}

/// SES-13, SES-15, SES-28: the loss of the lock permanently ends everything that was done through
/// it.
#[test]
fn a_lost_session_lock_loses_everything() {
    let mut stand = Stand::new();
    let (first, _) = (stand.send("a"), stand.send("a"));
    stand.accept(Some("a"), 1).unwrap();
    let received = stand.receive(1, 1).unwrap().remove(0);
    let call = Command::InSession {
        receiver: ReceiverId(1),
        command: SessionCommand::ReceiveDeferred { sequences: vec![SequenceNumber(first)] },
    };
    stand.wait(seconds(30));
    assert_eq!(stand.detached.get(&ReceiverId(1)), Some(&Condition::SessionLockLost));
    let lost = Condition::SessionLockLost;
    assert_eq!(stand.complete(&received), Err(lost));
    assert_eq!(stand.abandon(&received), Err(lost));
    assert_eq!(stand.renew(1), Err(lost));
    assert_eq!(stand.receive(1, 1).unwrap_err(), lost);
    assert_eq!(stand.state(1), Err(lost));
    assert_eq!(stand.set_state(1, Some(b"x")), Err(lost));
    assert_eq!(stand.main(call).unwrap_err(), lost);
    // The same if the next holder has settled the message.
    stand.accept(Some("a"), 2).unwrap();
    let again = stand.receive(2, 1).unwrap().remove(0);
    assert_eq!((again.sequence.0, again.shown_delivery_count()), (first, 2));
    stand.complete(&again).unwrap();
    assert_eq!(stand.complete(&received), Err(lost));
    // A token of the same holder that is used twice gives another error (SET-13).
    assert_eq!(stand.complete(&again), Err(Condition::MessageLockLost));
    assert_eq!(stand.settle_with(LockToken(17), Settlement::Complete), Err(lost));
}

/// SES-15: a call that waits for messages is refused when the lock ends.
#[test]
fn a_waiting_receive_ends_with_its_session() {
    let mut stand = Stand::new();
    stand.accept(Some("a"), 1).unwrap();
    let command = SessionCommand::Receive { count_max: 1, bytes_max: 9, wait: seconds(60) };
    let command = Command::InSession { receiver: ReceiverId(1), command };
    let call = stand.ask(SubQueue::Main, command.clone());
    stand.wait(seconds(30));
    assert_eq!(stand.answer(call).unwrap().unwrap_err(), Condition::SessionLockLost);
    // A call of a closed receiver gets nothing (RCV-14).
    stand.accept(Some("a"), 1).unwrap();
    let call = stand.ask(SubQueue::Main, command);
    stand.close(1, LinkEnd::Orderly);
    assert!(
        matches!(stand.answer(call), Some(Ok(MachineOutcome::Received(all))) if all.is_empty())
    );
    assert_eq!(stand.sessions(SessionFilter::All), Vec::<String>::new());
}

/// SES-16, SES-17: holders of different sessions get only their own messages.
#[test]
fn sessions_are_independent() {
    let mut stand = Stand::new();
    for session in ["a", "b", "c", "a", "b", "c"] {
        stand.send(session);
    }
    stand.accept(Some("a"), 1).unwrap();
    stand.accept(Some("b"), 2).unwrap();
    assert_eq!(stand.numbers(2, 10), [2, 5]);
    assert_eq!(stand.numbers(1, 10), [1, 4]);
    assert_eq!(stand.numbers(1, 10), [0; 0]);
    assert_eq!(
        stand.describe().sessions.map(|counts| (counts.existing, counts.locked)),
        Some((3, 2))
    );
}

/// SES-02, SES-04: a session exists while it has a message, a state or a holder.
#[test]
fn a_session_exists_while_it_owns_something() {
    let mut stand = Stand::new();
    stand.accept(Some("held"), 1).unwrap();
    stand.accept(Some("stated"), 2).unwrap();
    stand.set_state(2, Some(b"x")).unwrap();
    stand.close(2, LinkEnd::Orderly);
    stand.send("active");
    let later = stand.now.plus(seconds(100));
    let scheduled = Message { scheduled_enqueue_time: Some(later), ..message("scheduled") };
    let scheduled = stand.try_send(scheduled).unwrap();
    stand.send("deferred");
    stand.accept(Some("deferred"), 3).unwrap();
    let deferred = stand.receive(3, 1).unwrap().remove(0);
    let defer = Settlement::Defer { properties: None };
    stand.settle_with(deferred.lock.unwrap().token, defer).unwrap();
    stand.close(3, LinkEnd::Orderly);
    let all = ["active", "deferred", "held", "scheduled", "stated"];
    assert_eq!(stand.sessions(SessionFilter::All), all);
    // SES-29: sessions with active messages, and sessions whose state was set recently.
    assert_eq!(stand.sessions(SessionFilter::WithActiveMessages), ["active"]);
    let set_at = stand.now;
    assert_eq!(stand.sessions(SessionFilter::StateSetAfter(set_at)), [""; 0]);
    let before = set_at.minus(seconds(1));
    assert_eq!(stand.sessions(SessionFilter::StateSetAfter(before)), ["stated"]);
    let page = Command::ListSessions { which: SessionFilter::All, after: None, skip: 1, top: 2 };
    assert!(matches!(stand.main(page), Ok(MachineOutcome::Sessions(names))
        if names.iter().map(AsRef::as_ref).eq(["deferred", "held"])));

    stand.accept(Some("stated"), 4).unwrap();
    stand.set_state(4, None).unwrap();
    stand.close(4, LinkEnd::Orderly);
    stand.close(1, LinkEnd::Orderly);
    let command = Command::CancelScheduled { sequences: vec![SequenceNumber(scheduled)] };
    stand.main(command).unwrap();
    stand.main(Command::DeleteDeferred { sequence: deferred.sequence }).unwrap();
    let command = Command::DeleteBatchUnlocked { count_max: 9, enqueued_before: Some(later) };
    assert!(matches!(stand.main(command), Ok(MachineOutcome::Deleted(1))));
    assert_eq!(stand.sessions(SessionFilter::All), [""; 0]);
    assert_eq!(stand.describe().size_bytes, 0);
}

/// ENT-24, ENT-25, LIF: a status that blocks receives refuses waiting calls. Held messages can be
/// settled.
#[test]
fn a_disabled_queue_lets_holders_finish() {
    let mut stand = Stand::new();
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    stand.set_state(1, Some(b"half")).unwrap();
    let received = stand.receive(1, 1).unwrap().remove(0);
    let waiting = stand.accept_later(2, seconds(60));
    let description = QueueDescription { status: EntityStatus::ReceiveDisabled, ..sessionful() };
    let update = Command::Update { description: Box::new(description), read_at: None };
    stand.main(update).unwrap();
    assert_eq!(stand.accepted(waiting, 2), Some(Err(Condition::EntityDisabled)));
    assert_eq!(stand.accept(Some("b"), 3), Err(Condition::EntityDisabled));
    assert_eq!(stand.receive(1, 1).unwrap_err(), Condition::EntityDisabled);
    assert_eq!(stand.state(1), Ok(Some(b"half".to_vec())));
    assert!(stand.renew(1).is_ok());
    assert_eq!(stand.complete(&received), Ok(()));
}

/// RCV-22: receivers that hold or wait for sessions count as receivers.
#[test]
fn receivers_of_sessions_are_bounded() {
    let mut stand = Stand::new();
    stand.limits.receiver_count_max = 2;
    stand.accept(Some("a"), 1).unwrap();
    stand.accept_later(2, seconds(60));
    assert_eq!(stand.accept(Some("b"), 3), Err(Condition::QuotaExceeded));
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.accept(Some("b"), 3), Ok("b".into()));
}

/// SES-34: requesters share a reply queue. Each accepts its own session before the reply exists.
#[test]
fn replies_find_their_requester() {
    let mut stand = Stand::new();
    stand.accept(Some("requester-1"), 1).unwrap();
    stand.accept(Some("requester-2"), 2).unwrap();
    let reply = |session: &str, id: &str| Message {
        correlation_id: Some(id.to_owned().into()),
        ..message(session)
    };
    let second = stand.try_send(reply("requester-2", "b")).unwrap();
    let first = stand.try_send(reply("requester-1", "a")).unwrap();
    assert_eq!(stand.numbers(1, 10), [first]);
    assert_eq!(stand.numbers(2, 10), [second]);
}
