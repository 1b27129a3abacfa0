//! How long a request waits for the broker: for room, for entities, for what is to be stored.
//!
//! The time of a client's own doing is bounded elsewhere, by its pace, and does not count: while its body arrives the
//! deadline is lifted. One that waits for messages says itself for how long.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use peeklock_core::error::Rejection;

use crate::error::{Answer, Refusal};

/// When a request is late; nobody waits for the broker while there is none.
pub(crate) struct Deadline {
    patience: Duration,
    at: Cell<Option<Instant>>,
}

impl Deadline {
    /// One that begins now.
    pub(crate) fn begin(patience: Duration) -> Self {
        Self { patience, at: Cell::new(Some(Instant::now() + patience)) }
    }

    /// It is the client that is waited for, until the deadline begins anew.
    pub(crate) fn lift(&self) {
        self.at.set(None);
    }

    /// From now on the broker is waited for, and for so long as the client has asked to wait.
    pub(crate) fn begin_anew(&self, wait: Duration) {
        self.at.set(Some(Instant::now() + self.patience + wait));
    }

    /// Works for an answer until it is late. What was begun goes on, as it does when a client goes away.
    pub(crate) async fn keep(&self, work: impl Future<Output = Answer>) -> Answer {
        let mut work = pin!(work);
        let mut sleep = pin!(tokio::time::sleep(self.patience));
        poll_fn(|context| {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            // Only the work moves it.
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
