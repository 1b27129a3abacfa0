//! Checks that no client can take the broker away from other clients: a real process with small
//! budgets, an attacker over the network, and one well-behaved client for each transport.
//!
//! A scenario ([`scenarios`], one per file) starts an attack and repeats it until the end. Then
//! each well-behaved client ([`witness`]) runs rounds of send, receive and complete, and checks
//! that each acknowledged message arrives exactly once. The judge ([`judge`]) watches the resident
//! memory of the process, and checks the remaining memory seconds after the attack.
//!
//! `PEEKLOCK_HOSTILE=10` (`just hostile`) makes each attack up to ten times as large, most of them
//! up to five times. The clients then have stricter demands ([`witness::Wants`]): large messages,
//! and each operation within seconds. [`Aims`] has the limits of both rounds for the p99 of their
//! operations, absolute and relative to a neutral load with the same CPU time ([`load`]).
//!
//! `PEEKLOCK_HOSTILE_UNBOUNDED=1` removes the budgets. Then `states` and `anything` must fail;
//! otherwise they are no attacks.
//!
//! `PEEKLOCK_HOSTILE_PROGRAM` selects the program to attack, for example an optimised build.
//!
//! | Attack | Shown by |
//! |---|---|
//! | pings whose pongs are not read | `scenarios/pongs.rs`, over AMQP in WebSocket `scenarios/amqp_pings.rs` |
//! | forwarding destinations that ping without end or announce a huge frame | `scenarios/hostile_peers.rs`, `the_command_line_uses_little_memory_for_a_hostile_broker` here |
//! | thousands of `explain` in a frame, or over HTTP | `scenarios/explain.rs` |
//! | settlements of thousands of ranges, answers unread | `scenarios/failures.rs` |
//! | a frame or batch of a million empty messages | `scenarios/empty_messages.rs` |
//! | peeks of large messages, and of many, that are not read | `scenarios/peeks.rs` |
//! | large session states, and many deferred messages in one request, answers unread | `scenarios/states.rs` |
//! | more unread answers in JSON than the default room | `scenarios/unread.rs` |
//! | receives of large messages that are not read | `scenarios/receives.rs`, `undelivered.rs`, `transports/websocket/tests/undelivered.rs`, `transports/http/tests/wire/bounds.rs` |
//! | rules with patterns that take long | `scenarios/patterns.rs` |
//! | half a request head, the second on its connection | `scenarios/half_heads.rs` |
//! | frames that lack their end | `scenarios/half_frames.rs` |
//! | bodies that are announced and never sent | `scenarios/half_bodies.rs` |
//! | messages over AMQP, frames and messages of WebSocket that lack their end | `scenarios/amqp_transfers.rs`, `scenarios/amqp_websockets.rs` |
//! | connections over AMQP that are never opened | `scenarios/amqp_openings.rs` |
//! | credit over AMQP without reading, or without a window | `scenarios/amqp_deliveries.rs` |
//! | the maximum of unsettled deliveries of a client over AMQP, and renewals of thousands of their locks | `scenarios/amqp_renewals.rs` |
//! | links, sessions, tokens, echo requests and empty frames over AMQP, answers unread | `scenarios/amqp_floods.rs` |
//! | receives that wait for days, and frames of requests after them | `scenarios/waits.rs` |
//! | links over AMQP with names and properties as large as a frame | `scenarios/amqp_links.rs` |
//! | tokens and paths as long as a frame, large messages that are peeked once and read | `scenarios/presented.rs` |
//! | sends queued after a publish that takes long | `broker-core/tests/broker/slices.rs` |
//! | wrong tokens and passwords, up to ten thousand a second, and over connections that stay open | `scenarios/wrong_tokens.rs` |
//! | all of that again by clients that reconnect as soon as they are closed | `scenarios/returning.rs` |
//! | many queues full of large messages that all forward to one busy topic | `scenarios/forwards.rs`, `broker-core/tests/broker/loads.rs` |
//! | messages through one queue to thousands of destinations | `broker-core/machine/src/queue/slices/leaving.rs` |
//! | rules created in a busy topic, by clients that close and reconnect | `scenarios/apart.rs` |
//! | frames retained for clients that may resume, confirm nothing, are cut and resume | `scenarios/away.rs`, `transports/websocket/tests/bounded.rs` |
//! | any command in any order over every transport, answers read or not, through the gateway, a proxy and TLS | `scenarios/anything.rs` |
//! | every file descriptor taken | the reserve of `broker-core/store/src/journal/disk/reserve.rs`, `tests/strangers.rs` |
//! | the lock file removed from the directory of a running broker | `removing_the_lock_file_frees_no_directory` of `broker-core/store/src/journal/disk/lock.rs` |
//! | files and directories that other users can read, links instead of files | `others_can_read_neither_the_directory_nor_a_file`, `no_link_is_followed` of `directory.rs` in the same folder |
//! | lists of many queues, requested thousands of times | `list_visits_only_listed_entries` of `broker-core/src/actor/directory/order.rs` |
//! | many subscriptions, sessions, rules, message ids | `broker-core/tests/broker_bounds.rs` |
//! | circles of topics | `broker-core/tests/broker/copies.rs` |
//! | publishes to many rules | `broker-core/tests/broker/slices.rs`, tests of the machine |
//! | short locks after thousands of long ones | `lock_table_places_short_locks_after_long_ones_without_search` of `broker-core/machine/src/lock_table.rs` |
//! | bytes that are not HTTP, and heads that are too large or late | `transports/http/tests/wire/bounds.rs`; half an upgrade: `wire/handshake.rs` of the WebSocket transport, `listener/websocket.rs` of the AMQP transport |
//! | settings and instants outside their ranges | `a_number_outside_its_range_is_refused_with_the_range` of `src/config/tests.rs`, `the_year_10000_is_the_last_instant` of `broker-core/src/clock.rs` |
//! | ranges and dispositions that name thousands of deliveries, thousands of times and with large maps | `scenarios/ranges.rs`, `transports/websocket/tests/bounded.rs` |
//! | ids of waiting receives used twice | `transports/websocket/tests/wire/hostile.rs` |
//! | thousands of properties set on messages that have thousands, peeked, received and forwarded | `scenarios/overlays.rs` |
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says what it saw"
)]

#[path = "../support/alone.rs"]
mod alone;
mod amqp;
mod attacker;
mod broker;
mod judge;
#[path = "../support/amqp.rs"]
mod links;
mod load;
mod peer;
mod random;
mod scenarios;
mod tunnel;
mod undelivered;
mod wire;
mod witness;

use std::time::{Duration, Instant};

use alone::alone;
use broker::Broker;
use judge::Judge;
use load::{Burner, Cpu, Load};
use peer::{Flood, HostilePeer, Until};
use scenarios::Scenario;
use witness::{Took, Wants};

/// Factor by which attacks are larger than usual.
fn weight() -> usize {
    std::env::var("PEEKLOCK_HOSTILE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Limits on the p99 of operations of well-behaved clients during an attack.
struct Aims {
    /// Absolute limit.
    slow_max: Duration,
    /// Limit as a multiple of the p99 next to a load with the same CPU time.
    slower_max: f64,
    /// The multiple is not judged if the p99 is at most this.
    never_slow: Duration,
}

impl Aims {
    /// Limits of the long round, for an optimised program on an otherwise idle machine.
    const STRICT: Self = Self {
        slow_max: Duration::from_millis(250),
        slower_max: SLOWER_MAX,
        never_slow: Duration::ZERO,
    };
    /// Limits of the short round, for an unoptimised program on two cores next to other tests.
    const USUAL: Self = Self {
        slow_max: Duration::from_secs(2),
        slower_max: 4.0 * SLOWER_MAX,
        never_slow: Duration::from_millis(500),
    };
}

/// Minimum duration of an attack, so that it can affect clients.
const LASTING: Duration = Duration::from_secs(1);
/// Limit on the p99 as a multiple of the p99 next to a load with the same CPU time.
const SLOWER_MAX: f64 = 3.0;
/// The same limit for wrong tokens, which cost an attacker nothing.
const SLOWER_BY_TOKENS_MAX: f64 = 2.0;
/// Time that a client spends with a hostile broker, and the memory that it may use, including the
/// program.
const CLIENT_TIME: Duration = Duration::from_secs(2);
const CLIENT_BYTES_MAX: u64 = 128 << 20;
/// Number of slowest operations that are printed.
const WORST_COUNT: usize = 5;

/// `slower_max` applies in the long round.
fn judge(start: fn() -> Broker, scenario: Scenario, slower_max: f64) {
    let weight = weight();
    let (wants, aims) = match weight {
        0 | 1 => (Wants::USUAL, Aims::USUAL),
        _ => (Wants::STRICT, Aims { slower_max, ..Aims::STRICT }),
    };
    let broker = start();
    witness::prepare(&broker);
    let attacks_alone = alone();
    let judge = Judge::begin(&broker);
    let begun = Instant::now();
    let attack = scenario(&broker, weight);
    eprintln!("begun in {:.1?}", begun.elapsed());
    let load = Load::begin(&broker);
    let (mut took, mut rounds) = (witness::all(&broker, wants), 1);
    while load.elapsed() < attack.lasting().max(LASTING) {
        took.extend(witness::all(&broker, wants));
        rounds += 1;
    }
    let attacked = slowest(took);
    let (cpu, elapsed) = (load.cpu(), load.elapsed());
    let attempts = attack.attempts();
    if attempts > 0 {
        let in_a_second = attempts as f64 / elapsed.as_secs_f64();
        eprintln!("attempts: {attempts} in {elapsed:?}, {in_a_second:.0} a second");
    }
    let (keeps, grace, connections) = (attack.keeps(), attack.grace(), attack.connections_left());
    let memory_max = attack.memory_max();
    judge.memory_was_bounded(keeps, memory_max);
    let ends = Instant::now();
    attack.end();
    eprintln!("ended in {:.1?}", ends.elapsed());
    // The next attack may begin while this broker is measured, because that does not disturb it.
    drop(attacks_alone);
    judge.nothing_is_left(keeps, grace, connections);
    witness::all(&broker, Wants::USUAL);
    judge.memory_was_bounded(keeps, memory_max);
    drop(judge);
    broker.stop();
    assert!(attacked <= aims.slow_max, "{attacked:?} beside the attack, of {:?}", aims.slow_max);
    if attacked > aims.never_slow {
        let burdened = latency_next_to_a_load(start, (wants, rounds), (cpu, elapsed));
        let slower_max = aims.slower_max;
        assert!(
            attacked <= burdened.mul_f64(slower_max),
            "{attacked:?} beside the attack, {burdened:?} beside a load that takes as much, of which {slower_max} times"
        );
    }
}

/// p99 of operations next to a load that burns as much CPU time as an attack did, less the CPU time
/// that `rounds` rounds of the clients used.
fn latency_next_to_a_load(
    start: fn() -> Broker,
    (wants, rounds): (Wants, u32),
    (cpu, elapsed): (Cpu, Duration),
) -> Duration {
    let broker = start();
    witness::prepare(&broker);
    let _alone = alone();
    let usual = Load::begin(&broker);
    witness::all(&broker, wants);
    let of_attack = cpu.minus(usual.cpu().times(rounds));
    let burner = Burner::begin(of_attack, elapsed);
    let burdened = slowest(witness::all(&broker, wants));
    burner.end();
    broker.stop();
    eprintln!("beside a load of {of_attack} in {elapsed:?}: {burdened:?}");
    burdened
}

/// p99 of all operations. Prints it with the p99 of each transport and the slowest operations.
fn slowest(mut took: Vec<Took>) -> Duration {
    let begun = took.iter().map(|took| took.begun).min();
    took.sort_unstable_by_key(|took| took.time);
    let of_hundred = |count: usize| (count * 99 / 100).min(count - 1);
    for transport in witness::TRANSPORTS {
        let mut own: Vec<&Took> = took.iter().filter(|took| took.over == transport).collect();
        eprintln!("  of {}: {}", own.len(), own.swap_remove(of_hundred(own.len())));
    }
    let at = of_hundred(took.len());
    eprintln!("slowest of a hundred of {}: {}", took.len(), took[at]);
    for worst in took.iter().rev().take(WORST_COUNT) {
        let after = begun.map(|begun| worst.begun.duration_since(begun));
        eprintln!("  among the worst, {:.1?} after the first: {worst}", after.unwrap_or_default());
    }
    took[at].time
}

macro_rules! scenarios {
    ($slower_max:expr, $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                judge(Broker::start, scenarios::$name::attack, $slower_max);
            }
        )*
    };
}

scenarios! {
    SLOWER_MAX,
    states pongs explain failures empty_messages peeks receives patterns half_heads half_frames half_bodies
    amqp_transfers amqp_openings amqp_deliveries amqp_renewals amqp_floods amqp_links amqp_websockets amqp_pings
    hostile_peers returning
    anything waits presented apart away forwards ranges overlays
}

/// The rules wait for the busy topic.
#[test]
fn apart_waiting() {
    judge(Broker::start, scenarios::apart::attack_waiting, SLOWER_MAX);
}

/// A client of the program uses little memory if a broker pings without end or announces a huge
/// frame, before or after the welcome.
#[test]
fn the_command_line_uses_little_memory_for_a_hostile_broker() {
    let broker = Broker::start();
    let peers = [Until::Upgrade, Until::Welcome].map(|until| {
        [Flood::Pings, Flood::Frame]
            .map(|flood| HostilePeer::before(broker.websocket, until, flood))
    });
    let program = env!("CARGO_BIN_EXE_peeklock");
    // After the welcome an answer may be as large as a large message.
    let [[pings, frame], [pings_of_welcome, _]] = &peers;
    for peer in [pings, frame, pings_of_welcome] {
        let mut client = std::process::Command::new(program)
            .args(["queue", "list", "--url", &format!("ws://{}", peer.address)])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let (begun, mut most) = (Instant::now(), 0);
        while begun.elapsed() < CLIENT_TIME && client.try_wait().unwrap().is_none() {
            most = most.max(Broker::resident_bytes(client.id()).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(5));
        }
        client.kill().ok();
        client.wait().unwrap();
        assert!(most < CLIENT_BYTES_MAX, "the client took {} MiB", most >> 20);
    }
    drop(peers);
    broker.stop();
}

/// Answers that a client does not read take at most 128 MiB with default settings.
#[test]
fn unread() {
    judge(Broker::start_with_default_output, scenarios::unread::attack, SLOWER_MAX);
}

/// `anything` again, with clients that all use TLS.
#[test]
fn anything_within_tls() {
    judge(Broker::start_secure, scenarios::anything::attack, SLOWER_MAX);
}

scenarios! {
    SLOWER_BY_TOKENS_MAX,
    wrong_tokens
}
