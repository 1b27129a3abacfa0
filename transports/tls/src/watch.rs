//! Looks at the files now and then. They are read, not asked for their times: a time may stay the same when a file
//! is replaced by a link, as orchestrators do, or within one tick of the file system's clock. What is in use and ends is
//! spoken of again meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::source::{Reloaded, Tls, now};

/// How often the files are read, a few kilobytes.
const LOOK_EACH: Duration = Duration::from_secs(2);

/// Reads changed files again as long as this lives, in a thread of its own, and says each day that a certificate ends.
pub struct Watch {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(tls: &Arc<Tls>) -> io::Result<Self> {
        let tls = Arc::clone(tls);
        let (end, ended) = mpsc::channel();
        let look = move || {
            while ended.recv_timeout(LOOK_EACH) == Err(RecvTimeoutError::Timeout) {
                match tls.reload() {
                    Ok(Reloaded::Unchanged) => {}
                    Ok(Reloaded::Changed) => {
                        let fingerprint = tls.certificate().fingerprint;
                        tracing::info!(fingerprint, "certificate replaced");
                    }
                    Err(error) => {
                        tracing::error!(%error, "changed certificate cannot be used; the one before stays in use");
                    }
                }
                tls.remind(now());
            }
        };
        let thread = std::thread::Builder::new().name("peeklock-tls".to_owned()).spawn(look)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks at certificates panicked");
        }
    }
}
