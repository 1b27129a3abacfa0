//! What all connections of one listener share.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use peeklock_core::Broker;
use peeklock_core::contract::Principal;
use peeklock_core::permits::{Budget, Pool};
use peeklock_listen::{Crowd, Idle, Strangers, Tracker};
use peeklock_tls::Handshakes;

use super::config::AmqpConfig;

/// Clients that have not opened their connections; of few connections at most half. Beyond, the oldest makes room.
const OPENING_COUNT_MAX: usize = 256;

/// One listener: its broker, its settings, its connections.
pub(super) struct Site {
    pub(super) broker: Broker,
    pub(super) config: AmqpConfig,
    /// Connections that were not opened yet.
    pub(super) handshakes: Arc<Handshakes>,
    /// Who was refused for where it comes from.
    pub(super) strangers: Strangers,
    /// What has not arrived whole.
    pub(super) inbound: Arc<Pool>,
    /// The one content that is large and has not arrived whole, or is not stored.
    pub(super) large_inbound: Arc<Pool>,
    /// The one content that is large and was not sent whole.
    pub(super) large_outbound: Budget,
    pub(super) connections: Tracker,
    /// Those that are open and hold nothing.
    pub(super) idle: Idle,
    /// All of them, by where their clients come from.
    pub(super) crowd: Crowd,
}

impl Site {
    pub(super) fn new(broker: Broker, config: AmqpConfig) -> Self {
        Self {
            broker,
            handshakes: Handshakes::new(OPENING_COUNT_MAX.min(config.connection_count_max / 2)),
            strangers: Strangers::default(),
            inbound: Pool::of_parts(config.inbound_bytes_max),
            large_inbound: Pool::new(1),
            large_outbound: Budget::new(1),
            config,
            connections: Tracker::default(),
            idle: Idle::default(),
            crowd: Crowd::default(),
        }
    }

    /// Whether a client from there is let in without showing anything. Who has to show something first is a stranger until
    /// then, and those who have keep what they have: a stranger gets the place of nobody that holds something. So is who
    /// comes by a proxy, as long as nobody knows from where.
    pub(super) fn is_known_at_once(&self, peer: Option<SocketAddr>) -> bool {
        if peer.is_none() || !self.broker.allows_anonymous() {
            return false;
        }
        let access = self.broker.access(Principal::anonymous().from_peer(peer));
        access.is_identified().now_or_never().unwrap_or(false)
    }
}
