//! Time that passes for those who are refused.

use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::time::TimeSpan;

/// No answer to a refusal waits longer than this (SEC-26).
const LONGEST: TimeSpan = TimeSpan::from_seconds(1);

/// Does something while time passes for refusals alone, whose answers wait (SEC-26): what takes longer, such as a lock
/// or a wait for room, keeps its time.
pub async fn while_refusals_wait<T>(clock: &ManualClock, what: impl Future<Output = T>) -> T {
    let passing = async {
        loop {
            let soon = clock.now().plus(LONGEST);
            if clock.next_wake().is_some_and(|wake| wake <= soon) {
                clock.advance(TimeSpan::from_ms(100));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = what => done,
        () = passing => unreachable!("time does not end"),
    }
}
