use std::future::Future as _;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Waker;
use std::time::Instant;

use super::paced::Look;
use super::*;

mod eviction;

const STEP: u64 = 64 << 10;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Shares that began and go no further have taken everything: after the grace the slowest are evicted, as many as are
/// needed, and a later waiter gets their bytes.
#[test]
fn slow_shares_are_evicted_for_a_waiter() {
    let start = Instant::now();
    let pool = Pool::of_parts(3 * STEP);
    let (mut slower, mut slow, mut fast) =
        (pool.paced_share(), pool.paced_share(), pool.paced_share());
    let mut honest = pool.paced_share();
    assert_eq!(slower.look(STEP, 0, start, &context()), Look::Granted);
    assert_eq!(slow.look(STEP, 0, start + ms(10), &context()), Look::Granted);
    assert_eq!(fast.look(STEP, 0, start + ms(10), &context()), Look::Granted);
    assert_eq!(honest.look(STEP, 0, start + ms(20), &context()), Look::Later(start + ms(120)));
    assert!(!slower.was_evicted(), "no share is slow yet");
    assert_eq!(
        honest.look(STEP, 0, start + ms(180), &context()),
        Look::Later(start + GRACE),
        "it looks again when the first is slow, and no later"
    );
    assert_eq!(
        honest.look(STEP, 0, start + ms(220), &context()),
        Look::Later(start + ms(230)),
        "it does not look all the time"
    );
    let later = start + ms(255);
    assert!(!fast.is_evicted(STEP, later, &context()));
    assert!(matches!(honest.look(STEP, 0, later, &context()), Look::Later(_)));
    assert!(slower.was_evicted());
    let later = start + ms(300);
    assert!(matches!(honest.look(STEP, 0, later, &context()), Look::Later(_)));
    assert!(!slow.was_evicted(), "the bytes that are coming back are enough");
    // Its user may not be reading: a while later the next is evicted, too.
    assert!(matches!(honest.look(STEP, 0, later + ms(100), &context()), Look::Later(_)));
    assert!(slow.was_evicted() && !fast.was_evicted());
    drop(slower);
    assert_eq!(honest.look(STEP, 0, later + ms(100), &context()), Look::Granted);
}

/// A share that passes enough is not evicted, nor is one that has nothing to pass; spare bytes are released.
#[test]
fn a_resting_share_is_not_slow() {
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    let pool = Pool::new(2 * STEP);
    let (mut resting, mut waiting) = (pool.paced_share(), pool.paced_share());
    assert_eq!(resting.look(2 * STEP, 0, start, &context()), Look::Granted);
    resting.rest();
    assert_ne!(waiting.look(STEP, 0, later(5), &context()), Look::Granted);
    assert!(!resting.was_evicted());
    resting.begin(later(5));
    assert_ne!(waiting.look(STEP, 0, later(5), &context()), Look::Granted);
    assert!(!resting.was_evicted());
    assert_ne!(waiting.look(STEP, 0, later(7), &context()), Look::Granted);
    assert!(resting.was_evicted());
    resting.release_beyond(STEP);
    assert_eq!(resting.held_bytes(), STEP);
    assert_eq!(waiting.look(STEP, 0, later(7), &context()), Look::Granted);
    assert_eq!(pool.free_bytes(), 0);
    resting.release_beyond(0);
    assert_eq!((resting.held_bytes(), pool.free_bytes()), (0, STEP));
}

/// When all holders wait for more, nothing would ever go on: the longest waiter is evicted at once.
#[test]
fn a_holder_is_evicted_when_all_holders_wait() {
    let start = Instant::now();
    let pool = Pool::of_parts(2 * STEP);
    let (mut one, mut two) = (pool.paced_share(), pool.paced_share());
    assert_eq!(one.look(STEP, 0, start, &context()), Look::Granted);
    assert_eq!(two.look(STEP, 0, start, &context()), Look::Granted);
    let mut new = pool.paced_share();
    assert_ne!(one.look(STEP, 1 << 20, start, &context()), Look::Granted);
    assert_ne!(two.look(STEP, 1 << 20, start, &context()), Look::Granted);
    assert!(!one.was_evicted() && two.was_evicted(), "the first is to have the bytes");
    two.release();
    assert_eq!(one.look(STEP, 1 << 20, start, &context()), Look::Granted);
    assert_eq!((one.held_bytes(), pool.free_bytes()), (2 * STEP, 0));
    assert_ne!(one.look(STEP, 1 << 20, start, &context()), Look::Granted);
    assert!(matches!(new.look(STEP, 1 << 20, start, &context()), Look::Later(_)));
    assert!(one.was_evicted() && !new.was_evicted());
}

/// Released bytes go to the smallest share, though others have waited longer and poll more often, and are its own from
/// that moment.
#[test]
fn released_bytes_go_to_the_smallest_share() {
    let start = Instant::now();
    let pool = Pool::of_parts(8 * STEP);
    let mut rich: Vec<PacedShare> = (0..4).map(|_| pool.paced_share()).collect();
    for _ in 0..2 {
        for share in &mut rich {
            assert_eq!(share.look(STEP, 0, start, &context()), Look::Granted);
        }
    }
    let mut steady = rich.pop().unwrap();
    for share in &mut rich {
        assert!(matches!(share.look(STEP, 0, start, &context()), Look::Later(_)));
    }
    let mut poor = pool.paced_share();
    assert!(matches!(poor.look(STEP, 0, start + ms(10), &context()), Look::Later(_)));
    steady.release_beyond(STEP);
    assert_eq!(pool.free_bytes(), 0, "it was handed over");
    for share in &mut rich {
        assert!(matches!(share.look(STEP, 0, start + ms(20), &context()), Look::Later(_)));
    }
    assert_eq!(poor.look(STEP, 0, start + ms(20), &context()), Look::Granted);
}

/// Shares that hold much and wait for the rest are evicted for a share that holds little, although one of the others
/// goes on: it would take long to finish.
#[test]
fn a_large_waiter_is_evicted_for_a_small_one() {
    let start = Instant::now();
    let pool = Pool::of_parts(9 * STEP);
    let mut shares: Vec<PacedShare> = (0..3).map(|_| pool.paced_share()).collect();
    for share in &mut shares {
        for _ in 0..3 {
            assert_eq!(share.look(STEP, 0, start, &context()), Look::Granted);
        }
    }
    let mut going = shares.pop().unwrap();
    for share in &mut shares {
        assert!(matches!(share.look(STEP, 0, start, &context()), Look::Later(_)));
    }
    let mut honest = pool.paced_share();
    let evicted_count =
        |shares: &[PacedShare]| shares.iter().filter(|share| share.was_evicted()).count();
    assert!(matches!(honest.look(STEP, 0, start + ms(10), &context()), Look::Later(_)));
    assert_eq!(evicted_count(&shares), 0, "they have not waited for long");
    let later = start + ms(2_000);
    assert!(!going.is_evicted(8 * STEP, later, &context()));
    assert!(matches!(honest.look(STEP, 0, later, &context()), Look::Later(_)));
    assert_eq!(evicted_count(&shares), 1);
    shares.retain(|share| !share.was_evicted());
    assert_eq!(honest.look(STEP, 0, later, &context()), Look::Granted);
    assert!(!going.was_evicted());
}

/// A share that is granted bytes while it does not poll is judged from then on.
#[test]
fn a_share_that_does_not_fetch_its_bytes_is_slow() {
    let start = Instant::now();
    let pool = Pool::of_parts(STEP);
    let (mut first, mut absent, mut honest) =
        (pool.paced_share(), pool.paced_share(), pool.paced_share());
    assert_eq!(first.look(STEP, 0, start, &context()), Look::Granted);
    assert!(matches!(absent.look(STEP, 0, start, &context()), Look::Later(_)));
    assert!(matches!(honest.look(STEP, 0, start, &context()), Look::Later(_)));
    drop(first);
    assert!(matches!(honest.look(STEP, 0, start + ms(500), &context()), Look::Later(_)));
    assert!(absent.was_evicted());
    absent.release();
    assert_eq!(honest.look(STEP, 0, start + ms(500), &context()), Look::Granted);
}

/// A plain share is judged by its user: it is evicted when it is slow by that and others wait, and not before.
#[test]
fn a_plain_share_is_evicted_when_its_user_reports_it_slow() {
    let start = Instant::now();
    let pool = Pool::new(2 * STEP);
    let (slow, waiting) = (pool.share(), pool.share());
    assert!(slow.try_take(2 * STEP) && !waiting.try_take(1));
    let mut turn = None;
    assert!(waiting.poll_wait(1, &mut turn, &context()).is_pending());
    assert!(!slow.is_evicted(start + ms(60_000), &context()), "its user has not reported it slow");
    slow.judge(Some(start + ms(60_000)));
    assert!(slow.is_evicted(start + ms(60_000), &context()));
    drop(slow);
    assert!(waiting.poll_wait(1, &mut turn, &context()).is_ready());
    assert_eq!(pool.free_bytes(), 2 * STEP - 1);
}

/// A wait that ends before or after it was granted leaves nothing behind, and lets others pass.
#[test]
fn an_ended_wait_releases_its_bytes() {
    let pool = Pool::new(2 * STEP);
    let held = pool.try_take(None, STEP).unwrap();
    let mut large = Box::pin(pool.wait(None, 2 * STEP));
    let mut larger = Box::pin(pool.wait(None, 2 * STEP));
    assert!(large.as_mut().poll(&mut context()).is_pending());
    assert!(larger.as_mut().poll(&mut context()).is_pending());
    let small = pool.try_take(None, STEP);
    assert!(small.is_some(), "the smaller request goes first");
    drop((held, small));
    drop(large);
    let Poll::Ready(all) = larger.as_mut().poll(&mut context()) else { panic!("it was granted") };
    assert_eq!((all.bytes(), pool.free_bytes()), (2 * STEP, 0));
    drop(all);
    assert_eq!(pool.free_bytes(), 2 * STEP);
}

/// A larger share does not overtake a smaller one that waits, though there is enough for its request.
#[test]
fn a_larger_share_does_not_overtake_a_smaller_one() {
    let pool = Pool::new(4 * STEP);
    let (rich, poor) = (pool.share(), pool.share());
    assert!(rich.try_take(3 * STEP));
    let mut turn = None;
    assert!(poor.poll_wait(2 * STEP, &mut turn, &context()).is_pending());
    assert!(!rich.try_take(STEP));
    rich.release(STEP);
    assert!(poor.poll_wait(2 * STEP, &mut turn, &context()).is_ready());
}

/// Requests, releases and ended waits in any order: no bytes are lost or made, the order follows the held bytes, and
/// no waiter waits for free bytes that are its own.
#[test]
fn bytes_are_neither_lost_nor_kept_back() {
    for seed in 1..200_u64 {
        let mut random = seed;
        let mut below = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let pool = Pool::with(20 * STEP, seed % 2 == 0);
        let mut now = Instant::now();
        let mut shares: Vec<PacedShare> = (0..8).map(|_| pool.paced_share()).collect();
        let mut held: Vec<Room> = Vec::new();
        for _ in 0..300 {
            now += ms(below(60));
            let at = usize::try_from(below(8)).unwrap();
            let bytes = below(5) * STEP;
            let room = |share: &mut PacedShare| share.look(bytes, bytes, now, &context());
            match below(9) {
                0..4 if room(&mut shares[at]) == Look::Evicted => shares[at].release(),
                0..4 => {}
                4 => shares[at].release_beyond(bytes),
                5 => shares[at] = pool.paced_share(),
                6 => shares[at].rest(),
                7 => held.extend(pool.try_take(None, bytes)),
                _ => drop(held.pop()),
            }
            pool.in_order(|order| {
                let of_shares: u64 = order.shares.values().map(|share| share.held.bytes()).sum();
                let of_nobody: u64 = held.iter().map(Room::bytes).sum();
                assert_eq!(pool.free_bytes() + of_shares + of_nobody, pool.bytes_max, "{seed}");
                assert_eq!(order.waiting.len(), order.turns.len(), "{seed}");
                for (rank, waiter) in &order.waiting {
                    assert_eq!(rank.held_bytes, order.held_by(waiter.share), "{seed}");
                }
                let first = order.waiting.first_key_value().map(|(rank, _)| rank.wanted_bytes);
                assert!(first.is_none_or(|wanted| wanted > pool.free_bytes()), "{seed}");
            });
        }
        drop((shares, held));
        assert_eq!(pool.free_bytes(), pool.bytes_max());
        pool.in_order(|order| assert!(order.shares.is_empty() && order.judged.is_empty()));
    }
}

/// A release at the moment at which another begins to wait: in either order, no request waits for free bytes.
#[test]
fn a_waiter_sees_a_concurrent_release() {
    let pool = Pool::new(STEP);
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let reached = |count: &AtomicU64, round| {
        while count.load(SeqCst) < round {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let patience = Duration::from_secs(20);
            for round in 1..=50_000 {
                reached(&begun, round);
                let room = async { tokio::time::timeout(patience, pool.wait(None, STEP)).await };
                let room = runtime.block_on(room);
                // A failed round is not waited for.
                done.store(if room.is_ok() { round } else { u64::MAX }, SeqCst);
                assert!(room.is_ok(), "round {round}");
            }
        });
        for round in 1..=50_000 {
            let room = pool.try_take(None, STEP).unwrap();
            begun.store(round, SeqCst);
            // A little sooner or later each time.
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            drop(room);
            reached(&done, round);
            // The other one releases it in its own time.
            while pool.free_bytes() < STEP {
                std::hint::spin_loop();
            }
        }
    });
    assert!(!pool.free.is_short());
}
