//! The transport: starts the listener, and serves each accepted connection. The broker starts and
//! stops it.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::contract::{RunningTransport, Transport, TransportError};
use peeklock_core::telemetry;
use peeklock_listen::{ListenerStart, Serve, Tracker};
use peeklock_tls::Stream;

use super::config::AmqpConfig;
use super::listener_state::ListenerState;
use super::reception::receive;
use super::websocket;

const NAME: &str = "amqp";

/// The AMQP transport; the [module](super) documents its scope.
///
/// ```
/// # mod peeklock { pub use peeklock_core::*; pub use peeklock_amqp::server as amqp; }
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use peeklock::Broker;
/// use peeklock::amqp::{AmqpConfig, AmqpTransport};
/// use peeklock::contract::Transport;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().start().await?;
/// // Port 0 selects a free port.
/// let mut config = AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
/// config.workers = 2;
/// let running = Box::new(AmqpTransport::new(config)).start(broker.clone()).await?;
/// println!("amqp://{}", running.local_address());
///
/// running.stop(Duration::from_secs(5)).await;
/// broker.stop(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
pub struct AmqpTransport {
    config: AmqpConfig,
}

impl AmqpTransport {
    /// Makes a transport with these settings. The host starts it.
    #[must_use]
    pub const fn new(config: AmqpConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl Transport for AmqpTransport {
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
            threads: "peeklock-amqp",
            address: config.address,
            i_know: config.i_know,
            workers: config.workers,
            connection_count_max: config.connection_count_max,
            proxies: config.proxies.clone(),
            tls: config.tls.clone(),
            entrance: std::mem::take(&mut config.entrance),
            // Not left in the site: the gateway leads to the site, as the entrance does.
            shared_port: config.shared_port.take(),
        };
        start.serve(broker, |broker| ListenerState::new(broker, config))
    }
}

impl Serve for ListenerState {
    async fn serve(self: Arc<Self>, stream: Stream) {
        let _counted = telemetry::ConnectionCount::by("amqp");
        let principal = stream.principal();
        receive(self, stream, principal).await;
    }

    fn connections(&self) -> &Tracker {
        &self.connections
    }

    fn evict_for_socket(&self) {
        self.places.evict_oldest_opening();
    }

    fn takes_upgrade(&self, path: &str) -> bool {
        websocket::is_served_at(path)
    }
}
