//! Expiration of sessions as a whole (SES-23, EXP-40 to EXP-47).

use peeklock_core::command::{Command, LinkEnd, SessionFilter, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use crate::stand::{Stand, message, seconds, sessionful};

fn dead_lettering(expire_whole_sessions: bool) -> Stand {
    let description =
        QueueDescription { dead_lettering_on_message_expiration: true, ..sessionful() };
    Stand::of(description, expire_whole_sessions)
}

/// EXP-45, EXP-41, EXP-42: the test in the specification, with both settings of the switch.
#[test]
fn one_expired_message_expires_its_session() {
    for switch in [true, false] {
        let description =
            QueueDescription { dead_lettering_on_message_expiration: switch, ..sessionful() };
        let mut stand = Stand::of(description, true);
        stand.send("a");
        stand.send_with_ttl("a", seconds(1));
        stand.send("b");
        stand.wait(seconds(2));
        assert_eq!(stand.peeked(SubQueue::Main), [1, 2, 3], "nobody listens (EXP-42)");
        assert_eq!(stand.accept(Some("a"), 1), Ok("a".into()));
        assert_eq!(stand.numbers(1, 10), [0; 0]);
        let dead = stand.peeked(SubQueue::DeadLetter);
        assert_eq!(dead, if switch { vec![1, 2] } else { vec![] });
        assert_eq!(stand.peeked(SubQueue::Main), [3]);
        // Later messages start the session again (EXP-44).
        stand.send("a");
        assert_eq!(stand.numbers(1, 10), [4]);
    }
}

/// EXP-45: accept next does not offer an expiring session.
#[test]
fn an_expired_session_is_not_next() {
    let mut stand = dead_lettering(true);
    stand.send("a");
    stand.send_with_ttl("a", seconds(1));
    stand.wait(seconds(2));
    assert_eq!(stand.accept(None, 1), Err(Condition::ServiceTimeout));
    assert_eq!(stand.sessions(SessionFilter::All), [""; 0]);
    stand.send_with_ttl("b", seconds(1));
    stand.send("c");
    stand.wait(seconds(1));
    assert_eq!(stand.accept(None, 2), Ok("c".into()));
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [1, 2, 3]);
}

/// EXP-43: messages in flight are not affected, but the others are, although the session is held.
/// When a message in flight fails, its own time to live decides.
#[test]
fn messages_in_flight_outlive_their_session() {
    let mut stand = dead_lettering(true);
    stand.send("a");
    stand.send_with_ttl("a", seconds(5));
    stand.send_with_ttl("a", seconds(5));
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    let held = stand.receive(1, 2).unwrap();
    stand.wait(seconds(5));
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [3, 4], "one of two that wait has expired");
    stand.abandon(&held[0]).unwrap();
    stand.abandon(&held[1]).unwrap();
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [2, 3, 4]);
    assert_eq!(stand.numbers(1, 10), [1]);
}

/// EXP-43: a delivered message that expires while it is held does not expire the session.
#[test]
fn an_expired_message_in_flight_does_not_expire_its_session() {
    let mut stand = dead_lettering(true);
    stand.send_with_ttl("a", seconds(5));
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    let held = stand.receive(1, 1).unwrap().remove(0);
    stand.wait(seconds(6));
    assert_eq!(stand.peeked(SubQueue::Main), [1, 2]);
    assert_eq!(stand.complete(&held), Ok(()));
    assert_eq!(stand.numbers(1, 10), [2]);
}

/// EXP-44: deferred and scheduled messages and the state stay.
#[test]
fn expiry_keeps_deferred_and_scheduled_messages() {
    let mut stand = dead_lettering(true);
    stand.send("a");
    stand.send_with_ttl("a", seconds(5));
    let later = stand.now.plus(seconds(1_000));
    stand.try_send(Message { scheduled_enqueue_time: Some(later), ..message("a") }).unwrap();
    stand.accept(Some("a"), 1).unwrap();
    stand.set_state(1, Some(b"x")).unwrap();
    let first = stand.receive(1, 1).unwrap().remove(0);
    let defer = Settlement::Defer { properties: None };
    stand.settle_with(first.lock.unwrap().token, defer).unwrap();
    stand.send("a");
    stand.close(1, LinkEnd::Orderly);
    stand.wait(seconds(5));
    stand.accept(Some("a"), 2).unwrap();
    assert_eq!(stand.peeked(SubQueue::Main), [1, 3]);
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [2, 4]);
    assert_eq!(stand.state(2), Ok(Some(b"x".to_vec())));
}

/// EXP-41, EXP-46: the default time to live of the queue has the same effect, with the same reason.
#[test]
fn the_default_time_to_live_expires_sessions() {
    let description = QueueDescription {
        dead_lettering_on_message_expiration: true,
        default_message_time_to_live: seconds(10),
        ..sessionful()
    };
    let mut stand = Stand::of(description, true);
    stand.send("a");
    stand.wait(seconds(6));
    stand.send("a");
    stand.wait(seconds(4));
    assert_eq!(stand.accept(None, 1), Err(Condition::ServiceTimeout));
    let dead = stand.peek(SubQueue::DeadLetter);
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0].overlay_count, 1);
    assert_eq!(dead[0].size, dead[1].size, "both tell the same reason (EXP-46)");
}

/// EXP-47: with the setting off, each message expires by itself.
#[test]
fn messages_expire_one_by_one_if_configured() {
    let mut stand = dead_lettering(false);
    stand.send("a");
    stand.send_with_ttl("a", seconds(1));
    stand.send("a");
    stand.wait(seconds(2));
    stand.accept(Some("a"), 1).unwrap();
    assert_eq!(stand.numbers(1, 10), [1, 3]);
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [2]);
}

/// EXP-45: a session with more messages than one step moves is not offered until it is empty, and
/// expires completely although the broker restarts halfway.
#[test]
fn a_large_session_expires_over_several_steps() {
    const COUNT: u64 = 45_000;
    let mut stand = dead_lettering(true);
    stand.send_with_ttl("a", seconds(5));
    for _ in 0..10 {
        let messages = (0..COUNT / 10).map(|_| Stand::inbound(message("a"))).collect();
        stand.main(Command::SendBatch { messages }).unwrap();
    }
    stand.now = stand.now.plus(seconds(6));
    stand.commits = false;
    assert_eq!(stand.accept(Some("a"), 1), Ok("a".into()));
    assert_eq!(stand.numbers(1, 10), [0; 0], "half a session");
    assert!(stand.machine.counts().active > 0, "all was moved at once");
    stand.store_one();
    stand.crash();
    let left = stand.machine.counts().active;
    assert!(left > 0 && left < COUNT, "{left} messages are left");
    assert_eq!(stand.accept(Some("a"), 2), Ok("a".into()));
    assert_eq!(stand.numbers(2, 10), [0; 0], "half a session");
    assert!(stand.machine.counts().active > 0, "all was moved at once");
    stand.commits = true;
    stand.wait(TimeSpan::ZERO);
    let counts = stand.machine.counts();
    assert_eq!((counts.active, counts.dead_letter), (0, COUNT + 1));
    assert_eq!(stand.send("a"), COUNT + 2);
    assert_eq!(stand.numbers(2, 10), [COUNT + 2]);
}

/// EXP-45: while expiration is behind, accept next offers no session that has not been checked for
/// expiry, and the holder of such a session gets no message.
#[test]
fn nothing_is_offered_while_expiration_is_late() {
    let mut stand = dead_lettering(true);
    stand.send_with_ttl("a", seconds(5));
    for _ in 0..15 {
        let messages = (0..4_100).map(|_| Stand::inbound(message("a"))).collect();
        stand.main(Command::SendBatch { messages }).unwrap();
    }
    stand.send("z");
    stand.send_with_ttl("z", seconds(6));
    stand.now = stand.now.plus(seconds(7));
    stand.commits = false;
    assert_eq!(stand.accept(None, 1), Err(Condition::ServiceTimeout));
    assert_eq!(stand.accept(Some("z"), 2), Ok("z".into()));
    assert_eq!(stand.numbers(2, 10), [0; 0]);
    assert!(stand.machine.counts().active > 0, "all was moved at once");
    stand.commits = true;
    assert_eq!(stand.accept(None, 3), Err(Condition::ServiceTimeout));
    assert_eq!(stand.machine.counts().active, 0);
}
