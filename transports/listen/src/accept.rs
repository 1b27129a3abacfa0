//! Accepts, as long as there are places and nobody says to stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::permits::GRACE;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// After an error of accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Hands each socket on, which may wait, with its place, until it is told to stop. Of sockets beyond the places one waits
/// here, and the others in the system.
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
            // Not before: who waits for sockets would keep a place from those that come another way.
            let Some(place) = place(&places, &make_room).await else { return };
            hand_on(stream, place).await;
        }
    };
    tokio::select! {
        () = next => {}
        _ = stop.wait_for(|accepting| !accepting) => {}
    }
}

/// A place, as soon as there is one; while there is none somebody may make room. None if there will be no more.
pub(crate) async fn place(
    places: &Arc<Semaphore>,
    make_room: impl Fn(),
) -> Option<OwnedSemaphorePermit> {
    let mut acquiring = pin!(Arc::clone(places).acquire_owned());
    loop {
        tokio::select! {
            biased;
            place = &mut acquiring => return place.ok(),
            // Whoever was told has gone by the time that the next is.
            () = async { make_room(); tokio::time::sleep(GRACE).await } => {}
        }
    }
}

/// Sockets that a listener has at the same time for so many connections; further ones wait in the system.
#[must_use]
pub const fn sockets(connection_count_max: usize) -> usize {
    connection_count_max.saturating_add(spare_sockets(connection_count_max))
}

/// Of them those beside the connections, for who has not said who he is, waits for a place, or is told that there is none:
/// as many again, but no more than 256 and no fewer than 16.
#[must_use]
pub const fn spare_sockets(connection_count_max: usize) -> usize {
    match connection_count_max {
        0..16 => 16,
        16..256 => connection_count_max,
        _ => 256,
    }
}

/// So many, as far as there can be.
pub(crate) fn places(count_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count_max.min(Semaphore::MAX_PERMITS)))
}
