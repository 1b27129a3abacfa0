//! Accepts connections while there are permits for sockets, until the listener stops. Listeners and
//! gateways use it. Invariant: a socket is passed on only together with its permit.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::admission::GRACE;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Passes each accepted socket with its permit to `hand_on`, until the value of `stop` becomes
/// false. When no permit is free, one socket waits here and the others in the system.
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
            // The permit is acquired after the accept. A permit that waits for a socket could not
            // be used by connections from another listener.
            let Some(permit) = wait_for_socket(&sockets, &evict).await else { return };
            hand_on(stream, permit).await;
        }
    };
    tokio::select! {
        () = next => {}
        _ = stop.wait_for(|accepting| !accepting) => {}
    }
}

/// Waits for a permit for a socket. While there is none, `evict` is called repeatedly. None if the
/// listener has ended.
pub(crate) async fn wait_for_socket(
    sockets: &Arc<Semaphore>,
    evict: impl Fn(),
) -> Option<OwnedSemaphorePermit> {
    let mut acquiring = pin!(Arc::clone(sockets).acquire_owned());
    loop {
        tokio::select! {
            biased;
            permit = &mut acquiring => return permit.ok(),
            // An evicted connection has ended within `GRACE`, before the next call.
            () = async { evict(); tokio::time::sleep(GRACE).await } => {}
        }
    }
}

/// Permits for `count_max` sockets, or the maximum of a semaphore if that is less.
pub(crate) fn socket_permits(count_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count_max.min(Semaphore::MAX_PERMITS)))
}
