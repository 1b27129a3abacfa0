//! Ctrl-C and SIGTERM: the first ends a command in order, the second at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::exit;

/// Whether the user wants the command to end.
#[derive(Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on. To be called inside a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (tell, told) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if tell.send_replace(true) {
                    // What was in hand is for the broker to release.
                    std::process::exit(exit::INTERRUPTED.into());
                }
            }
        });
        Ok(Self(told))
    }

    /// Whether it was said already.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is said.
    pub async fn hit(&self) {
        let mut told = self.0.clone();
        if told.wait_for(|is_set| *is_set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
