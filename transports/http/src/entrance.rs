//! Serves HTTP connections that another listener, such as the gateway, has accepted (LIS-01). The
//! gateway calls it through the trait [`Enter`]. Its connections use the slots of the HTTP
//! listener, and sockets of their own.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_http::error::DispatchError;
use actix_service::{Service, ServiceFactory as _};
use futures_util::future::LocalBoxFuture;
use peeklock_core::admission::sockets;
use peeklock_listen::{Attend, Enter, Upgrade};
use peeklock_tls::Stream;
use tokio::sync::{Semaphore, oneshot};

use crate::serve::http;
use crate::site::Site;
use crate::socket::{Socket, TakesOver};

/// Accepts connections of other listeners for this transport.
pub(crate) struct HttpEntrance {
    site: Arc<Site>,
    /// Sockets for all permitted connections, and some for connections that are refused with an
    /// answer.
    sockets: Arc<Semaphore>,
}

/// Serves connections in one thread.
struct Attendant<S> {
    site: Arc<Site>,
    sockets: Arc<Semaphore>,
    service: Rc<S>,
}

impl HttpEntrance {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        let count_max = sockets(site.config.connection_count_max).min(Semaphore::MAX_PERMITS);
        let sockets = Arc::new(Semaphore::new(count_max));
        Self { site, sockets }
    }
}

impl Enter for HttpEntrance {
    fn open(&self) -> LocalBoxFuture<'static, io::Result<Rc<dyn Attend>>> {
        let (site, sockets) = (Arc::clone(&self.site), Arc::clone(&self.sockets));
        Box::pin(async move {
            let service = http(&site).new_service(()).await;
            let service =
                service.map_err(|()| io::Error::other("the HTTP framework did not start"))?;
            let here: Rc<dyn Attend> =
                Rc::new(Attendant { site, sockets, service: Rc::new(service) });
            Ok(here)
        })
    }

    fn takes_upgrade(&self, _: &str) -> bool {
        false
    }

    fn sockets(&self) -> usize {
        sockets(self.site.config.connection_count_max)
    }
}

impl<S> Attend for Attendant<S>
where
    S: Service<(Socket, Option<SocketAddr>), Response = (), Error = DispatchError> + 'static,
{
    fn attend(&self, stream: Stream) -> LocalBoxFuture<'static, Option<Upgrade>> {
        let (site, service) = (Arc::clone(&self.site), Rc::clone(&self.service));
        let sockets = Arc::clone(&self.sockets);
        Box::pin(async move {
            // Connections over the limit get a refusal; connections without a socket are closed.
            let socket = sockets.try_acquire_owned().ok()?;
            let peer = stream.peer();
            let (upgrades, mut upgraded) = oneshot::channel();
            // The client already knows how its connection ended.
            service
                .call((Socket::new(stream, site, TakesOver::Upgrades(upgrades)), peer))
                .await
                .ok();
            drop(socket);
            upgraded.try_recv().ok()
        })
    }
}
