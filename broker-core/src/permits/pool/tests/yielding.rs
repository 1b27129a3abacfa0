//! Who is told to yield, against the plain way to find out; and how much is looked at for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::permits::pool::free::{Free, Holding};
use crate::permits::pool::order::{Order, Rank, Waiter};
use crate::permits::pool::yielding::TURN;

/// All who are to yield, found by looking at everybody.
fn to_be_told(order: &Order) -> BTreeSet<u64> {
    let places = order.places.iter();
    let mut told: BTreeSet<u64> =
        places.filter(|(_, occupied)| occupied.must_yield).map(|(key, _)| *key).collect();
    let held = |key: u64| order.held_by(Some(key));
    let lately = order
        .told
        .iter()
        .filter(|(at, key)| order.now.saturating_duration_since(*at) < TURN && told.contains(key));
    let mut coming = order.free.bytes() + lately.map(|(_, key)| held(*key)).sum::<u64>();
    for (rank, waiter) in &order.waiting {
        let is_told = waiter.place.is_some_and(|key| told.contains(&key));
        let wanted_bytes = if is_told { 0 } else { rank.wanted_bytes };
        while coming < wanted_bytes {
            let slow = order
                .judged
                .iter()
                .find(|(from, key)| *from <= order.now && held(*key) > 0 && !told.contains(key));
            let longest = || longest(order, rank, waiter, &told).filter(|_| order.is_of_parts);
            let Some(key) = slow.map(|(_, key)| *key).or_else(longest) else { return told };
            told.insert(key);
            coming += held(key);
        }
        coming -= wanted_bytes;
    }
    told
}

/// Of those that wait for the rest of something, who yields to this one.
fn longest(order: &Order, rank: &Rank, own: &Waiter, told: &BTreeSet<u64>) -> Option<u64> {
    let held = |key: u64| order.held_by(Some(key));
    let may_be = |key: &u64| Some(*key) != own.place && held(*key) > 0 && !told.contains(key);
    let waiters = order.turns.values().map(|rank| &order.waiting[rank]);
    let holders: Vec<(Instant, u64)> =
        waiters.filter_map(|waiter| Some((waiter.since, waiter.place.filter(may_be)?))).collect();
    let (_, first) = holders.first()?;
    let enough = rank.held_bytes + rank.wanted_bytes;
    let with_more = holders.iter().find(|(since, key)| {
        order.now.saturating_duration_since(*since) >= GRACE && held(*key) > enough
    });
    let is_stuck = order
        .places
        .iter()
        .all(|(key, occupied)| held(*key) == 0 || told.contains(key) || !occupied.turns.is_empty());
    let with_more = with_more.map(|(_, key)| *key);
    if with_more != Some(*first) && is_stuck { Some(*first) } else { with_more }
}

/// Whoever holds, waits, is slow, gives back and gives up, in any order: those are told to yield whom the plain way
/// finds, and no other.
#[test]
fn those_yield_whom_the_plain_way_finds() {
    for seed in 1..400_u64 {
        let mut random = seed;
        let mut below = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let free = Arc::new(Free::new(20 * STEP));
        let mut order = Order::new(free, seed % 2 == 0);
        let mut now = Instant::now();
        let places: Vec<u64> =
            (0..8).map(|_| order.enter(Arc::new(Holding::default()), seed % 3 == 0)).collect();
        let mut turns: Vec<(u64, Option<u64>, u64)> = Vec::new();
        for _ in 0..300 {
            now += ms(below(90));
            order.pass_time(now);
            let key = places[usize::try_from(below(8)).unwrap()];
            let bytes = below(5) * STEP;
            match below(10) {
                0..3 => drop(order.try_grant(Some(key), bytes)),
                3..6 => {
                    let place = Some(key).filter(|_| below(8) > 0);
                    // As a connection asks: nobody waits for what is there.
                    if !order.try_grant(place, bytes) {
                        turns.push((order.wait(place, bytes, Waker::noop()), place, bytes));
                    }
                }
                6 => order.give_all(key),
                7 | 8 => order.judge(key, Some(now + ms(below(400))).filter(|_| below(4) > 0)),
                _ if turns.is_empty() => {}
                _ => {
                    let at = usize::try_from(below(turns.len() as u64)).unwrap();
                    let (turn, place, bytes) = turns.swap_remove(at);
                    let waits = order.turns.contains_key(&turn);
                    // Of those that were given up by their place nothing is left.
                    if waits {
                        order.give_up(turn, place, bytes);
                    }
                }
            }
            if below(3) > 0 {
                let expected = to_be_told(&order);
                order.have_slowest_yield();
                let places = order.places.iter();
                let told = places.filter(|(_, occupied)| occupied.must_yield).map(|(key, _)| *key);
                assert_eq!(told.collect::<BTreeSet<u64>>(), expected, "{seed}");
            }
            let wanted: u64 = order.waiting.keys().map(|rank| rank.wanted_bytes).sum();
            assert_eq!(order.wanted_bytes, wanted, "{seed}");
        }
    }
}

/// How many places and turns are looked at, for each time that one of so many who wait asks.
fn steps_of_each(pool: &Arc<Pool>, waiting: &mut [Seat]) -> u64 {
    let now = Instant::now();
    pool.in_order(|order| order.steps.set(0));
    let asked = 3 * waiting.len() as u64;
    for later in [0, 200, 400] {
        for seat in &mut *waiting {
            let asked = seat.take(STEP, 1 << 30, now + ms(later), &context());
            assert!(matches!(asked, RoomAnswer::Later(_)));
        }
    }
    pool.in_order(|order| order.steps.get() / asked)
}

/// However many wait, each of them looks at few others: those that hold nothing, and those that wait for the rest of
/// something while one goes on.
#[test]
fn who_waits_looks_at_few() {
    const COUNT: u64 = 10_000;
    let start = Instant::now();
    let pool = Pool::of_parts(STEP);
    let mut holder = pool.seat();
    assert_eq!(holder.take(STEP, 0, start, &context()), RoomAnswer::Granted);
    holder.rest();
    let mut poor: Vec<Seat> = (0..COUNT).map(|_| pool.seat()).collect();
    assert!(steps_of_each(&pool, &mut poor) < 8);

    let pool = Pool::of_parts((COUNT + 1) * STEP);
    let mut seats: Vec<Seat> = (0..=COUNT).map(|_| pool.seat()).collect();
    for seat in &mut seats {
        assert_eq!(seat.take(STEP, 0, start, &context()), RoomAnswer::Granted);
        seat.rest();
    }
    assert!(steps_of_each(&pool, &mut seats[1..]) < 8);
}
