//! Renewal of a single lock, of a message or a session, while its holder needs it (SET-17, SET-18).
//! `keep_locked` of the receivers starts it.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;
use tokio::task::JoinHandle;

use crate::port::{Answer, Link, Request};

/// Minimum pause between two renewals.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Renews a lock, of a message or of a session, until it is dropped or the lock is lost.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::time::TimeSpan;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// # client.admin().create_queue("orders").await?;
/// # client.sender("orders")?.send(Message::new("two coffees")).await?;
/// let receiver = client.receiver("orders")?;
/// let order = receiver.receive(TimeSpan::ZERO).await?.unwrap();
/// let kept = receiver.keep_locked(&order)?;
/// // The slow work goes here.
/// drop(kept);
/// receiver.complete(&order).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockKeeper {
    task: JoinHandle<()>,
}

impl LockKeeper {
    /// Starts renewing the lock of a message, or without a token the lock of the link's session.
    pub(crate) fn start(link: Arc<dyn Link>, token: Option<LockToken>, until: Timestamp) -> Self {
        Self { task: tokio::spawn(keep(link, token, until)) }
    }
}

impl Drop for LockKeeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the pause before a lock is renewed: half of its remaining time.
pub(crate) fn half_of(link: &dyn Link, until: Timestamp) -> Duration {
    half_from(link.now(), until)
}

/// Returns half of the time from `now` to `until`, at least [`PAUSE_MIN`].
pub(crate) fn half_from(now: Timestamp, until: Timestamp) -> Duration {
    (until.since(now).to_std() / 2).max(PAUSE_MIN)
}

async fn keep(link: Arc<dyn Link>, token: Option<LockToken>, mut until: Timestamp) {
    loop {
        tokio::time::sleep(half_of(&*link, until)).await;
        match renew(&*link, token).await {
            Ok(at) => until = at,
            Err(error) if error.retryable() => {}
            Err(_) => return,
        }
    }
}

/// Renews the lock of a message, or without a token the lock of the link's session.
pub(crate) async fn renew(
    link: &dyn Link,
    token: Option<LockToken>,
) -> Result<Timestamp, BrokerError> {
    let request = token.map_or(Request::RenewSession, |token| Request::Renew(vec![token]));
    match link.ask(request).await? {
        Answer::Renewed(mut renewed) if renewed.len() == 1 => renewed.swap_remove(0),
        other => Err(link.unexpected(&other)),
    }
}
