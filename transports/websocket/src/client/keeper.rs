//! Keeps a lock for as long as a handler needs it (SET-17, SET-18).

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;
use tokio::task::JoinHandle;

use super::core::Link;
use super::session::renew as renew_session;
use crate::frame::text::{Instant, Token};
use crate::frame::{Notice, Operation, Renew};

/// The shortest pause between two renewals.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Renews a lock, of a message or of a session, until it is dropped or the lock is lost.
#[derive(Debug)]
pub struct LockKeeper {
    task: JoinHandle<()>,
}

impl LockKeeper {
    pub(super) fn start(link: Arc<Link>, token: LockToken, until: Timestamp) -> Self {
        Self { task: tokio::spawn(keep(link, token, until)) }
    }

    pub(super) fn start_session(link: Arc<Link>, until: Timestamp) -> Self {
        Self { task: tokio::spawn(keep_session(link, until)) }
    }
}

impl Drop for LockKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until half of the time of a lock is over.
async fn half_of(link: &Link, until: Timestamp) {
    let pause = until.since(link.core.now()).to_std() / 2;
    tokio::time::sleep(pause.max(PAUSE_MIN)).await;
}

/// The same for the lock of a link's session (SES-12).
pub(super) async fn keep_session(link: Arc<Link>, mut until: Timestamp) {
    loop {
        half_of(&link, until).await;
        match renew_session(&link).await {
            Ok(at) => until = at,
            Err(error) if error.retryable() => {}
            Err(_) => return,
        }
    }
}

/// Renews when half of the time is over.
pub(super) async fn keep(link: Arc<Link>, token: LockToken, mut until: Timestamp) {
    loop {
        half_of(&link, until).await;
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
