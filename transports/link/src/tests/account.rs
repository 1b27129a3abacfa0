use std::task::{Context, Poll, Waker};

use peeklock_core::permits::Budget;

use crate::Account;

const KIB: u64 = 1 << 10;

/// One thing may always be held, whatever its size; another only within the bound.
#[test]
fn the_own_bound_lets_one_thing_pass_alone() {
    let mut account = Account::new(Budget::new(64 << 20), 100 * KIB);
    assert!(account.has_room(500 * KIB));
    account.hold(500 * KIB);
    assert!(!account.has_room(1));
    account.release(450 * KIB);
    assert!(account.has_room(50 * KIB));
    assert!(!account.has_room(51 * KIB));
}

/// Who takes what it is sent goes on, although others have used the shared budget up; what is given back
/// there wakes who waits.
#[test]
fn every_connection_has_a_free_part() {
    let shared = Budget::new(256 * KIB);
    let mut greedy = Account::new(shared.clone(), 1 << 20);
    let mut honest = Account::new(shared, 1 << 20);
    for _ in 0..5 {
        assert!(greedy.has_room(64 * KIB));
        greedy.hold(64 * KIB);
    }
    assert!(!greedy.has_room(64 * KIB));
    assert!(honest.has_room(64 * KIB));
    honest.hold(64 * KIB);
    assert!(!honest.has_room(1));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(honest.poll_room(1, &mut context), Poll::Pending);
    greedy.release(320 * KIB);
    assert_eq!(honest.poll_room(1, &mut context), Poll::Ready(()));
}
