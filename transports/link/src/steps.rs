//! What a connection does before the others of its thread have their turn.

/// So many steps are a turn: as many as commands of one entity are.
const STEPS_PER_TURN: usize = 256;
/// So many bytes take about as long to be read, or told, as a small thing to be done.
const BYTES_PER_STEP: u64 = 256;

/// Steps that were taken since the others of this thread had their turn. One is a small thing: a command that is handed
/// over, a delivery that is looked at, a refusal. How many a client asks for has nothing to do with how many bytes it
/// has sent, since one range names thousands of deliveries.
#[derive(Debug, Default)]
pub struct Steps(usize);

impl Steps {
    /// Counts so many more.
    pub const fn add(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }

    /// Counts bytes that were read or told.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.add(usize::try_from(bytes / BYTES_PER_STEP).unwrap_or(usize::MAX));
    }

    /// Lets the others have their turn, if this was one.
    pub async fn rest(&mut self) {
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

    /// How often the others have their turn before it goes on.
    fn rests(steps: &mut Steps) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut resting = pin!(steps.rest());
        let mut count = 0;
        while resting.as_mut().poll(&mut context).is_pending() {
            count += 1;
        }
        count
    }

    /// DESIGN D6: the others have their turn after so many steps, however many of them are taken at once.
    #[test]
    fn the_others_have_their_turn_after_so_many_steps() {
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
