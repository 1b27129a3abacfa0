//! Something long that is made of many small parts, on a thread that connections live on: after so many of them everybody
//! else who is ready there goes first (DESIGN D6).

/// How much is made in one go, in small steps.
const STEPS_MAX: usize = 4_096;
/// What a part takes of them: a description, or a rule of 16 KiB at most. So 64 parts are made in one go.
const PART_STEPS: usize = 64;

/// How much was made since others went first.
#[derive(Debug, Default)]
pub(crate) struct Breather {
    steps: usize,
}

impl Breather {
    /// A part was made: one entity or rule was judged, compared or told.
    pub(crate) async fn part(&mut self) {
        self.add(PART_STEPS).await;
    }

    /// Something small was done, such as a look at a number.
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

/// Carries something out by itself, and tells how often others could have gone first.
#[cfg(test)]
pub(super) fn alone<T>(made: impl Future<Output = T>) -> (T, usize) {
    let mut made = std::pin::pin!(made);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut breaths = 0;
    loop {
        match made.as_mut().poll(&mut context) {
            std::task::Poll::Ready(made) => return (made, breaths),
            std::task::Poll::Pending => breaths += 1,
        }
    }
}
