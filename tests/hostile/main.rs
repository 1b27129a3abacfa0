//! Can one client take the broker from the others? A real process with small budgets, an attacker over the
//! wire, and well-behaved clients beside it, one for each transport.
//!
//! A scenario ([`scenarios`], one a file) begins an attack and keeps it up. Then each well-behaved client
//! ([`witness`]) makes so many rounds of send, receive and complete, and is asked whether all that was acknowledged
//! came, once. The judge ([`judge`]) looks at the resident memory of the process the whole time, and at what is left
//! when the attacker is gone. Nothing is judged by how fast it was, only by whether it came to an end.
//!
//! `PEEKLOCK_HOSTILE=10` (`just hostile`) makes each attack ten times as large.
//!
//! | Attack | Shown by |
//! |---|---|
//! | pings whose pongs are not read | `scenarios/pongs.rs` |
//! | thousands of `explain` in a frame, or over HTTP | `scenarios/explain.rs` |
//! | settlements of thousands of ranges, answers unread | `scenarios/failures.rs` |
//! | a frame or batch of a million empty messages | `scenarios/empty_messages.rs` |
//! | peeks of large messages that are not read | `scenarios/peeks.rs` |
//! | receives of large messages that are not read | `scenarios/receives.rs`, `transports/http/tests/wire/bounds.rs` |
//! | rules with patterns that take long | `scenarios/patterns.rs` |
//! | half a request head, the second on its connection | `scenarios/half_heads.rs` |
//! | frames that lack their end | `scenarios/half_frames.rs` |
//! | bodies that are announced and do not come | `scenarios/half_bodies.rs` |
//! | every file descriptor taken | the reserve of `broker-core/store/src/journal/disk.rs` |
//! | many subscriptions, sessions, rules, message ids; circles of topics | `broker-core/tests/broker_bounds.rs` |
//! | lists of many entities, locks with many ends | `broker-core/tests/slices.rs`, tests of the machine |
//! | ids of waiting receives used twice | `transports/websocket/tests/wire/hostile.rs` |
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says what it saw"
)]

#[path = "../support/alone.rs"]
mod alone;
mod attacker;
mod broker;
mod judge;
mod scenarios;
mod wire;
mod witness;

use alone::alone;
use broker::Broker;
use judge::Judge;
use scenarios::Scenario;

/// How much larger than usual attacks are.
fn weight() -> usize {
    std::env::var("PEEKLOCK_HOSTILE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn judge(scenario: Scenario) {
    let _alone = alone();
    let broker = Broker::start();
    let judge = Judge::begin(&broker);
    let attack = scenario(&broker, weight());
    witness::all(&broker);
    judge.memory_was_bounded();
    attack.end();
    witness::all(&broker);
    judge.memory_was_bounded();
    broker.stop();
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                judge(scenarios::$name::attack);
            }
        )*
    };
}

scenarios! {
    pongs explain failures empty_messages peeks receives patterns half_heads half_frames half_bodies
}
