//! Keeps a lock for as long as a handler needs it (SET-17, SET-18).

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;
use tokio::task::JoinHandle;

use super::core::Link;
use crate::frame::text::{Instant, Token};
use crate::frame::{Notice, Operation, Renew};

/// The shortest pause between two renewals.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Renews a lock until it is dropped, or until the lock is lost.
#[derive(Debug)]
pub struct LockKeeper {
    task: JoinHandle<()>,
}

impl LockKeeper {
    pub(super) fn start(link: Arc<Link>, token: LockToken, until: Timestamp) -> Self {
        Self { task: tokio::spawn(keep(link, token, until)) }
    }
}

impl Drop for LockKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews when half of the time is over.
pub(super) async fn keep(link: Arc<Link>, token: LockToken, mut until: Timestamp) {
    loop {
        let pause = until.since(link.core.now()).to_std() / 2;
        tokio::time::sleep(pause.max(PAUSE_MIN)).await;
        let renew =
            Renew { link: link.number, ranges: Vec::new(), lock_tokens: vec![Token(token)] };
        match link.call(Operation::Renew(renew)).await {
            Ok(Notice::Renewed(renewed)) => match renewed.locked_until_utc {
                Some(Instant(at)) => until = at,
                None => return,
            },
            Ok(_) => return,
            Err(error) if error.retryable() => {}
            Err(_) => return,
        }
    }
}
