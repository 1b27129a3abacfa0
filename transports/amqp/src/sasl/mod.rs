//! Who a client is (AMQP 5.3): the frames, one file each, and the mechanisms (AMQP-03, AMQP-08).

mod challenge;
mod init;
mod mechanisms;
mod outcome;
mod plain;
mod response;

use bytes::Bytes;
use peeklock_words::amqp::Reader;

pub use self::challenge::Challenge;
pub use self::init::Init;
pub use self::mechanisms::Mechanisms;
pub use self::outcome::Outcome;
pub use self::plain::Plain;
pub use self::response::Response;
use crate::codec::fields::descriptor;
use crate::codec::list::{List, read_list};
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
