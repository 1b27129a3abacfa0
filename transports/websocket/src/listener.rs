//! The transport: its listener, and the upgrade of a connection. The broker starts and stops it.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_core::telemetry;
use peeklock_listen::websocket::{BufferSizes, PIECE_BYTES};
use peeklock_listen::{ListenerStart, Serve, Tracker, upgrade};
use peeklock_tls::Stream;
use tokio_tungstenite::accept_hdr_async_with_config;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::config::WebSocketConfig;
use crate::connection::converse;
use crate::frame::Encoding;
use crate::handshake;
use crate::metered::Metered;
use crate::site::{Site, Socket};

const NAME: &str = "websocket";
/// Answer to a request on this port that is not an upgrade.
const WRONG_PORT_TEXT: &str = "this port serves WebSocket; use the HTTP port, by default 5300";
/// Size of the read buffer of a socket, in bytes; it is kept for the life of the socket.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Number of written bytes after which the buffer is flushed to the system.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// The WebSocket transport. The documentation of the crate describes its protocol.
///
/// ```
/// # mod peeklock { pub use peeklock_core::*; pub use peeklock_websocket as websocket; }
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use peeklock::Broker;
/// use peeklock::contract::Transport;
/// use peeklock::websocket::{WebSocketConfig, WebSocketTransport};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// // Port 0 selects a free port.
/// let mut config = WebSocketConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
/// config.workers = 2;
/// let running = Box::new(WebSocketTransport::new(config)).start(broker.clone()).await?;
/// println!("ws://{}", running.local_address());
///
/// running.stop(Duration::from_secs(5)).await;
/// broker.stop(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
pub struct WebSocketTransport {
    config: WebSocketConfig,
}

impl WebSocketTransport {
    /// Makes a transport with these settings; the host starts it.
    #[must_use]
    pub const fn new(config: WebSocketConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl Transport for WebSocketTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(
        self: Box<Self>,
        broker: Broker,
    ) -> Result<Box<dyn RunningTransport>, TransportError> {
        let mut config = self.config;
        let start = ListenerStart {
            transport: NAME,
            threads: "peeklock-ws",
            address: config.address,
            i_know: config.i_know,
            workers: config.workers,
            connection_count_max: config.connection_count_max,
            proxies: config.proxies.clone(),
            tls: config.tls.clone(),
            entrance: std::mem::take(&mut config.entrance),
            shared_port: None,
        };
        start.serve(broker, |broker| Site::new(broker, config))
    }
}

impl Serve for Site {
    async fn serve(self: Arc<Self>, stream: Stream) {
        let _counted = telemetry::ConnectionCount::by("websocket");
        let opening = self.places.begin_opening();
        let agreed = Box::pin(async {
            tokio::select! {
                biased;
                () = opening.evicted() => None,
                agreed = upgraded(&self, stream) => agreed,
            }
        });
        if let Some((socket, encoding)) = agreed.await {
            converse(self, socket, encoding, opening).await;
        }
    }

    fn connections(&self) -> &Tracker {
        &self.tracker
    }

    fn evict_for_socket(&self) {
        self.places.evict_oldest_opening();
    }

    /// Accepts each upgrade that no other transport takes, so that a wrong path is answered with
    /// the path of WebSocket.
    fn takes_upgrade(&self, _: &str) -> bool {
        true
    }
}

/// Upgrades a connection and agrees on an encoding. Returns none after it has refused the upgrade
/// or it took too long.
async fn upgraded(site: &Site, stream: Stream) -> Option<(Box<Socket>, Encoding)> {
    let (share, peer) = (site.inbound.paced_share(), stream.peer());
    let mut metered =
        Metered::new(stream, share, site.config.frame_timeout, site.config.frame_bytes_max);
    let sizes = BufferSizes {
        read_bytes: READ_BUFFER_BYTES,
        write_bytes: WRITE_BUFFER_BYTES,
        written_frame_bytes_max: PIECE_BYTES,
        message_bytes_max: site.config.frame_bytes_max,
    };
    let config = sizes.config();
    let (mut agreed, mut by_proxy) = (None, false);
    let judge = judge(site, peer, &mut agreed, &mut by_proxy);
    let accepting = accept_hdr_async_with_config(&mut metered, judge, Some(config));
    let accepted = tokio::time::timeout(site.config.handshake_timeout, accepting).await;
    match accepted.map(|accepted| accepted.map(drop)) {
        // No bytes after the request were read: a client that sends more before the answer is
        // refused.
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            upgrade::answer_invalid_upgrade(&site.broker, &mut metered, &error, WRONG_PORT_TEXT)
                .await;
            return None;
        }
        Err(_) if metered.has_read() => {
            upgrade::answer_late_request(&site.broker, &mut metered, WRONG_PORT_TEXT).await;
            return None;
        }
        Err(_) => {
            telemetry::count_unopened("websocket", "silent");
            tracing::debug!(?peer, "connection closed before its client sent a byte");
            return None;
        }
    }
    let encoding = agreed?;
    metered.frame_taken();
    if by_proxy {
        metered.mark_by_proxy();
    }
    let socket = Socket::from_raw_socket(metered, Role::Server, Some(config)).await;
    Some((Box::new(socket), encoding))
}

type Judged = Result<Response, ErrorResponse>;

#[expect(clippy::result_large_err, reason = "the library's type")]
fn judge<'a>(
    site: &'a Site,
    peer: Option<SocketAddr>,
    agreed: &'a mut Option<Encoding>,
    by_proxy: &'a mut bool,
) -> impl FnOnce(&Request, Response) -> Judged + 'a {
    move |request, response| {
        let (encoding, response) = handshake::accept(site, peer, request, response)?;
        *agreed = Some(encoding);
        *by_proxy = upgrade::is_by_proxy(request);
        Ok(response)
    }
}
