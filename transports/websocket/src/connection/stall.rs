//! Whether a client takes what was written at its pace.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A client that takes fewer bytes a second than this, while more waits, is slow.
const PACE_BYTES: u64 = 4 << 10;

/// The time since when a client has not taken all that was written.
#[derive(Default)]
pub(super) struct Stall {
    /// When it ends, and the bytes that were taken in all when it began.
    window: Option<(Instant, u64)>,
    /// Made when it is first needed: most clients are never waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Nothing waits for the client.
    pub(super) const fn rest(&mut self) {
        self.window = None;
    }

    /// Ready if the client has taken less than its pace for `patience`, while something waited all that time.
    /// `taken_bytes` counts from the begin of its socket.
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

/// The bytes that a client has to take in this time.
fn pace_bytes(time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    PACE_BYTES.saturating_mul(ms) / 1_000
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Waits for the end of patience while this many bytes are taken each second; how long that took.
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

    /// DESIGN D6: a client that takes nothing is given up after its patience, and not at a later look at the clock.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_too_little_is_given_up_in_time() {
        assert_eq!(stalled(0).await, Some(PATIENCE));
        assert_eq!(stalled(PACE_BYTES / 2).await, Some(PATIENCE));
        assert_eq!(stalled(2 * PACE_BYTES).await, None);
    }

    /// DESIGN D6: one that has taken all has its time again.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_took_all_has_its_time_again() {
        let mut stall = Stall::default();
        for _ in 0..10 {
            let polling = poll_fn(|context| stall.poll(0, PATIENCE, context));
            assert!(
                tokio::time::timeout(PATIENCE - Duration::from_secs(1), polling).await.is_err()
            );
            stall.rest();
        }
    }
}
