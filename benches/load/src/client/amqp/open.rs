//! Opening: header, open and begin are sent at once, as the standard permits (AMQP 2.4.1), and the
//! answers are read in turn.

use std::time::Instant;

use peeklock::tls::ClientTls;
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::performative::Performative;
use peeklock_amqp_testing::client::Session;

use super::AmqpFault;
use super::connection::Connection;
use super::wire::Wire;
use peeklock::tls::place::Place;

impl Connection {
    /// A connection with a session.
    pub(super) async fn open(place: &Place, tls: &ClientTls) -> Result<Self, AmqpFault> {
        let mut wire = Wire::connect(place, tls).await?;
        let session = Session::new(0);
        wire.frames.say_header(Protocol::Amqp);
        wire.frames.say(session.channel(), &Session::open("peeklock-bench"), &[]);
        wire.frames.say(session.channel(), &Session::begin(), &[]);
        let header = loop {
            if let Some(header) = wire.frames.hear_header() {
                break header;
            }
            wire.turn().await?;
        };
        if Protocol::read(header) != Some(Protocol::Amqp) {
            return Err(AmqpFault::Header);
        }
        let mut connection = Self { wire, session, used_at: Instant::now() };
        let opened = match connection.answer().await? {
            (Performative::Open(open), _) => open,
            (other, _) => return Err(AmqpFault::unexpected(other)),
        };
        let begun = match connection.answer().await? {
            (Performative::Begin(begin), _) => begin,
            (other, _) => return Err(AmqpFault::unexpected(other)),
        };
        connection.session.begun(&opened, &begun);
        connection.rest();
        Ok(connection)
    }
}
