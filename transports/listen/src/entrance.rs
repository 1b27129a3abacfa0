//! Lets another listener, such as the gateway, pass connections to the transport that speaks their
//! protocol. Each transport opens its own entrance when it starts, and knows no other.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use peeklock_core::admission::Openings;
use peeklock_tls::Stream;
use tokio::sync::Semaphore;

use crate::accept::wait_for_socket;
use crate::serve::Serve;

/// Time for which a connection may wait for a socket of its transport.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that may wait for one. A further one evicts the oldest, so that they leave the sockets to other transports.
pub(crate) const WAITING_COUNT_MAX: usize = 256;

/// A way into a transport; clones are the same one. Closed until the transport has started.
#[derive(Clone, Default)]
pub struct Entrance(Arc<OnceLock<Arc<dyn Enter>>>);

/// A transport that is entered.
pub trait Enter: Send + Sync {
    /// Opens the service of the calling thread, which runs a `LocalSet`. Called once in each
    /// thread.
    fn open(&self) -> LocalBoxFuture<'static, io::Result<Rc<dyn Attend>>>;

    /// Whether an upgrade to WebSocket at this path is for it.
    fn takes_upgrade(&self, path: &str) -> bool;

    /// How many sockets it has at the same time for connections that come this way.
    fn sockets(&self) -> usize;
}

/// Serves connections in one thread.
pub trait Attend {
    /// Serves one to its end, or until its client asks for an upgrade that somebody else may take.
    fn attend(&self, stream: Stream) -> LocalBoxFuture<'static, Option<Upgrade>>;
}

/// A connection whose client asks for WebSocket.
pub struct Upgrade {
    /// The connection, with the request to be read again.
    pub stream: Stream,
    /// The path of the request.
    pub path: String,
}

impl Entrance {
    /// Lets connections in.
    pub fn open(&self, enter: impl Enter + 'static) {
        // A transport starts once.
        self.0.set(Arc::new(enter)).ok();
    }

    /// Whether its transport has started.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.get().is_some()
    }

    /// Serves a connection that another listener has accepted, to its end, in the thread of the caller, which runs a
    /// `LocalSet`.
    ///
    /// # Errors
    /// When the transport has not started.
    pub async fn attend(&self, stream: Stream) -> io::Result<()> {
        let enter = self.get().ok_or_else(|| io::Error::other("the transport has not started"))?;
        enter.open().await?.attend(stream).await;
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&dyn Enter> {
        self.0.get().map(|enter| &**enter)
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrance").field("is_open", &self.is_open()).finish()
    }
}

/// A site whose connections are served in any thread.
pub(crate) struct Shared<S> {
    site: Arc<S>,
    sockets: Arc<Semaphore>,
    /// Number of those sockets.
    socket_count: usize,
    waiting: Arc<Openings>,
}

impl<S> Shared<S> {
    pub(crate) fn new(site: Arc<S>, sockets: Arc<Semaphore>, socket_count: usize) -> Self {
        Self { site, sockets, socket_count, waiting: Openings::new(WAITING_COUNT_MAX) }
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        let Self { site, sockets, socket_count, waiting } = self;
        let (site, sockets, waiting) = (Arc::clone(site), Arc::clone(sockets), Arc::clone(waiting));
        Self { site, sockets, socket_count: *socket_count, waiting }
    }
}

impl<S: Serve> Enter for Shared<S> {
    fn open(&self) -> LocalBoxFuture<'static, io::Result<Rc<dyn Attend>>> {
        let here: Rc<dyn Attend> = Rc::new(self.clone());
        Box::pin(async { Ok(here) })
    }

    fn takes_upgrade(&self, path: &str) -> bool {
        self.site.takes_upgrade(path)
    }

    fn sockets(&self) -> usize {
        self.socket_count
    }
}

impl<S: Serve> Attend for Shared<S> {
    fn attend(&self, stream: Stream) -> LocalBoxFuture<'static, Option<Upgrade>> {
        let Self { site, sockets, waiting, .. } = self.clone();
        Box::pin(async move {
            let waiting = waiting.begin();
            let socket = wait_for_socket(&sockets, || site.evict_for_socket());
            let socket = tokio::select! {
                biased;
                () = waiting.evicted() => return None,
                socket = tokio::time::timeout(SOCKET_TIMEOUT, socket) => socket,
            };
            drop(waiting);
            if let Ok(Some(_socket)) = socket {
                site.serve(stream).await;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::advance;

    use super::*;
    use crate::tracker::Tracker;

    /// Counts its connections.
    #[derive(Default)]
    struct Counter {
        connections: Tracker,
        served: AtomicUsize,
    }

    impl Serve for Counter {
        async fn serve(self: Arc<Self>, _: Stream) {
            self.served.fetch_add(1, Ordering::Relaxed);
        }

        fn connections(&self) -> &Tracker {
            &self.connections
        }

        fn takes_upgrade(&self, _: &str) -> bool {
            false
        }
    }

    /// LIS-02: a connection from another listener waits for a free socket for up to 5 s.
    #[tokio::test(start_paused = true)]
    async fn a_socket_is_waited_for_five_seconds() {
        let mut context = Context::from_waker(Waker::noop());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for is_left in [false, true] {
            let site = Arc::new(Counter::default());
            let sockets = Arc::new(Semaphore::new(0));
            let entered = Shared::new(Arc::clone(&site), Arc::clone(&sockets), 0);
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let mut attending = entered.attend(Stream::plain(socket));
            assert!(attending.as_mut().poll(&mut context).is_pending());
            advance(Duration::from_millis(4_999)).await;
            assert!(attending.as_mut().poll(&mut context).is_pending());
            if is_left {
                sockets.add_permits(1);
                assert!(attending.as_mut().poll(&mut context).is_ready());
            } else {
                advance(Duration::from_millis(2)).await;
                assert!(matches!(attending.as_mut().poll(&mut context), Poll::Ready(None)));
                sockets.add_permits(1);
            }
            assert_eq!(site.served.load(Ordering::Relaxed), usize::from(is_left));
        }
    }
}
