//! Locks of a broker that was suspended.

use super::*;

const SECOND: TimeSpan = TimeSpan::from_seconds(1);

/// CLU-22: every lock in force ends later by the time of the suspension, also one that ends before
/// another that was taken earlier; the time of the suspension raises no delivery count.
#[test]
fn locks_are_prolonged() {
    let mut stand = Stand::new(|queue| queue.lock_duration = TimeSpan::from_seconds(60));
    stand.send(2, |_| {});
    let long = stand.receive(SubQueue::Main, 1, 1);
    stand.update(|queue| queue.lock_duration = TimeSpan::from_seconds(10));
    let short = stand.receive(SubQueue::Main, 1, 1);
    let start = stand.now;
    stand.now = start.plus(TimeSpan::from_seconds(45));
    stand.queue.prolong_locks(TimeSpan::from_seconds(40));
    stand.wait();
    assert_eq!((stand.in_force(&long), stand.in_force(&short)), (1, 1));
    stand.queue.check_invariants().unwrap();
    stand.now = start.plus(TimeSpan::from_seconds(50));
    stand.wait();
    assert_eq!((stand.in_force(&long), stand.in_force(&short)), (1, 0));
    stand.now = start.plus(TimeSpan::from_seconds(100)).minus(SECOND);
    stand.wait();
    assert_eq!(stand.in_force(&long), 1);
    stand.now = stand.now.plus(SECOND);
    stand.wait();
    assert_eq!(stand.in_force(&long), 0);
    stand.queue.check_invariants().unwrap();
}

/// CLU-22: so does a session lock with the locks under it.
#[test]
fn session_locks_are_prolonged() {
    let mut stand = Stand::new(|queue| {
        queue.requires_session = true;
        queue.lock_duration = TimeSpan::from_seconds(10);
    });
    stand.send(1, |message| message.session_id = Some("s".to_owned()));
    let (session, wait) = (Some("s".into()), TimeSpan::ZERO);
    let (receiver, mode) = (crate::ids::ReceiverId(7), ReceiveMode::PeekLock);
    stand.ask(Command::AcceptSession { session, receiver, mode, wait });
    let held = |stand: &Stand| {
        let sessions = stand.queue.sessions.as_ref().unwrap();
        sessions.hold_of(crate::ids::ReceiverId(7)).is_some()
    };
    stand.wait();
    assert!(held(&stand));
    let start = stand.now;
    stand.now = start.plus(TimeSpan::from_seconds(12));
    stand.queue.prolong_locks(TimeSpan::from_seconds(5));
    stand.wait();
    assert!(held(&stand));
    stand.now = start.plus(TimeSpan::from_seconds(15));
    stand.wait();
    stand.wait();
    assert!(!held(&stand));
    stand.queue.check_invariants().unwrap();
}
