//! Bounds and shared room of the account of a connection.
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use peeklock_core::permits::{Budget, GRACE, Pool};

use crate::{Account, Taking};

const KIB: u64 = 1 << 10;

/// A first content may have any size; a second must fit the bound.
#[test]
fn the_own_bound_lets_one_thing_pass_alone() {
    let mut account = Account::new(&Pool::new(64 << 20), 100 * KIB);
    assert!(account.has_room(500 * KIB));
    account.hold(500 * KIB);
    assert!(!account.has_room(1));
    account.release(450 * KIB);
    assert!(account.has_room(50 * KIB));
    assert!(!account.has_room(51 * KIB));
}

/// A request for the maximum encoded size counts against the own bound with the stored size.
#[test]
fn what_may_be_told_longer_has_the_same_own_bound() {
    let mut account = Account::new(&Pool::new(64 << 20), 100 * KIB).with_told(8);
    account.hold(50 * KIB);
    assert!(!account.has_room(401 * KIB));
    assert!(account.has_room(400 * KIB));
    account.hold(400 * KIB);
    assert!(!account.has_room(1));
}

/// A client that reads goes on although others have used up the shared room. Returned room wakes a
/// waiting account.
#[test]
fn every_connection_has_a_free_part() {
    let shared = Pool::new(256 * KIB);
    let mut greedy = Account::new(&shared, 1 << 20);
    let mut honest = Account::new(&shared, 1 << 20);
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

/// A client that reads nothing yields once others wait for the room. A client that reads does not
/// yield.
#[test]
fn who_takes_nothing_yields_to_who_waits() {
    let shared = Pool::new(128 * KIB);
    let budget = Budget::new(1 << 20).connection(1 << 20);
    let (mut stuck, mut taking) = (Taking::default(), Taking::default());
    let mut of_stuck = Account::new(&shared, 1 << 20);
    let mut of_taking = Account::new(&shared, 1 << 20);
    for account in [&mut of_stuck, &mut of_taking] {
        assert!(account.has_room(128 * KIB));
        account.hold(128 * KIB);
    }
    let asking = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let mut ask = |taken_bytes: u64, at| {
        let first = stuck.must_yield(7, 128 * KIB, (&of_stuck, &budget), at, &asking);
        let second = taking.must_yield(taken_bytes, 128 * KIB, (&of_taking, &budget), at, &asking);
        (first, second)
    };
    assert_eq!(ask(0, start), (false, false));
    assert_eq!(ask(256 * KIB, start + GRACE), (false, false), "nobody waits");
    let mut waits = Account::new(&shared, 1 << 20);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(waits.poll_room(128 * KIB, &mut context), Poll::Pending);
    assert_eq!(ask(512 * KIB, start + GRACE), (true, false));
    of_stuck.clear();
    assert_eq!(waits.poll_room(128 * KIB, &mut context), Poll::Ready(()));
}

/// Cancelling a wait for room gives up the turn, and the room that it had been granted.
#[test]
fn who_wants_nothing_any_more_leaves_the_room_to_others() {
    let shared = Pool::new(64 * KIB);
    let mut has = Account::new(&shared, 1 << 20);
    let mut wants = Account::new(&shared, 1 << 20);
    assert!(has.has_room(128 * KIB));
    has.hold(128 * KIB);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(wants.poll_room(128 * KIB, &mut context), Poll::Pending);
    has.clear();
    assert_eq!(shared.free_bytes(), 0, "it was handed over");
    wants.want_nothing();
    assert_eq!(shared.free_bytes(), 64 * KIB);
}
