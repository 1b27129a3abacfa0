//! State after a restart: messages and session states, but no locks (SES-18, LIF-04).

use peeklock_core::command::{SessionFilter, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;

use crate::stand::{Stand, message, seconds};

/// SES-18: messages of every state are back in their session, and so is its state; locks are not.
#[test]
fn sessions_return_without_locks() {
    let mut stand = Stand::new();
    let later = stand.now.plus(seconds(100));
    stand.send("a");
    stand.send("a");
    stand.send("a");
    stand.send("b");
    let scheduled = Message { scheduled_enqueue_time: Some(later), ..message("c") };
    stand.try_send(scheduled).unwrap();
    stand.accept(Some("a"), 1).unwrap();
    stand.set_state(1, Some(b"half way")).unwrap();
    stand.accept(Some("held only"), 2).unwrap();
    let received = stand.receive(1, 3).unwrap();
    stand.abandon(&received[0]).unwrap();
    let defer = Settlement::Defer { properties: None };
    stand.settle_with(received[1].lock.unwrap().token, defer).unwrap();
    let dead_letter = Settlement::DeadLetter { properties: None };
    stand.settle_with(received[2].lock.unwrap().token, dead_letter).unwrap();
    let before = stand.describe();
    stand.crash();
    let after = stand.describe();
    assert_eq!(after.counts, before.counts);
    assert_eq!(after.size_bytes, before.size_bytes);
    assert_eq!(after.sessions.map(|counts| (counts.existing, counts.locked)), Some((3, 0)));
    assert_eq!(stand.sessions(SessionFilter::All), ["a", "b", "c"]);
    assert_eq!(stand.complete(&received[0]), Err(Condition::SessionLockLost));
    assert_eq!(stand.accept(None, 3), Ok("a".into()));
    assert_eq!(stand.state(3), Ok(Some(b"half way".to_vec())));
    let again = stand.receive(3, 10).unwrap();
    assert_eq!((again.len(), again[0].shown_delivery_count()), (1, 2));
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [3]);
    stand.wait(seconds(100));
    assert_eq!(stand.accept(None, 4), Ok("a".into()));
    assert_eq!(stand.accept(None, 5), Ok("b".into()));
    assert_eq!(stand.accept(None, 6), Ok("c".into()));
}

/// LIF-04: a change that was not durable has no effect.
#[test]
fn a_change_in_flight_is_lost() {
    let mut stand = Stand::new();
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    stand.set_state(1, Some(b"old")).unwrap();
    stand.commits = false;
    stand.send("b");
    stand.set_state(1, Some(b"new")).unwrap();
    stand.crash();
    stand.commits = true;
    assert_eq!(stand.sessions(SessionFilter::All), ["a"]);
    stand.accept(Some("a"), 2).unwrap();
    assert_eq!(stand.state(2), Ok(Some(b"old".to_vec())));
    assert_eq!(stand.describe().size_bytes, stand.stored_bytes);
}
