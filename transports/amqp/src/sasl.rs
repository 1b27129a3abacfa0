//! Who a client is (AMQP 5.3): the frames, one file each, and the mechanisms (AMQP-03, AMQP-08).

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::Reader;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::list::{FieldReader, List, descriptor, put, read_list, ubyte};
use crate::codec::value::Symbols;
use crate::error::AmqpError;

/// The codes of an outcome.
pub mod outcome_code {
    /// The client is who it says.
    pub const OK: u8 = 0;
    /// It is not, or its mechanism is not offered.
    pub const AUTH: u8 = 1;
    /// Something failed here, for good.
    pub const SYS_PERM: u8 = 3;
}

/// Names of mechanisms.
pub mod mechanism {
    /// Says nothing; tokens are put to `$cbs` later.
    pub const ANONYMOUS: &str = "ANONYMOUS";
    /// User and password.
    pub const PLAIN: &str = "PLAIN";
    /// The certificate of the connection.
    pub const EXTERNAL: &str = "EXTERNAL";
    /// The one that .NET knows: as `ANONYMOUS`.
    pub const MSSBCBS: &str = "MSSBCBS";
}

/// The body of a frame of SASL that a client may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFrame {
    /// A choice of mechanism.
    Init(Init),
    /// An answer to a challenge.
    Response(Response),
}

impl ClientFrame {
    /// The frame whose whole body this is.
    ///
    /// # Errors
    /// When it is none that a client may send.
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

/// What a client says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    /// Nothing (`ANONYMOUS`, `MSSBCBS`): it puts tokens later.
    Anonymous,
    /// That it is whom the certificate of the connection names.
    External,
    /// A user and a password.
    Plain(Plain),
}

/// A question (AMQP 5.3.3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Challenge {
    /// What is asked.
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

/// The mechanism that a client chose (AMQP 5.3.3.2).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Init {
    /// Its name.
    pub mechanism: Box<str>,
    /// What it has to say at once.
    pub initial_response: Option<Bytes>,
    /// Which host it means.
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

/// Shows no secret.
impl fmt::Debug for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

/// The mechanisms that are offered (AMQP 5.3.3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mechanisms {
    /// Their names.
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

/// Whether a client is who it says (AMQP 5.3.3.5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// 0: it is; 1: it is not.
    pub code: u8,
    /// More of it.
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

/// A user and a password, which is a policy and its key, or `$jwt` and a token (AMQP-08) (RFC 4616).
#[derive(Clone, PartialEq, Eq)]
pub struct Plain {
    /// The user.
    pub user: Box<str>,
    /// The password.
    pub password: Box<str>,
}

impl Plain {
    /// What a response says: an identity to act as, which must be none or the user, then user and
    /// password, with a zero byte before each.
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

/// Shows no password, and no user: who mixes them up says his password there (SEC-22).
impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

/// An answer (AMQP 5.3.3.4).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// What is answered.
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

/// Shows no secret.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").finish_non_exhaustive()
    }
}
