use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::{Pool, Room};

const STEP: u64 = 64 << 10;

/// Twenty that began and go no further have taken everything: after the grace the slowest of them
/// yields, and who came later has its room.
#[test]
fn who_is_slow_yields_to_who_waits() {
    let context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let pool = Pool::new(2 * STEP);
    let (mut slow, mut slower, mut honest) = (pool.seat(), pool.seat(), pool.seat());
    assert_eq!(slow.take(STEP, start, 20_000, start, &context), Room::Granted);
    assert_eq!(slower.take(STEP, start, 10_000, start, &context), Room::Granted);
    let later = start + Duration::from_secs(1);
    let again = Duration::from_millis(250);
    assert_eq!(honest.take(STEP, start, 16_384, start, &context), Room::Later(start + again));
    assert!(!slow.must_yield(20_000, &context) && !slower.must_yield(10_000, &context));
    let asked = honest.take(STEP, start, 16_384, later, &context);
    assert_eq!(asked, Room::Later(later + again));
    assert!(!slow.must_yield(20_000, &context));
    assert!(slower.must_yield(10_000, &context));
    // It may not be reading: a while later the next is told, too.
    honest.take(STEP, start, 16_384, later + again, &context);
    assert!(slow.must_yield(20_000, &context));
    drop(slower);
    assert_eq!(honest.take(STEP, start, 16_384, later, &context), Room::Granted);
}

/// One that arrives at a good pace is left alone.
#[test]
fn who_is_fast_does_not_yield() {
    let context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let pool = Pool::new(STEP);
    let (mut fast, mut other) = (pool.seat(), pool.seat());
    assert_eq!(fast.take(STEP, start, 10_000_000, start, &context), Room::Granted);
    let later = start + Duration::from_secs(5);
    assert_ne!(other.take(STEP, later, 0, later, &context), Room::Granted);
    assert!(!fast.must_yield(10_000_000, &context));
    fast.give_back();
    assert_eq!(other.take(STEP, later, 0, later, &context), Room::Granted);
    drop(other);
    assert_eq!(pool.free_bytes(), STEP);
}

/// When all who hold something wait for more, nothing would ever go on: one of them yields.
#[test]
fn of_those_who_all_wait_one_yields() {
    let context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let pool = Pool::new(2 * STEP);
    let (mut one, mut two) = (pool.seat(), pool.seat());
    assert_eq!(one.take(STEP, start, 0, start, &context), Room::Granted);
    assert_eq!(two.take(STEP, start, 0, start, &context), Room::Granted);
    assert_ne!(one.take(STEP, start, 1 << 20, start, &context), Room::Granted);
    assert_eq!(two.take(STEP, start, 1 << 20, start, &context), Room::Yield);
    two.give_back();
    assert_eq!(one.take(STEP, start, 1 << 20, start, &context), Room::Granted);
}

/// Who has room and nothing to pass yet is not slow; it is judged from when it begins. What is not needed goes back.
#[test]
fn who_has_nothing_to_pass_is_not_slow() {
    let context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    let pool = Pool::new(2 * STEP);
    let (mut resting, mut waiting) = (pool.seat(), pool.seat());
    assert_eq!(resting.take(2 * STEP, start, 0, start, &context), Room::Granted);
    resting.rest();
    assert_ne!(waiting.take(STEP, later(5), 0, later(5), &context), Room::Granted);
    assert!(!resting.must_yield(0, &context));
    resting.begin(later(5));
    assert_ne!(waiting.take(STEP, later(5), 0, later(7), &context), Room::Granted);
    assert!(resting.must_yield(0, &context));
    resting.shrink(STEP);
    assert_eq!((resting.held_bytes(), pool.free_bytes()), (STEP, STEP));
    assert_eq!(waiting.take(STEP, later(5), 0, later(7), &context), Room::Granted);
    resting.shrink(0);
    assert_eq!((resting.held_bytes(), pool.free_bytes()), (0, STEP));
}
