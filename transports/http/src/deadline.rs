//! The time limit of a request for waiting on the broker: for memory, entities and storage.
//!
//! Time that the client itself takes does not count, because its pace is limited elsewhere: the
//! deadline is lifted while the body arrives. A request that waits for messages adds its own
//! waiting time.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use peeklock_core::error::Rejection;

use crate::error::{Answer, Refusal};

/// The time at which a request is late; none while the broker is not waited for.
pub(crate) struct Deadline {
    patience: Duration,
    at: Cell<Option<Instant>>,
}

impl Deadline {
    /// Starts now.
    pub(crate) fn begin(patience: Duration) -> Self {
        Self { patience, at: Cell::new(Some(Instant::now() + patience)) }
    }

    /// Suspends the deadline while the client is waited for, until [`Self::restart`].
    pub(crate) fn lift(&self) {
        self.at.set(None);
    }

    /// Starts again, with additional time for which the client has asked to wait.
    pub(crate) fn restart(&self, wait: Duration) {
        self.at.set(Some(Instant::now() + self.patience + wait));
    }

    /// Runs `work` until the deadline. An operation that has begun continues in the broker, as
    /// after a disconnect.
    pub(crate) async fn keep(&self, work: impl Future<Output = Answer>) -> Answer {
        let mut work = pin!(work);
        let mut sleep = pin!(tokio::time::sleep(self.patience));
        poll_fn(|context| {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            // Only `work` can change the deadline.
            let Some(at) = self.at.get() else { return Poll::Pending };
            let at = tokio::time::Instant::from_std(at);
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            sleep.as_mut().poll(context).map(|()| Err(self.late()))
        })
        .await
    }

    fn late(&self) -> Refusal {
        let ms = self.patience.as_millis();
        let detail = format!(
            "the broker did not finish this within `http.operation_timeout`, {ms} ms; it is \
             unknown whether it still takes effect"
        );
        Rejection::timeout(detail).into()
    }
}
