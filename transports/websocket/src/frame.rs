//! Frames of the protocol as types, once for both encodings; `docs/reference/websocket.md`
//! describes them.
//!
//! A struct has its JSON form from serde and its binary form from the order of its fields. Each
//! operation, answer and push has a key in JSON and a code in the binary form, side by side in
//! `operation`. The meaning of operations is absent on purpose.

pub(crate) mod binary;
mod body;
pub(crate) mod cost;
pub(crate) mod json;
pub(crate) mod message;
pub(crate) mod text;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::body::Encoding;
pub(crate) use self::body::{Empty, Run, WireError, bodies, wire_choice};
pub(crate) use self::cost::cost_of;
pub(crate) use self::wire::LIST_COUNT_MAX;
use crate::error::FrameError;
use crate::operation::{Notice, Operation};

/// One frame of a client.
#[derive(Debug)]
pub(crate) struct ClientFrame {
    /// Number of frames of the server that the client has taken.
    pub(crate) seen: u64,
    pub(crate) requests: Vec<Result<Request, BadRequest>>,
}

impl ClientFrame {
    /// Bytes of answers to reserve in advance, beyond the cost of each command.
    pub(crate) fn answer_bytes(&self) -> u64 {
        let requests = self.requests.iter().filter_map(|request| request.as_ref().ok());
        requests.map(|request| request.operation.answer_bytes()).fold(0, u64::saturating_add)
    }
}

/// One request in a frame of a client.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Id that the answer repeats; 0 asks for an answer only on failure.
    pub(crate) id: u32,
    pub(crate) operation: Operation,
}

/// A request that cannot be read, with its id, or 0 if the id cannot be read either.
#[derive(Clone, Debug)]
pub(crate) struct BadRequest {
    pub(crate) id: u32,
    pub(crate) error: FrameError,
}

/// One frame of the server.
#[derive(Debug)]
pub(crate) struct ServerFrame {
    /// Number of frames of the client that the server has taken.
    pub(crate) seen: u64,
    pub(crate) items: Vec<Item>,
}

/// One item in a frame of the server: the answer to a request, or a push with the id 0.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: u32,
    pub(crate) notice: Notice,
}

/// Declares an enum with a code and a key for each variant, and optionally a variant with those of
/// another enum.
macro_rules! schema {
    ($(#[$meta:meta])* enum $name:ident {
        $($(#[$doc:meta])* $code:literal $key:literal $variant:ident($body:ty),)*
    } $(and { $(#[$nested_doc:meta])* $nested:ident($inner:ty) })?) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant($body),)*
            $($(#[$nested_doc])* $nested(Box<$inner>),)?
        }

        #[allow(dead_code, reason = "each side writes the frames that the other side reads")]
        impl $name {
            pub(crate) const fn code(&self) -> u8 {
                match self {
                    $(Self::$variant(_) => $code,)*
                    $(Self::$nested(inner) => inner.code(),)?
                }
            }

            /// Writes the body without code and key, in the binary form.
            pub(crate) fn write_body(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(body) => $crate::frame::wire::Wire::write(body, out),)*
                    $(Self::$nested(inner) => inner.write_body(out),)?
                }
            }

            pub(crate) fn read_body(
                code: u8,
                reader: &mut $crate::frame::wire::Reader<'_>,
            ) -> Result<Self, $crate::error::FrameError> {
                match code {
                    $($code => $crate::frame::wire::Wire::read(reader).map(Self::$variant),)*
                    $(code if <$inner>::has_code(code) => {
                        <$inner>::read_body(code, reader).map(|inner| Self::$nested(Box::new(inner)))
                    })?
                    _ => Err($crate::error::FrameError::Unknown),
                }
            }

            /// Adds the cost of a body to `cost`, without decoding the body.
            pub(crate) fn skim_body(
                code: u8,
                reader: &mut $crate::frame::wire::Reader<'_>,
                cost: &mut $crate::frame::wire::RequestCost,
            ) -> Result<(), $crate::error::FrameError> {
                match code {
                    $($code => <$body as $crate::frame::wire::Wire>::skim(reader, cost),)*
                    $(code if <$inner>::has_code(code) => {
                        <$inner>::skim_body(code, reader, cost)
                    })?
                    _ => Ok(()),
                }
            }

            /// Writes key and body into a JSON object.
            pub(crate) fn serialize_entry<M: serde::ser::SerializeMap>(
                &self,
                map: &mut M,
            ) -> Result<(), M::Error> {
                match self {
                    $(Self::$variant(body) => map.serialize_entry($key, body),)*
                    $(Self::$nested(inner) => inner.serialize_entry(map),)?
                }
            }

            /// Reads the body that belongs to a key; none if the key is not in this schema.
            pub(crate) fn deserialize_value<'de, A: serde::de::MapAccess<'de>>(
                key: &str,
                map: &mut A,
            ) -> Result<Option<Self>, A::Error> {
                match key {
                    $($key => map
                        .next_value()
                        .map(|$crate::frame::json::Object(body)| Some(Self::$variant(body))),)*
                    _ => {
                        $(if let Some(inner) = <$inner>::deserialize_value(key, map)? {
                            return Ok(Some(Self::$nested(Box::new(inner))));
                        })?
                        Ok(None)
                    }
                }
            }

            pub(crate) const fn has_code(code: u8) -> bool {
                matches!(code, $($code)|*)
            }

            /// Returns each code with its key.
            pub(crate) fn names() -> impl Iterator<Item = (u8, &'static str)> {
                let names = [$(($code, $key)),*].into_iter();
                $(let names = names.chain(<$inner>::names());)?
                names
            }
        }
    };
}

pub(crate) use schema;

impl Item {
    pub(crate) const fn push(notice: Notice) -> Self {
        Self { id: 0, notice }
    }
}

impl ClientFrame {
    /// Reads a frame. A request that cannot be read does not affect its neighbours.
    ///
    /// # Errors
    /// When the frame itself cannot be read.
    pub(crate) fn decode(encoding: Encoding, bytes: &Bytes) -> Result<Self, FrameError> {
        match encoding {
            Encoding::Json => json::read_client_frame(bytes),
            Encoding::Binary => binary::read_client_frame(bytes),
        }
    }
}

impl ServerFrame {
    /// Writes a frame; `about` is its approximate size in bytes, which is allocated at once.
    ///
    /// # Errors
    /// Fails if the content of a message in it is not valid.
    pub(crate) fn encode(&self, encoding: Encoding, about: usize) -> Result<Vec<u8>, FrameError> {
        match encoding {
            Encoding::Json => json::write_server_frame(self, about),
            Encoding::Binary => Ok(binary::write_server_frame(self, about)),
        }
    }
}

/// Frame functions of the client.
#[cfg(any(test, feature = "client"))]
pub(crate) mod client_side {
    use super::{Bytes, Encoding, FrameError, Request, ServerFrame, binary, json};

    /// Writes a frame of a client.
    ///
    /// # Errors
    /// Fails if the content of a message in it is not valid.
    pub(crate) fn encode(
        encoding: Encoding,
        seen: u64,
        requests: &[Request],
    ) -> Result<Vec<u8>, FrameError> {
        match encoding {
            Encoding::Json => json::write_client_frame(seen, requests),
            Encoding::Binary => Ok(binary::write_client_frame(seen, requests)),
        }
    }

    /// Reads a frame of the server.
    ///
    /// # Errors
    /// Fails if the frame cannot be read.
    pub(crate) fn decode(encoding: Encoding, bytes: &Bytes) -> Result<ServerFrame, FrameError> {
        match encoding {
            Encoding::Json => json::read_server_frame(bytes),
            Encoding::Binary => binary::read_server_frame(bytes),
        }
    }
}
