//! Evicted shares, compared with a plain search; and the number of steps to find them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::pool::eviction::EVICTION_TIME;
use crate::pool::free::{Free, Holding};
use crate::pool::order::{Order, Rank, Waiter};

/// All shares to evict, found with a look at each.
fn to_be_evicted(order: &Order) -> BTreeSet<u64> {
    let shares = order.shares.iter();
    let mut evicted: BTreeSet<u64> =
        shares.filter(|(_, state)| state.is_evicted).map(|(key, _)| *key).collect();
    let held = |key: u64| order.held_by(Some(key));
    let lately = order.evicted.iter().filter(|(at, key)| {
        order.now.saturating_duration_since(*at) < EVICTION_TIME && evicted.contains(key)
    });
    let mut coming = order.free.bytes() + lately.map(|(_, key)| held(*key)).sum::<u64>();
    for (rank, waiter) in &order.waiting {
        let is_evicted = waiter.share.is_some_and(|key| evicted.contains(&key));
        let wanted_bytes = if is_evicted { 0 } else { rank.wanted_bytes };
        while coming < wanted_bytes {
            let slow = order
                .judged
                .iter()
                .find(|(from, key)| *from <= order.now && held(*key) > 0 && !evicted.contains(key));
            let longest = || longest(order, rank, waiter, &evicted).filter(|_| order.is_of_parts);
            let Some(key) = slow.map(|(_, key)| *key).or_else(longest) else { return evicted };
            evicted.insert(key);
            coming += held(key);
        }
        coming -= wanted_bytes;
    }
    evicted
}

/// The share to evict for a waiter among the waiters for the rest of something.
fn longest(order: &Order, rank: &Rank, own: &Waiter, evicted: &BTreeSet<u64>) -> Option<u64> {
    let held = |key: u64| order.held_by(Some(key));
    let may_be = |key: &u64| Some(*key) != own.share && held(*key) > 0 && !evicted.contains(key);
    let waiters = order.turns.values().map(|rank| &order.waiting[rank]);
    let holders: Vec<(Instant, u64)> =
        waiters.filter_map(|waiter| Some((waiter.since, waiter.share.filter(may_be)?))).collect();
    let (_, first) = holders.first()?;
    let enough = rank.held_bytes + rank.wanted_bytes;
    let with_more = holders.iter().find(|(since, key)| {
        order.now.saturating_duration_since(*since) >= GRACE && held(*key) > enough
    });
    let is_stuck = order
        .shares
        .iter()
        .all(|(key, state)| held(*key) == 0 || evicted.contains(key) || !state.turns.is_empty());
    let with_more = with_more.map(|(_, key)| *key);
    if with_more != Some(*first) && is_stuck { Some(*first) } else { with_more }
}

/// Requests, releases, ended waits and judgements in any order: the plain search finds the evicted shares.
#[test]
fn evictions_are_those_of_the_plain_search() {
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
        let shares: Vec<u64> =
            (0..8).map(|_| order.enter(Arc::new(Holding::default()), seed % 3 == 0)).collect();
        let mut turns: Vec<(u64, Option<u64>, u64)> = Vec::new();
        for _ in 0..300 {
            now += ms(below(90));
            order.pass_time(now);
            let key = shares[usize::try_from(below(8)).unwrap()];
            let bytes = below(5) * STEP;
            match below(10) {
                0..3 => drop(order.try_grant(Some(key), bytes)),
                3..6 => {
                    let share = Some(key).filter(|_| below(8) > 0);
                    // As a connection asks: no request waits for free bytes.
                    if !order.try_grant(share, bytes) {
                        turns.push((order.wait(share, bytes, Waker::noop()), share, bytes));
                    }
                }
                6 => order.release_all(key),
                7 | 8 => order.judge(key, Some(now + ms(below(400))).filter(|_| below(4) > 0)),
                _ if turns.is_empty() => {}
                _ => {
                    let at = usize::try_from(below(turns.len() as u64)).unwrap();
                    let (turn, share, bytes) = turns.swap_remove(at);
                    let waits = order.turns.contains_key(&turn);
                    // A share that was released has no turns.
                    if waits {
                        order.end_wait(turn, share, bytes);
                    }
                }
            }
            if below(3) > 0 {
                let expected = to_be_evicted(&order);
                order.evict_slowest();
                let shares = order.shares.iter();
                let evicted = shares.filter(|(_, state)| state.is_evicted).map(|(key, _)| *key);
                assert_eq!(evicted.collect::<BTreeSet<u64>>(), expected, "{seed}");
            }
            let wanted: u64 = order.waiting.keys().map(|rank| rank.wanted_bytes).sum();
            assert_eq!(order.wanted_bytes, wanted, "{seed}");
        }
    }
}

/// Number of steps for each look of a waiter.
fn steps_of_each(pool: &Arc<Pool>, waiting: &mut [PacedShare]) -> u64 {
    let now = Instant::now();
    pool.in_order(|order| order.steps.set(0));
    let asked = 3 * waiting.len() as u64;
    for later in [0, 200, 400] {
        for share in &mut *waiting {
            let asked = share.look(STEP, 1 << 30, now + ms(later), &context());
            assert!(matches!(asked, Look::Later(_)));
        }
    }
    pool.in_order(|order| order.steps.get() / asked)
}

/// Each of many waiters looks at few others: waiters that hold nothing, and waiters for the rest of something while one
/// goes on.
#[test]
fn a_waiter_looks_at_few_shares() {
    const COUNT: u64 = 10_000;
    let start = Instant::now();
    let pool = Pool::of_parts(STEP);
    let mut holder = pool.paced_share();
    assert_eq!(holder.look(STEP, 0, start, &context()), Look::Granted);
    holder.rest();
    let mut poor: Vec<PacedShare> = (0..COUNT).map(|_| pool.paced_share()).collect();
    assert!(steps_of_each(&pool, &mut poor) < 8);

    let pool = Pool::of_parts((COUNT + 1) * STEP);
    let mut shares: Vec<PacedShare> = (0..=COUNT).map(|_| pool.paced_share()).collect();
    for share in &mut shares {
        assert_eq!(share.look(STEP, 0, start, &context()), Look::Granted);
        share.rest();
    }
    assert!(steps_of_each(&pool, &mut shares[1..]) < 8);
}
