//! What an operator can set.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use crate::connection::Config;
use crate::sasl::mechanism;

/// The settings of the AMQP transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AmqpConfig {
    /// `amqp.address`: where to listen; loopback unless told otherwise.
    pub address: SocketAddr,
    /// `amqp.workers`: threads that serve connections.
    pub workers: usize,
    /// `amqp.connection_count_max`: connections.
    pub connection_count_max: usize,
    /// `amqp.link_count_max`: links of one connection.
    pub link_count_max: usize,
    /// `amqp.unsettled_count_max`: deliveries of one receiver, and of one session, that are not settled.
    pub unsettled_count_max: u32,
    /// `amqp.message_bytes_max`: the largest message of a client, batches included.
    pub message_bytes_max: NonZero<u64>,
    /// `amqp.inbound_bytes_max`: messages that have not arrived whole, all connections together; beyond,
    /// sockets are not read, and the slowest yields.
    pub inbound_bytes_max: u64,
    /// `amqp.outbound_bytes_max`: deliveries and answers of one connection that are under way.
    pub outbound_bytes_max: u64,
    /// `amqp.opening_timeout`: time until a client has said who it is and opened its connection.
    pub opening_timeout: Duration,
    /// `amqp.idle_timeout`: the longest silence of a client (AMQP-06).
    pub idle_timeout: Duration,
    /// `amqp.write_timeout`: the longest time in which a client takes nothing of what is written.
    pub write_timeout: Duration,
    /// `security.i_know`: lets a listener beyond loopback serve anonymous clients (SEC-17).
    pub i_know: bool,
}

impl Default for AmqpConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 5672)),
            workers: 2,
            connection_count_max: 5_000,
            link_count_max: 256,
            unsettled_count_max: 8_192,
            message_bytes_max: NonZero::new(1 << 20).unwrap_or(NonZero::<u64>::MIN),
            inbound_bytes_max: 64 << 20,
            outbound_bytes_max: 2 << 20,
            opening_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(240),
            write_timeout: Duration::from_secs(30),
            i_know: false,
        }
    }
}

impl AmqpConfig {
    /// The defaults at this address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// What the machine of a connection is told. `EXTERNAL` is for listeners that ask for certificates.
    pub(super) fn of_connection(&self, container_id: &str) -> Config {
        Config {
            container_id: container_id.into(),
            mechanisms: vec![mechanism::MSSBCBS, mechanism::PLAIN, mechanism::ANONYMOUS],
            link_count_max: self.link_count_max,
            idle_time_out: self.idle_timeout,
            opening_max: self.opening_timeout,
            unsettled_max: usize::try_from(self.unsettled_count_max).unwrap_or(usize::MAX),
            message_bytes_max: self.message_bytes_max,
            ..Config::default()
        }
    }
}
