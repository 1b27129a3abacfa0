//! A timer of a socket.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// A timer that is set anew only where it would be late.
#[derive(Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready from that instant on.
    pub(super) fn poll(&mut self, at: Instant, context: &mut Context<'_>) -> Poll<()> {
        let wanted = tokio::time::Instant::from_std(at);
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted)));
        if sleep.deadline() > wanted {
            sleep.as_mut().reset(wanted);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(wanted);
        }
        Poll::Pending
    }
}
