//! Yields during long work that consists of many small parts, on a thread that connections use:
//! after a number of steps, all other ready tasks run first (DESIGN D6).

/// Maximum number of small steps between two yields.
const STEPS_MAX: usize = 4_096;
/// Steps of a part: a description, or a rule of at most 16 KiB. So 64 parts run between two
/// yields.
const PART_STEPS: usize = 64;

/// Counts the steps since the last yield.
#[derive(Debug, Default)]
pub(crate) struct Yielder {
    steps: usize,
}

impl Yielder {
    /// Counts a part: one entity or rule was judged, compared or described.
    pub(crate) async fn part(&mut self) {
        self.add(PART_STEPS).await;
    }

    /// Counts a small step, such as a comparison of numbers.
    pub(crate) async fn step(&mut self) {
        self.add(1).await;
    }

    async fn add(&mut self, steps: usize) {
        self.steps += steps;
        if self.steps >= STEPS_MAX {
            self.steps = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Polls a future to its end, and counts its yields.
#[cfg(test)]
pub(crate) fn run_counting_yields<T>(made: impl Future<Output = T>) -> (T, usize) {
    let mut made = std::pin::pin!(made);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut yields = 0;
    loop {
        match made.as_mut().poll(&mut context) {
            std::task::Poll::Ready(made) => return (made, yields),
            std::task::Poll::Pending => yields += 1,
        }
    }
}
