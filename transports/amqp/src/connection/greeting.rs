//! Protocol headers and SASL (AMQP 2.2, 5.3): from the first byte to the judged credentials.
//! Nothing is read while credentials are being judged.

use bytes::{Bytes, BytesMut};

use super::{Connection, Event, ProtocolStage};
use crate::codec::value::Symbols;
use crate::error::AmqpError;
use crate::frame::{HEADER_BYTES, Protocol};
use crate::sasl::{
    Challenge, ClientFrame, Credentials, Init, Mechanisms, Outcome, Plain, mechanism, outcome_code,
};

impl Connection {
    /// Accepts the credentials of the client.
    pub fn admit(&mut self) {
        self.judge(outcome_code::OK, ProtocolStage::SecondHeader);
    }

    /// Refuses the credentials and ends the connection (AMQP-08).
    pub fn deny(&mut self) {
        self.judge(outcome_code::AUTH, ProtocolStage::Closed);
    }

    fn judge(&mut self, code: u8, next: ProtocolStage) {
        if self.phase != ProtocolStage::Judging {
            return;
        }
        self.wire.sasl(&Outcome { code, additional_data: None });
        self.phase = next;
    }

    /// Takes a header and answers with the same one. A header that is not offered is answered with
    /// an offered one, and the connection ends (AMQP-04).
    pub(super) fn take_header(&mut self, input: &mut BytesMut) -> Option<()> {
        let first = self.phase == ProtocolStage::Header;
        let offered = match (first, self.config.sasl_required) {
            (true, true) => Protocol::Sasl,
            _ => Protocol::Amqp,
        };
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
            // A client of another protocol may send fewer bytes than a header has.
            let known = Protocol::Amqp.header();
            let foreign = input.iter().zip(known).take(4).any(|(byte, known)| *byte != known);
            if foreign {
                self.refuse_header(offered);
            }
            return foreign.then_some(());
        };
        let protocol = Protocol::read(*header);
        match protocol {
            Some(Protocol::Sasl) if first => {
                self.wire.header(Protocol::Sasl.header());
                let mechanisms = Symbols::new(&self.config.mechanisms);
                self.wire.sasl(&Mechanisms { mechanisms });
                self.phase = ProtocolStage::Mechanism;
            }
            Some(Protocol::Amqp) if offered == Protocol::Amqp => {
                self.wire.header(Protocol::Amqp.header());
                self.phase = ProtocolStage::Opening;
            }
            _ => self.refuse_header(offered),
        }
        drop(input.split_to(HEADER_BYTES));
        Some(())
    }

    fn refuse_header(&mut self, offered: Protocol) {
        self.wire.header(offered.header());
        self.close_without_waiting(AmqpError::framing("protocol is not offered"));
    }

    pub(super) fn take_sasl(&mut self, body: &Bytes) {
        let login = match (self.phase, ClientFrame::read(body)) {
            (ProtocolStage::Mechanism, Ok(ClientFrame::Init(init))) => self.choose(&init),
            (ProtocolStage::Password, Ok(ClientFrame::Response(response))) => {
                plain(&response.response)
            }
            (_, Ok(_)) => {
                return self.close_without_waiting(AmqpError::illegal_state("SASL out of order"));
            }
            (_, Err(error)) => return self.close_without_waiting(error),
        };
        self.phase = match login {
            Login::Challenged => ProtocolStage::Password,
            Login::Credentials(_) | Login::Invalid => ProtocolStage::Judging,
        };
        match login {
            Login::Credentials(credentials) => self.events.push_back(Event::Login(credentials)),
            Login::Invalid => {
                self.deny();
                self.events.push_back(Event::Closed { error: None, by_client: false });
            }
            Login::Challenged => {}
        }
    }

    fn choose(&mut self, init: &Init) -> Login {
        let mut offered = self.config.mechanisms.iter();
        match offered.find(|offered| **offered == &*init.mechanism) {
            Some(&(mechanism::ANONYMOUS | mechanism::MSSBCBS)) => {
                Login::Credentials(Credentials::Anonymous)
            }
            Some(&mechanism::EXTERNAL) => Login::Credentials(Credentials::External),
            Some(&mechanism::PLAIN) => match &init.initial_response {
                Some(response) => plain(response),
                None => {
                    self.wire.sasl(&Challenge { challenge: Bytes::new() });
                    Login::Challenged
                }
            },
            _ => Login::Invalid,
        }
    }
}

/// Result of a SASL frame of the client.
enum Login {
    /// Credentials to be judged.
    Credentials(Credentials),
    /// More data is needed from the client.
    Challenged,
    /// No credentials that could be judged.
    Invalid,
}

fn plain(response: &[u8]) -> Login {
    Plain::read(response)
        .map_or(Login::Invalid, |plain| Login::Credentials(Credentials::Plain(plain)))
}
