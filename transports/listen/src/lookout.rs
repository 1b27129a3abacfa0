//! Detects that a client has disconnected while its connection is not read, because its request
//! waits. The end of the stream is behind bytes that the client has sent in advance, which no task
//! reads meanwhile.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use peeklock_core::admission::Timer;
use tokio::time::Instant;

/// Interval between checks, and the delay of the first. Requests that finish sooner are carried out
/// even for a client that sends everything, closes and waits for no answer.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// Checks whether the client of an unread connection has disconnected.
#[derive(Debug, Default)]
pub struct Lookout {
    /// When it looks next; none while the connection is read.
    at: Option<Instant>,
    timer: Timer,
}

impl Lookout {
    /// Call while the connection is not read. Ready after `has_ended` reported that the end of the
    /// client's stream has arrived (see [`Stream::has_ended`](peeklock_tls::Stream::has_ended)).
    pub fn poll(&mut self, has_ended: impl Fn() -> bool, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let at = *self.at.get_or_insert_with(|| Instant::now() + LOOK_EACH);
            ready!(self.timer.poll(at.into_std(), context));
            if has_ended() {
                return Poll::Ready(());
            }
            self.at = None;
        }
    }

    /// The connection is read: its end is seen where it stands.
    pub const fn rest(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use super::*;

    /// HTP-11: the first check follows a while without reading, then checks repeat; reading in
    /// between restarts the time.
    #[tokio::test(start_paused = true)]
    async fn lookout_checks_after_a_time_without_reading() {
        let looks = &Cell::new(0_u32);
        let ends_at_look = |count: u32| {
            move || {
                looks.set(looks.get() + 1);
                looks.get() == count
            }
        };
        let mut lookout = Lookout::default();
        let begun = Instant::now();
        let almost = LOOK_EACH - Duration::from_millis(100);
        for _ in 0..3 {
            tokio::select! {
                () = poll_fn(|context| lookout.poll(ends_at_look(1), context)) => {}
                () = tokio::time::sleep(almost) => {}
            }
            lookout.rest();
        }
        assert_eq!(looks.get(), 0);
        poll_fn(|context| lookout.poll(ends_at_look(2), context)).await;
        assert_eq!(looks.get(), 2);
        assert!(begun.elapsed() >= 3 * almost + 2 * LOOK_EACH);
    }
}
