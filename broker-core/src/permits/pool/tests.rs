use std::future::Future as _;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Waker;
use std::time::Instant;

use super::*;

mod yielding;

const STEP: u64 = 64 << 10;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Twenty that began and go no further have taken everything: after the grace those that are slowest yield, as
/// many as are needed, and who came later has their room.
#[test]
fn who_is_slow_yields_to_who_waits() {
    let start = Instant::now();
    let pool = Pool::of_parts(3 * STEP);
    let (mut slower, mut slow, mut fast) = (pool.seat(), pool.seat(), pool.seat());
    let mut honest = pool.seat();
    assert_eq!(slower.take(STEP, 0, start, &context()), RoomAnswer::Granted);
    assert_eq!(slow.take(STEP, 0, start + ms(10), &context()), RoomAnswer::Granted);
    assert_eq!(fast.take(STEP, 0, start + ms(10), &context()), RoomAnswer::Granted);
    assert_eq!(
        honest.take(STEP, 0, start + ms(20), &context()),
        RoomAnswer::Later(start + ms(120))
    );
    assert!(!slower.is_told_to_yield(), "nobody is slow yet");
    assert_eq!(
        honest.take(STEP, 0, start + ms(180), &context()),
        RoomAnswer::Later(start + GRACE),
        "it asks again when the first is slow, and no later"
    );
    assert_eq!(
        honest.take(STEP, 0, start + ms(220), &context()),
        RoomAnswer::Later(start + ms(230)),
        "it does not ask all the time"
    );
    let later = start + ms(255);
    assert!(!fast.must_yield(STEP, later, &context()));
    assert!(matches!(honest.take(STEP, 0, later, &context()), RoomAnswer::Later(_)));
    assert!(slower.is_told_to_yield());
    let later = start + ms(300);
    assert!(matches!(honest.take(STEP, 0, later, &context()), RoomAnswer::Later(_)));
    assert!(!slow.is_told_to_yield(), "what was told to be given back is enough");
    // It may not be reading: a while later the next is told, too.
    assert!(matches!(honest.take(STEP, 0, later + ms(100), &context()), RoomAnswer::Later(_)));
    assert!(slow.is_told_to_yield() && !fast.is_told_to_yield());
    drop(slower);
    assert_eq!(honest.take(STEP, 0, later + ms(100), &context()), RoomAnswer::Granted);
}

/// Who passes enough is left alone, and so is who has nothing to pass; what is not needed goes back.
#[test]
fn who_has_nothing_to_pass_is_not_slow() {
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    let pool = Pool::new(2 * STEP);
    let (mut resting, mut waiting) = (pool.seat(), pool.seat());
    assert_eq!(resting.take(2 * STEP, 0, start, &context()), RoomAnswer::Granted);
    resting.rest();
    assert_ne!(waiting.take(STEP, 0, later(5), &context()), RoomAnswer::Granted);
    assert!(!resting.is_told_to_yield());
    resting.begin(later(5));
    assert_ne!(waiting.take(STEP, 0, later(5), &context()), RoomAnswer::Granted);
    assert!(!resting.is_told_to_yield());
    assert_ne!(waiting.take(STEP, 0, later(7), &context()), RoomAnswer::Granted);
    assert!(resting.is_told_to_yield());
    resting.shrink(STEP);
    assert_eq!(resting.held_bytes(), STEP);
    assert_eq!(waiting.take(STEP, 0, later(7), &context()), RoomAnswer::Granted);
    assert_eq!(pool.free_bytes(), 0);
    resting.shrink(0);
    assert_eq!((resting.held_bytes(), pool.free_bytes()), (0, STEP));
}

/// When all who hold something wait for more, nothing would ever go on: who waits longest yields at once.
#[test]
fn of_those_who_all_wait_one_yields() {
    let start = Instant::now();
    let pool = Pool::of_parts(2 * STEP);
    let (mut one, mut two) = (pool.seat(), pool.seat());
    assert_eq!(one.take(STEP, 0, start, &context()), RoomAnswer::Granted);
    assert_eq!(two.take(STEP, 0, start, &context()), RoomAnswer::Granted);
    let mut new = pool.seat();
    assert_ne!(one.take(STEP, 1 << 20, start, &context()), RoomAnswer::Granted);
    assert_ne!(two.take(STEP, 1 << 20, start, &context()), RoomAnswer::Granted);
    assert!(!one.is_told_to_yield() && two.is_told_to_yield(), "the first is to have the room");
    two.give_back();
    assert_eq!(one.take(STEP, 1 << 20, start, &context()), RoomAnswer::Granted);
    assert_eq!((one.held_bytes(), pool.free_bytes()), (2 * STEP, 0));
    assert_ne!(one.take(STEP, 1 << 20, start, &context()), RoomAnswer::Granted);
    assert!(matches!(new.take(STEP, 1 << 20, start, &context()), RoomAnswer::Later(_)));
    assert!(one.is_told_to_yield() && !new.is_told_to_yield());
}

/// What comes back goes to who has least, though others have waited longer, and ask more often: and it is theirs
/// from that moment.
#[test]
fn who_has_least_goes_first() {
    let start = Instant::now();
    let pool = Pool::of_parts(8 * STEP);
    let mut rich: Vec<Seat> = (0..4).map(|_| pool.seat()).collect();
    for _ in 0..2 {
        for seat in &mut rich {
            assert_eq!(seat.take(STEP, 0, start, &context()), RoomAnswer::Granted);
        }
    }
    let mut steady = rich.pop().unwrap();
    for seat in &mut rich {
        assert!(matches!(seat.take(STEP, 0, start, &context()), RoomAnswer::Later(_)));
    }
    let mut poor = pool.seat();
    assert!(matches!(poor.take(STEP, 0, start + ms(10), &context()), RoomAnswer::Later(_)));
    steady.shrink(STEP);
    assert_eq!(pool.free_bytes(), 0, "it was handed over");
    for seat in &mut rich {
        assert!(matches!(seat.take(STEP, 0, start + ms(20), &context()), RoomAnswer::Later(_)));
    }
    assert_eq!(poor.take(STEP, 0, start + ms(20), &context()), RoomAnswer::Granted);
}

/// Those who hold much and wait for the rest of it yield to who holds little, although one of the others goes on:
/// it would be long before that is through.
#[test]
fn who_waits_with_most_yields_to_who_has_little() {
    let start = Instant::now();
    let pool = Pool::of_parts(9 * STEP);
    let mut seats: Vec<Seat> = (0..3).map(|_| pool.seat()).collect();
    for seat in &mut seats {
        for _ in 0..3 {
            assert_eq!(seat.take(STEP, 0, start, &context()), RoomAnswer::Granted);
        }
    }
    let mut going = seats.pop().unwrap();
    for seat in &mut seats {
        assert!(matches!(seat.take(STEP, 0, start, &context()), RoomAnswer::Later(_)));
    }
    let mut honest = pool.seat();
    let is_told = |seats: &[Seat]| seats.iter().filter(|seat| seat.is_told_to_yield()).count();
    assert!(matches!(honest.take(STEP, 0, start + ms(10), &context()), RoomAnswer::Later(_)));
    assert_eq!(is_told(&seats), 0, "they have not waited for long");
    let later = start + ms(2_000);
    assert!(!going.must_yield(8 * STEP, later, &context()));
    assert!(matches!(honest.take(STEP, 0, later, &context()), RoomAnswer::Later(_)));
    assert_eq!(is_told(&seats), 1);
    seats.retain(|seat| !seat.is_told_to_yield());
    assert_eq!(honest.take(STEP, 0, later, &context()), RoomAnswer::Granted);
    assert!(!going.is_told_to_yield());
}

/// Who is granted room while it does not look is judged from then on all the same.
#[test]
fn who_does_not_fetch_its_room_is_slow() {
    let start = Instant::now();
    let pool = Pool::of_parts(STEP);
    let (mut first, mut absent, mut honest) = (pool.seat(), pool.seat(), pool.seat());
    assert_eq!(first.take(STEP, 0, start, &context()), RoomAnswer::Granted);
    assert!(matches!(absent.take(STEP, 0, start, &context()), RoomAnswer::Later(_)));
    assert!(matches!(honest.take(STEP, 0, start, &context()), RoomAnswer::Later(_)));
    drop(first);
    assert!(matches!(honest.take(STEP, 0, start + ms(500), &context()), RoomAnswer::Later(_)));
    assert!(absent.is_told_to_yield());
    absent.give_back();
    assert_eq!(honest.take(STEP, 0, start + ms(500), &context()), RoomAnswer::Granted);
}

/// A place is judged by who has it: it yields when it is slow by that and others wait, and not before.
#[test]
fn a_place_yields_when_it_is_slow() {
    let start = Instant::now();
    let pool = Pool::new(2 * STEP);
    let (slow, waiting) = (pool.place(), pool.place());
    assert!(slow.try_take(2 * STEP) && !waiting.try_take(1));
    let mut turn = None;
    assert!(waiting.poll_take(1, &mut turn, &context()).is_pending());
    assert!(!slow.must_yield(start + ms(60_000), &context()), "nobody says that it is slow");
    slow.judge(Some(start + ms(60_000)));
    assert!(slow.must_yield(start + ms(60_000), &context()));
    drop(slow);
    assert!(waiting.poll_take(1, &mut turn, &context()).is_ready());
    assert_eq!(pool.free_bytes(), 2 * STEP - 1);
}

/// A turn that is given up before or after it has come leaves nothing behind, and lets others pass.
#[test]
fn a_turn_that_is_given_up_comes_back() {
    let pool = Pool::new(2 * STEP);
    let held = pool.try_hold(None, STEP).unwrap();
    let mut large = Box::pin(pool.hold(None, 2 * STEP));
    let mut larger = Box::pin(pool.hold(None, 2 * STEP));
    assert!(large.as_mut().poll(&mut context()).is_pending());
    assert!(larger.as_mut().poll(&mut context()).is_pending());
    let small = pool.try_hold(None, STEP);
    assert!(small.is_some(), "who wants less goes first");
    drop((held, small));
    drop(large);
    let Poll::Ready(all) = larger.as_mut().poll(&mut context()) else { panic!("it has its turn") };
    assert_eq!((all.bytes(), pool.free_bytes()), (2 * STEP, 0));
    drop(all);
    assert_eq!(pool.free_bytes(), 2 * STEP);
}

/// Who has more does not overtake who has less and waits, though there is enough for what it wants.
#[test]
fn who_has_more_does_not_overtake() {
    let pool = Pool::new(4 * STEP);
    let (rich, poor) = (pool.place(), pool.place());
    assert!(rich.try_take(3 * STEP));
    let mut turn = None;
    assert!(poor.poll_take(2 * STEP, &mut turn, &context()).is_pending());
    assert!(!rich.try_take(STEP));
    rich.give(STEP);
    assert!(poor.poll_take(2 * STEP, &mut turn, &context()).is_ready());
}

/// Whatever is asked, given back and given up in any order: no room is lost or made, the order is that of what is
/// held, and nobody waits for what is free and his.
#[test]
fn room_is_neither_lost_nor_kept_back() {
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
        let mut seats: Vec<Seat> = (0..8).map(|_| pool.seat()).collect();
        let mut held: Vec<Room> = Vec::new();
        for _ in 0..300 {
            now += ms(below(60));
            let at = usize::try_from(below(8)).unwrap();
            let bytes = below(5) * STEP;
            let room = |seat: &mut Seat| seat.take(bytes, bytes, now, &context());
            match below(9) {
                0..4 if room(&mut seats[at]) == RoomAnswer::Yield => seats[at].give_back(),
                0..4 => {}
                4 => seats[at].shrink(bytes),
                5 => seats[at] = pool.seat(),
                6 => seats[at].rest(),
                7 => held.extend(pool.try_hold(None, bytes)),
                _ => drop(held.pop()),
            }
            pool.in_order(|order| {
                let of_places: u64 = order.places.values().map(|place| place.held.bytes()).sum();
                let of_nobody: u64 = held.iter().map(Room::bytes).sum();
                assert_eq!(pool.free_bytes() + of_places + of_nobody, pool.bytes_max, "{seed}");
                assert_eq!(order.waiting.len(), order.turns.len(), "{seed}");
                for (rank, waiter) in &order.waiting {
                    assert_eq!(rank.held_bytes, order.held_by(waiter.place), "{seed}");
                }
                let first = order.waiting.first_key_value().map(|(rank, _)| rank.wanted_bytes);
                assert!(first.is_none_or(|wanted| wanted > pool.free_bytes()), "{seed}");
            });
        }
        drop((seats, held));
        assert_eq!(pool.free_bytes(), pool.bytes_max());
        pool.in_order(|order| assert!(order.places.is_empty() && order.judged.is_empty()));
    }
}

/// One gives back just when another begins to wait: whoever is first, nobody waits for what is free.
#[test]
fn who_waits_sees_what_another_gives_back() {
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
                let room = async { tokio::time::timeout(patience, pool.hold(None, STEP)).await };
                let room = runtime.block_on(room);
                // Nobody waits for one that has failed.
                done.store(if room.is_ok() { round } else { u64::MAX }, SeqCst);
                assert!(room.is_ok(), "round {round}");
            }
        });
        for round in 1..=50_000 {
            let room = pool.try_hold(None, STEP).unwrap();
            begun.store(round, SeqCst);
            // A little sooner or later each time.
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            drop(room);
            reached(&done, round);
            // The other one gives it back in its own time.
            while pool.free_bytes() < STEP {
                std::hint::spin_loop();
            }
        }
    });
    assert!(!pool.free.is_short());
}
