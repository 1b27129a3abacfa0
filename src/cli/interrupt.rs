//! Ctrl-C and SIGTERM: the first ends a command in order, the second immediately.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::exit;

/// Whether the user has interrupted the command.
#[derive(Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts to listen. Must be called inside a tokio runtime.
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
                    // The broker releases the command's locks.
                    std::process::exit(exit::INTERRUPTED.into());
                }
            }
        });
        Ok(Self(told))
    }

    /// Whether the command was interrupted.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the command is interrupted.
    pub async fn hit(&self) {
        let mut told = self.0.clone();
        if told.wait_for(|is_set| *is_set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
