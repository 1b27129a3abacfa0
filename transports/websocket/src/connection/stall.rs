//! Detects a client that reads more slowly than its minimum pace. `serve.rs` polls it while written
//! bytes wait for the client.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Minimum pace in bytes per second. A client is slow if it reads less while more bytes wait.
const PACE_BYTES: u64 = 4 << 10;

/// Time since which a client has not read all written bytes.
#[derive(Default)]
pub(super) struct Stall {
    /// The end of the window, and the total of read bytes at its start.
    window: Option<(Instant, u64)>,
    /// Created on first use: most clients never keep the server waiting.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Notes that no bytes wait for the client.
    pub(super) const fn reset(&mut self) {
        self.window = None;
    }

    /// Ready if the client has read less than its pace for `patience`, while bytes waited all that
    /// time. `taken_bytes` is the total since the start of its socket.
    pub(super) fn poll(
        &mut self,
        taken_bytes: u64,
        patience: Duration,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let now = Instant::now();
            let (ends, before) = *self.window.get_or_insert((now + patience, taken_bytes));
            if ends <= now {
                if taken_bytes.saturating_sub(before) < pace_bytes(patience) {
                    return Poll::Ready(());
                }
                self.window = None;
                continue;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
            if timer.deadline() != ends {
                timer.as_mut().reset(ends);
            }
            ready!(timer.as_mut().poll(context));
        }
    }
}

/// Bytes that a client has to read in this time.
fn pace_bytes(time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    PACE_BYTES.saturating_mul(ms) / 1_000
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Reads `bytes_a_second` until the stall ends; returns the time until then, at most 120 s.
    async fn stalled(bytes_a_second: u64) -> Option<Duration> {
        let (begun, mut stall) = (Instant::now(), Stall::default());
        for second in 0..120 {
            let polling = poll_fn(|context| stall.poll(second * bytes_a_second, PATIENCE, context));
            if tokio::time::timeout(Duration::from_secs(1), polling).await.is_ok() {
                return Some(begun.elapsed());
            }
        }
        None
    }

    /// DESIGN D6: a client that reads nothing is given up exactly after its patience, not at a
    /// later tick.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_too_little_is_given_up_in_time() {
        assert_eq!(stalled(0).await, Some(PATIENCE));
        assert_eq!(stalled(PACE_BYTES / 2).await, Some(PATIENCE));
        assert_eq!(stalled(2 * PACE_BYTES).await, None);
    }

    /// DESIGN D6: the patience starts again after a client has read everything.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_took_all_has_its_time_again() {
        let mut stall = Stall::default();
        for _ in 0..10 {
            let polling = poll_fn(|context| stall.poll(0, PATIENCE, context));
            assert!(
                tokio::time::timeout(PATIENCE - Duration::from_secs(1), polling).await.is_err()
            );
            stall.reset();
        }
    }
}
