//! Can one client take the broker from the others? A real process with small budgets, an attacker over the
//! wire, and well-behaved clients beside it, one for each transport.
//!
//! A scenario ([`scenarios`], one a file) begins an attack and keeps it up. Then each well-behaved client
//! ([`witness`]) makes so many rounds of send, receive and complete, and is asked whether all that was acknowledged
//! came, once. The judge ([`judge`]) looks at the resident memory of the process the whole time,
//! and at what is left seconds after the attacker is gone.
//!
//! `PEEKLOCK_HOSTILE=10` (`just hostile`) makes each attack up to ten times as large, most of them up to five. Then the clients want more
//! ([`witness::Wants`]): large messages, each operation within seconds. How long the slowest of a hundred of their operations may take, by itself and beside a load that takes
//! the CPU of the attack and does nothing else ([`load`]), say [`Aims`], for both rounds.
//!
//! `PEEKLOCK_HOSTILE_UNBOUNDED=1` takes the budgets out: then `states` and `anything` have to fail, or they would be no attacks.
//!
//! `PEEKLOCK_HOSTILE_PROGRAM` names another program to attack, such as one that was built for use.
//!
//! | Attack | Shown by |
//! |---|---|
//! | pings whose pongs are not read | `scenarios/pongs.rs`, over AMQP in WebSocket `scenarios/amqp_pings.rs` |
//! | brokers that are forwarded to, and ping or announce a huge frame | `scenarios/hostile_peers.rs`, `the_command_line_holds_little_for_a_hostile_broker` here |
//! | thousands of `explain` in a frame, or over HTTP | `scenarios/explain.rs` |
//! | settlements of thousands of ranges, answers unread | `scenarios/failures.rs` |
//! | a frame or batch of a million empty messages | `scenarios/empty_messages.rs` |
//! | peeks of large messages, and of many, that are not read | `scenarios/peeks.rs` |
//! | large states of sessions, and many deferred messages by one request, that are not read | `scenarios/states.rs` |
//! | more unread answers in JSON than there is room for by default | `scenarios/unread.rs` |
//! | receives of large messages that are not read | `scenarios/receives.rs`, `undelivered.rs`, `transports/websocket/tests/undelivered.rs`, `transports/http/tests/wire/bounds.rs` |
//! | rules with patterns that take long | `scenarios/patterns.rs` |
//! | half a request head, the second on its connection | `scenarios/half_heads.rs` |
//! | frames that lack their end | `scenarios/half_frames.rs` |
//! | bodies that are announced and do not come | `scenarios/half_bodies.rs` |
//! | messages over AMQP, frames and messages of WebSocket that lack their end | `scenarios/amqp_transfers.rs`, `scenarios/amqp_websockets.rs` |
//! | connections over AMQP that are never opened | `scenarios/amqp_openings.rs` |
//! | credit over AMQP without reading, or without a window | `scenarios/amqp_deliveries.rs` |
//! | as many unsettled deliveries over AMQP as one client may have, and renewals of thousands of their locks at a time | `scenarios/amqp_renewals.rs` |
//! | links, sessions, tokens, questions and empty frames over AMQP, answers unread | `scenarios/amqp_floods.rs` |
//! | receives that wait for days, and frames of requests behind them | `scenarios/waits.rs` |
//! | links over AMQP with names and properties as large as a frame | `scenarios/amqp_links.rs` |
//! | tokens and paths as long as a frame, large messages that are asked for once and taken | `scenarios/presented.rs` |
//! | sends behind a publish that takes long | `broker-core/tests/broker/slices.rs` |
//! | wrong tokens and passwords, as many as ten thousand a second if the machine can, and over connections that are kept | `scenarios/wrong_tokens.rs` |
//! | all of that again by clients that come back as soon as they are closed | `scenarios/returning.rs` |
//! | many queues full of large messages that all forward to one topic that is busy | `scenarios/forwards.rs`, `broker-core/tests/broker/loads.rs` |
//! | messages by way of one queue to thousands of destinations | `broker-core/machine/src/queue/slices/leaving.rs` |
//! | rules created behind a topic that is busy, by clients that close and come again | `scenarios/apart.rs` |
//! | frames that are kept for who may come back, confirms nothing, is cut and comes back | `scenarios/away.rs`, `transports/websocket/tests/bounded.rs` |
//! | any command in any order over every transport, answers read or not, by the gateway, a proxy and within TLS | `scenarios/anything.rs` |
//! | every file descriptor taken | the reserve of `broker-core/store/src/journal/disk/reserve.rs`, `tests/strangers.rs` |
//! | the file of the lock removed from the directory of a broker that runs | `removing_the_lock_file_frees_no_directory` of `broker-core/store/src/journal/disk/lock.rs` |
//! | files and directories that others can read, links in the place of files | `others_can_read_neither_the_directory_nor_a_file`, `no_link_is_followed` of `directory.rs` beside it |
//! | lists of many queues, asked for thousands of times | `a_list_costs_what_it_lists` of `broker-core/src/actor/directory/order.rs` |
//! | many subscriptions, sessions, rules, message ids | `broker-core/tests/broker_bounds.rs` |
//! | circles of topics | `broker-core/tests/broker/copies.rs` |
//! | publishes to many rules | `broker-core/tests/broker/slices.rs`, tests of the machine |
//! | short locks behind thousands of long ones | `lock_table_places_short_locks_after_long_ones_without_search` of `broker-core/machine/src/lock_table.rs` |
//! | what is no HTTP, and heads that are too large or late | `transports/http/tests/wire/bounds.rs`; half an upgrade: `wire/handshake.rs` of the transport of WebSocket, `listener/websocket.rs` of that of AMQP |
//! | settings and instants outside of what there is | `a_number_outside_its_range_is_refused_with_the_range` of `src/config/tests.rs`, `the_year_10000_is_the_last_instant` of `broker-core/src/clock.rs` |
//! | ranges and dispositions that name thousands of deliveries, by the thousand and with large maps | `scenarios/ranges.rs`, `transports/websocket/tests/bounded.rs` |
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

/// How much larger than usual attacks are.
fn weight() -> usize {
    std::env::var("PEEKLOCK_HOSTILE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// How long the slowest of a hundred operations of well-behaved clients may take beside an attack.
struct Aims {
    /// At most so long,
    slow_max: Duration,
    /// and at most so many times as long as beside a load that takes as much CPU,
    slower_max: f64,
    /// unless it is no longer than this.
    never_slow: Duration,
}

impl Aims {
    /// Of the long round, on a machine that does nothing else, by a program that is optimised.
    const STRICT: Self = Self {
        slow_max: Duration::from_millis(250),
        slower_max: SLOWER_MAX,
        never_slow: Duration::ZERO,
    };
    /// Of the short round, which runs beside other tests, on two cores, by a program that is not.
    const USUAL: Self = Self {
        slow_max: Duration::from_secs(2),
        slower_max: 4.0 * SLOWER_MAX,
        never_slow: Duration::from_millis(500),
    };
}

/// An attack goes on for so long at least, that clients may feel it.
const LASTING: Duration = Duration::from_secs(1);
/// So many times as long as beside a load of the same CPU an operation may take.
const SLOWER_MAX: f64 = 3.0;
/// The same beside wrong tokens, which cost nothing to make up.
const SLOWER_BY_TOKENS_MAX: f64 = 2.0;
/// How long a client stays with a hostile broker, and how much memory it may take, the program included.
const CLIENT_TIME: Duration = Duration::from_secs(2);
const CLIENT_BYTES_MAX: u64 = 128 << 20;
/// So many operations are told of that took longest.
const WORST_COUNT: usize = 5;

/// `slower_max` is that of the long round.
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
    let beside = slowest(took);
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
    // Beside the next one, which does not feel it, this one's broker shows what is left, and ends.
    drop(attacks_alone);
    judge.nothing_is_left(keeps, grace, connections);
    witness::all(&broker, Wants::USUAL);
    judge.memory_was_bounded(keeps, memory_max);
    drop(judge);
    broker.stop();
    assert!(beside <= aims.slow_max, "{beside:?} beside the attack, of {:?}", aims.slow_max);
    if beside > aims.never_slow {
        let burdened = beside_a_load(start, (wants, rounds), (cpu, elapsed));
        let slower_max = aims.slower_max;
        assert!(
            beside <= burdened.mul_f64(slower_max),
            "{beside:?} beside the attack, {burdened:?} beside a load that takes as much, of which {slower_max} times"
        );
    }
}

/// What the slowest of a hundred operations takes beside a load that takes the CPU which an attack took in a time, with
/// clients beside it that made so many rounds.
fn beside_a_load(
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

/// How long the slowest of a hundred operations took. Tells of it, of each transport's, and of the worst ones.
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

/// Rules that wait, and not only come.
#[test]
fn apart_waiting() {
    judge(Broker::start, scenarios::apart::attack_waiting, SLOWER_MAX);
}

/// A client of the program holds little for a broker that pings without end or announces a huge frame, whether it has
/// said welcome or not.
#[test]
fn the_command_line_holds_little_for_a_hostile_broker() {
    let broker = Broker::start();
    let peers = [Until::Upgrade, Until::Welcome].map(|until| {
        [Flood::Pings, Flood::Frame]
            .map(|flood| HostilePeer::before(broker.websocket, until, flood))
    });
    let program = env!("CARGO_BIN_EXE_peeklock");
    // What a welcome broker may answer is as large as a large message.
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

/// What a client is answered and does not read takes no more than 128 MiB with the settings there are by default.
#[test]
fn unread() {
    judge(Broker::start_with_default_output, scenarios::unread::attack, SLOWER_MAX);
}

/// Everything again, of clients that all speak TLS.
#[test]
fn anything_within_tls() {
    judge(Broker::start_secure, scenarios::anything::attack, SLOWER_MAX);
}

scenarios! {
    SLOWER_BY_TOKENS_MAX,
    wrong_tokens
}
