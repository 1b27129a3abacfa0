//! Signals that stop the process: the first in order, the second immediately. `server.rs` waits for
//! it.

use std::io;
use std::time::Duration;

/// Exit code of a process that a second signal ends.
const EXIT_AT_ONCE: i32 = 1;

/// Signals received since it was created.
pub struct Signals(tokio::sync::mpsc::Receiver<&'static str>);

impl Signals {
    /// Starts to receive signals.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        listen(&sender)?;
        Ok(Self(receiver))
    }

    /// Waits for the next signal; returns its name.
    pub async fn next(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// Waits for a signal, for at most `time`.
    pub async fn next_within(&mut self, time: Duration) -> Option<&'static str> {
        tokio::time::timeout(time, self.next()).await.ok()
    }

    /// Ends the process at the next signal, even during other work.
    pub fn exit_on_next(mut self) {
        tokio::spawn(async move {
            let signal = self.next().await;
            tracing::warn!(signal, "stopping at once");
            std::process::exit(EXIT_AT_ONCE);
        });
    }
}

#[cfg(unix)]
fn listen(sender: &tokio::sync::mpsc::Sender<&'static str>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    for (kind, name) in [(SignalKind::interrupt(), "SIGINT"), (SignalKind::terminate(), "SIGTERM")]
    {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(name).await.is_ok() {}
        });
    }
    Ok(())
}

#[cfg(not(unix))]
fn listen(sender: &tokio::sync::mpsc::Sender<&'static str>) -> io::Result<()> {
    let sender = sender.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send("ctrl-c").await.is_ok() {}
    });
    Ok(())
}
