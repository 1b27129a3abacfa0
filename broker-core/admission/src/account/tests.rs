use std::task::Waker;

use super::*;
use crate::client_pace::ClientPace;
use crate::pace::GRACE;

const KIB: u64 = 1 << 10;

/// One thing may always be held, at any size; another only within the bound.
#[test]
fn the_own_bound_lets_one_thing_pass() {
    let mut account = Account::new(&Pool::new(64 << 20), 100 * KIB);
    assert!(account.try_take(500 * KIB));
    account.hold(500 * KIB);
    assert!(!account.try_take(1));
    account.release(450 * KIB);
    assert!(account.try_take(50 * KIB));
    assert!(!account.try_take(51 * KIB));
}

/// A request for the longest encoding counts for the own bound as the shortest one.
#[test]
fn an_expanding_account_has_the_same_own_bound() {
    let mut account = Account::new(&Pool::new(64 << 20), 100 * KIB).with_expansion(8);
    account.hold(50 * KIB);
    assert!(!account.try_take(401 * KIB));
    assert!(account.try_take(400 * KIB));
    account.hold(400 * KIB);
    assert!(!account.try_take(1));
}

/// A client that reads its deliveries continues although others have exhausted the pool; released
/// bytes wake a waiter.
#[test]
fn every_connection_has_a_free_part() {
    let shared = Pool::new(256 * KIB);
    let mut greedy = Account::new(&shared, 1 << 20);
    let mut honest = Account::new(&shared, 1 << 20);
    for _ in 0..5 {
        assert!(greedy.try_take(64 * KIB));
        greedy.hold(64 * KIB);
    }
    assert!(!greedy.try_take(64 * KIB));
    assert!(honest.try_take(64 * KIB));
    honest.hold(64 * KIB);
    assert!(!honest.try_take(1));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(honest.poll_wait(1, &mut context), Poll::Pending);
    greedy.release(320 * KIB);
    assert_eq!(honest.poll_wait(1, &mut context), Poll::Ready(()));
}

/// A client that takes nothing is evicted when others wait for the pool, and not before; one that takes its bytes, or has
/// none to take, is not.
#[test]
fn a_client_that_takes_nothing_is_evicted_for_a_waiter() {
    let shared = Pool::new(128 * KIB);
    let budget = Budget::new(1 << 20).connection(1 << 20);
    let (mut stuck, mut taking) = (ClientPace::default(), ClientPace::default());
    let mut of_stuck = Account::new(&shared, 1 << 20);
    let mut of_taking = Account::new(&shared, 1 << 20);
    for account in [&mut of_stuck, &mut of_taking] {
        assert!(account.try_take(128 * KIB));
        account.hold(128 * KIB);
    }
    let asking = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let mut ask = |taken_bytes: u64, at| {
        let first = stuck.is_evicted(7, 128 * KIB, (&of_stuck, &budget), at, &asking);
        let second = taking.is_evicted(taken_bytes, 128 * KIB, (&of_taking, &budget), at, &asking);
        (first, second)
    };
    assert_eq!(ask(0, start), (false, false));
    assert_eq!(ask(256 * KIB, start + GRACE), (false, false), "nobody waits");
    let mut waits = Account::new(&shared, 1 << 20);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(waits.poll_wait(128 * KIB, &mut context), Poll::Pending);
    assert_eq!(ask(512 * KIB, start + GRACE), (true, false));
    of_stuck.clear();
    assert_eq!(waits.poll_wait(128 * KIB, &mut context), Poll::Ready(()));
}

/// A wait that ends releases the bytes that it was granted.
#[test]
fn an_ended_wait_releases_its_bytes() {
    let shared = Pool::new(64 * KIB);
    let mut has = Account::new(&shared, 1 << 20);
    let mut wants = Account::new(&shared, 1 << 20);
    assert!(has.try_take(128 * KIB));
    has.hold(128 * KIB);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(wants.poll_wait(128 * KIB, &mut context), Poll::Pending);
    has.clear();
    assert_eq!(shared.free_bytes(), 0, "it was handed over");
    wants.end_wait();
    assert_eq!(shared.free_bytes(), 64 * KIB);
}
