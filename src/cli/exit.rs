//! The end of a command. Exit codes let scripts distinguish results, and each code keeps its
//! meaning. The first Ctrl-C or SIGTERM ends a command in order, the second at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Help text with the exit codes, for every command that connects to a broker.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    done
  1    failure
  2    usage or configuration
  4    no such queue, topic, subscription, rule, policy, message or context
  5    already exists
  6    nothing found: no message to receive or to show
  7    no connection to the broker
  8    partly done; the output lists the results and failures
  9    the broker is busy; try again later
  130  interrupted"
    };
}

/// A failure without a code of its own.
pub const FAILURE: u8 = 1;
/// A wrong command line or configuration.
pub const USAGE: u8 = 2;
/// No such queue, topic, subscription, rule, policy, message or context.
pub const NOT_FOUND: u8 = 4;
/// The entity or context already exists.
pub const EXISTS: u8 = 5;
/// No message was found.
pub const NOTHING: u8 = 6;
/// The broker cannot be reached.
pub const NO_CONNECTION: u8 = 7;
/// Only a part of the work was done.
pub const IN_PART: u8 = 8;
/// The broker is busy; the same command can succeed later.
pub const BUSY: u8 = 9;
/// Ctrl-C or SIGTERM, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// Whether the user has interrupted the command.
#[derive(Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts to listen. Must be called inside a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if sender.send_replace(true) {
                    // The broker releases the command's locks.
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Whether the command was interrupted.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the command is interrupted.
    pub async fn hit(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|is_set| *is_set).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
