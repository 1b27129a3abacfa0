//! Authentication with SASL (AMQP 5.3): its frames, its mechanisms, and the credentials in them
//! (AMQP-03, AMQP-08). `greeting.rs` reads and writes them before the connection opens.

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{FieldReader, List, descriptor, put, read_list, ubyte};
use crate::codec::value::Symbols;
use crate::error::AmqpError;

/// Codes of an [`Outcome`].
pub mod outcome_code {
    /// The client is authenticated.
    pub const OK: u8 = 0;
    /// Authentication failed, or the mechanism is not offered.
    pub const AUTH: u8 = 1;
    /// Permanent failure of this program.
    pub const SYS_PERM: u8 = 3;
}

/// Names of mechanisms.
pub mod mechanism {
    /// No credentials; the client puts tokens to `$cbs` later.
    pub const ANONYMOUS: &str = "ANONYMOUS";
    /// User and password.
    pub const PLAIN: &str = "PLAIN";
    /// Certificate of the TLS connection.
    pub const EXTERNAL: &str = "EXTERNAL";
    /// Mechanism of the .NET SDK, equal to `ANONYMOUS`.
    pub const MSSBCBS: &str = "MSSBCBS";
}

/// Body of a SASL frame that a client may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFrame {
    /// Choice of a mechanism.
    Init(Init),
    /// Answer to a challenge.
    Response(Response),
}

impl ClientFrame {
    /// Reads a frame that fills `body`.
    ///
    /// # Errors
    /// Fails if the body is not a frame that a client may send.
    pub fn read(body: &Bytes) -> Result<Self, AmqpError> {
        let mut reader = Reader::new(body);
        let code = descriptor(&mut reader)?;
        let frame = match u8::try_from(code).unwrap_or(0) {
            Init::DESCRIPTOR => Self::Init(read_list(body, &mut reader)?),
            Response::DESCRIPTOR => Self::Response(read_list(body, &mut reader)?),
            _ => {
                return Err(AmqpError::decode(format!(
                    "descriptor 0x{code:x} is not a SASL frame of a client"
                )));
            }
        };
        if reader.is_empty() {
            Ok(frame)
        } else {
            Err(AmqpError::decode("a frame is followed by more bytes"))
        }
    }
}

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// None (`ANONYMOUS`, `MSSBCBS`): the client puts tokens later.
    Anonymous,
    /// Certificate of the TLS connection.
    External,
    /// User and password.
    Plain(Plain),
}

/// Challenge of the server (AMQP 5.3.3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Challenge {
    /// Content of the challenge.
    pub challenge: Bytes,
}

impl List for Challenge {
    const DESCRIPTOR: u8 = 0x42;
    const NAME: &'static str = "sasl-challenge";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { challenge: fields.required("challenge", FieldReader::binary)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.challenge), write::binary);
    }
}

/// Mechanism that a client chose (AMQP 5.3.3.2).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Init {
    /// Name of the mechanism.
    pub mechanism: Box<str>,
    /// First response, if the mechanism begins with one.
    pub initial_response: Option<Bytes>,
    /// Host that the client addresses.
    pub hostname: Option<Box<str>>,
}

impl List for Init {
    const DESCRIPTOR: u8 = 0x41;
    const NAME: &'static str = "sasl-init";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            mechanism: fields.required("mechanism", FieldReader::text)?,
            initial_response: fields.binary("initial-response")?,
            hostname: fields.text("hostname")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.mechanism), write::symbol);
        fields.field(self.initial_response.as_deref(), write::binary);
        fields.field(self.hostname.as_deref(), write::text);
    }
}

/// Prints no secret.
impl fmt::Debug for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

/// Mechanisms that the server offers (AMQP 5.3.3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mechanisms {
    /// Names of the mechanisms.
    pub mechanisms: Symbols,
}

impl List for Mechanisms {
    const DESCRIPTOR: u8 = 0x40;
    const NAME: &'static str = "sasl-mechanisms";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { mechanisms: fields.required("sasl-server-mechanisms", FieldReader::symbols)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.mechanisms.as_bytes()), put);
    }
}

/// Result of the authentication (AMQP 5.3.3.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Code: 0 for success, 1 for failure.
    pub code: u8,
    /// Additional data.
    pub additional_data: Option<Bytes>,
}

impl List for Outcome {
    const DESCRIPTOR: u8 = 0x44;
    const NAME: &'static str = "sasl-outcome";
    const FIELD_COUNT: usize = 2;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            code: fields.required("code", FieldReader::ubyte)?,
            additional_data: fields.binary("additional-data")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.code), ubyte);
        fields.field(self.additional_data.as_deref(), write::binary);
    }
}

/// User and password: a policy and its key, or `$jwt` and a token (AMQP-08) (RFC 4616).
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// Name of the user.
    pub user: Box<str>,
    /// Password of the user.
    pub password: Box<str>,
}

impl Plain {
    /// Reads a response: an identity to act as, the user and the password, with zero bytes between
    /// them. The identity must be empty or equal to the user.
    #[must_use]
    pub fn read(response: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(response).ok()?;
        let mut parts = text.split('\0');
        let (identity, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || user.is_empty() || !(identity.is_empty() || identity == user) {
            return None;
        }
        Some(Self { user: user.into(), password: password.into() })
    }
}

/// Prints neither password nor user: a client that confuses the two has its password in the user
/// (SEC-22).
impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

/// Answer of a client to a challenge (AMQP 5.3.3.4).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// Content of the answer.
    pub response: Bytes,
}

impl List for Response {
    const DESCRIPTOR: u8 = 0x43;
    const NAME: &'static str = "sasl-response";
    const FIELD_COUNT: usize = 1;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self { response: fields.required("response", FieldReader::binary)? })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.response), write::binary);
    }
}

/// Prints no secret.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}
