//! Fairness between connections of a thread. The engine and long operations of transports count
//! their work here, and yield after a full turn.

/// Steps of a turn; the same number as the commands of an entity.
const STEPS_PER_TURN: usize = 256;
/// Bytes whose reading or encoding takes about as long as one step.
const BYTES_PER_STEP: u64 = 256;

/// Steps since the other connections of this thread had their turn. A step is a small piece of
/// work: a submitted command, an examined delivery, a refusal. Bytes received do not bound the
/// number of steps, since one range can name thousands of deliveries.
#[derive(Debug, Default)]
pub struct Steps(usize);

impl Steps {
    /// Counts `count` more steps.
    pub const fn add(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }

    /// Counts bytes that were read or encoded.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.add(usize::try_from(bytes / BYTES_PER_STEP).unwrap_or(usize::MAX));
    }

    /// Yields to the other connections of the thread if a turn is used up.
    pub async fn yield_if_due(&mut self) {
        if self.0 >= STEPS_PER_TURN {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Number of yields before `rest` returns.
    fn rests(steps: &mut Steps) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut resting = pin!(steps.yield_if_due());
        let mut count = 0;
        while resting.as_mut().poll(&mut context).is_pending() {
            count += 1;
        }
        count
    }

    /// DESIGN D6: the connection yields after each turn, however many steps are added in one call.
    #[test]
    fn a_connection_yields_after_a_full_turn() {
        let mut steps = Steps::default();
        let rested: usize = (0..10 * STEPS_PER_TURN)
            .map(|_| {
                steps.add(1);
                rests(&mut steps)
            })
            .sum();
        assert_eq!(rested, 10);
        steps.add(STEPS_PER_TURN - 1);
        assert_eq!(rests(&mut steps), 0);
        steps.add(usize::MAX);
        assert_eq!((rests(&mut steps), rests(&mut steps)), (1, 0), "nothing is left over");
        steps.add_bytes((64 << 10) - 1);
        assert_eq!(rests(&mut steps), 0);
        steps.add_bytes(BYTES_PER_STEP);
        assert_eq!(rests(&mut steps), 1, "bytes are steps, too");
    }
}
