//! Accepts sockets while there are permits for them, until the stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::admission::GRACE;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Hands each socket on, which may wait, with its permit, until the stop. One socket beyond the permits waits here, and the
/// others in the system.
pub(crate) async fn accept<F: Future<Output = ()>>(
    socket: TcpListener,
    sockets: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
    evict: impl Fn(),
    mut hand_on: impl FnMut(std::net::TcpStream, OwnedSemaphorePermit) -> F,
) {
    let next = async {
        loop {
            let accepted = match socket.accept().await {
                Ok((stream, _)) => stream.into_std(),
                Err(error) => Err(error),
            };
            let Ok(stream) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Not before: a wait for sockets would keep a permit from connections that come another way.
            let Some(permit) = wait_for_socket(&sockets, &evict).await else { return };
            hand_on(stream, permit).await;
        }
    };
    tokio::select! {
        () = next => {}
        _ = stop.wait_for(|accepting| !accepting) => {}
    }
}

/// Waits for a permit for a socket; meanwhile connections may be evicted. `None` if there will be no more.
pub(crate) async fn wait_for_socket(
    sockets: &Arc<Semaphore>,
    evict: impl Fn(),
) -> Option<OwnedSemaphorePermit> {
    let mut acquiring = pin!(Arc::clone(sockets).acquire_owned());
    loop {
        tokio::select! {
            biased;
            permit = &mut acquiring => return permit.ok(),
            // An evicted connection has ended by the time of the next eviction.
            () = async { evict(); tokio::time::sleep(GRACE).await } => {}
        }
    }
}

/// Permits for this number of sockets, if a semaphore can have them.
pub(crate) fn socket_permits(count_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count_max.min(Semaphore::MAX_PERMITS)))
}
