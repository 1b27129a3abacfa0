//! Accepts connections while there are places, until the listener stops. Listeners and gateways use
//! it. Invariant: a socket is passed on only together with a place.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::permits::GRACE;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Passes each accepted socket with its place to `hand_on`, until the value of `stop` becomes
/// false. When no place is free, one socket waits here and the others in the system.
pub(crate) async fn accept<F: Future<Output = ()>>(
    socket: TcpListener,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
    make_room: impl Fn(),
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
            // The place is acquired after the accept. A place that waits for a socket could not be
            // used by connections from another listener.
            let Some(place) = place(&places, &make_room).await else { return };
            hand_on(stream, place).await;
        }
    };
    tokio::select! {
        () = next => {}
        _ = stop.wait_for(|accepting| !accepting) => {}
    }
}

/// Waits for a place. While there is none, `make_room` is called repeatedly. None if the listener
/// has ended.
pub(crate) async fn place(
    places: &Arc<Semaphore>,
    make_room: impl Fn(),
) -> Option<OwnedSemaphorePermit> {
    let mut acquiring = pin!(Arc::clone(places).acquire_owned());
    loop {
        tokio::select! {
            biased;
            place = &mut acquiring => return place.ok(),
            // A connection that was asked to leave has gone within `GRACE`, before the next call.
            () = async { make_room(); tokio::time::sleep(GRACE).await } => {}
        }
    }
}

/// Sockets that a listener has for `connection_count_max` connections; further ones wait in the
/// system.
#[must_use]
pub const fn sockets(connection_count_max: usize) -> usize {
    connection_count_max.saturating_add(spare_sockets(connection_count_max))
}

/// Sockets in addition to the connections, for clients that have not authenticated, wait for a
/// place, or receive their refusal: as many as connections, but at least 16 and at most 256.
#[must_use]
pub const fn spare_sockets(connection_count_max: usize) -> usize {
    match connection_count_max {
        0..16 => 16,
        16..256 => connection_count_max,
        _ => 256,
    }
}

/// Semaphore with `count_max` places, or the maximum of a semaphore if that is less.
pub(crate) fn places(count_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count_max.min(Semaphore::MAX_PERMITS)))
}
