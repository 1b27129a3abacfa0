//! Default ports of listeners and clients. The configuration, the command line and the clients
//! share them.

/// HTTP: the REST data plane, administration, the JSON API.
pub const HTTP: u16 = 5300;
/// WebSocket, which the command line uses.
pub const WEBSOCKET: u16 = 5301;
/// AMQP (AMQP-01).
pub const AMQP: u16 = 5672;
/// AMQP with TLS (AMQP-02).
pub const AMQPS: u16 = 5671;

/// Default port for AMQP, with or without TLS.
#[must_use]
pub const fn amqp(is_secure: bool) -> u16 {
    if is_secure { AMQPS } else { AMQP }
}
