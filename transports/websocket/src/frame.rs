//! What is said over a connection, once for both encodings: `docs/reference/websocket.md` as types.
//!
//! A struct has its JSON form from serde and its binary form from the order of its fields; an
//! operation, an answer, a push has a key in JSON and a code in the binary form, side by side in
//! `operation`, where each has a file of its own. Absent on purpose: what any of it means.

pub(crate) mod announce;
pub(crate) mod binary;
pub(crate) mod json;
pub(crate) mod message;
pub(crate) mod text;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::announce::Announced;
pub(crate) use self::announce::announced;
use self::text::{Guid, Instant};
use self::wire::{Reader, Wire, wire};
use crate::error::FrameError;
use crate::operation::{Notice, Operation};

/// Elements of one list, so that a small frame cannot ask for a large allocation.
pub(crate) const LIST_COUNT_MAX: usize = 4_096;

/// How frames are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encoding {
    /// Text frames, `peeklock.v1.json`.
    Json,
    /// Binary frames, `peeklock.v1.binary`.
    Binary,
}

impl Encoding {
    /// Both, the preferred first.
    pub const ALL: [Self; 2] = [Self::Binary, Self::Json];

    /// The name of the subprotocol.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Json => "peeklock.v1.json",
            Self::Binary => "peeklock.v1.binary",
        }
    }

    /// The encoding of a subprotocol of that name.
    #[must_use]
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.subprotocol() == name)
    }
}

/// One frame of a client.
#[derive(Debug)]
pub(crate) struct ClientFrame {
    /// How many frames of the server the client has taken.
    pub(crate) seen: u64,
    pub(crate) requests: Vec<Result<Request, BadRequest>>,
}

impl ClientFrame {
    /// What the answers to its requests take before there is room for them, beyond what every command pays.
    pub(crate) fn answer_bytes(&self) -> u64 {
        let requests = self.requests.iter().filter_map(|request| request.as_ref().ok());
        requests.map(|request| request.operation.answer_bytes()).fold(0, u64::saturating_add)
    }
}

/// One thing asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Names the answer; 0 asks for none unless it fails.
    pub(crate) id: u32,
    pub(crate) operation: Operation,
}

/// A request that cannot be read, with its id as far as that can.
#[derive(Clone, Debug)]
pub(crate) struct BadRequest {
    pub(crate) id: u32,
    pub(crate) error: FrameError,
}

/// One frame of the server.
#[derive(Debug)]
pub(crate) struct ServerFrame {
    /// How many frames of the client the server has taken.
    pub(crate) seen: u64,
    pub(crate) items: Vec<Item>,
}

/// One thing the server says: the answer to a request, or a push with the id 0.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: u32,
    pub(crate) notice: Notice,
}

/// Declares an enum with a code and a key for each variant, and optionally a variant with those of another enum.
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

            /// The body alone, in the binary form.
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

            /// Notes what a body asks for, without reading it.
            pub(crate) fn skim_body(
                code: u8,
                reader: &mut $crate::frame::wire::Reader<'_>,
                announced: &mut $crate::frame::announce::Announced,
            ) -> Result<(), $crate::error::FrameError> {
                match code {
                    $($code => <$body as $crate::frame::wire::Wire>::skim(reader, announced),)*
                    $(code if <$inner>::has_code(code) => {
                        <$inner>::skim_body(code, reader, announced)
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

            /// Reads the body behind a key; none if the key is not one of these.
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

            /// Every code with its key.
            pub(crate) fn names() -> impl Iterator<Item = (u8, &'static str)> {
                let names = [$(($code, $key)),*].into_iter();
                $(let names = names.chain(<$inner>::names());)?
                names
            }
        }
    };
}

/// Nothing to say.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}
wire!(Empty {});

/// An enum without values: its place in a list, in the binary form.
macro_rules! wire_choice {
    ($name:ident, $what:literal, [$($variant:ident),*]) => {
        impl Wire for $name {
            const BYTES_MIN: usize = 1;

            fn write(&self, out: &mut Vec<u8>) {
                let all = [$(Self::$variant),*];
                let place = all.iter().position(|one| one == self).unwrap_or(0);
                u8::try_from(place).unwrap_or(0).write(out);
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let all = [$(Self::$variant),*];
                let place = u8::read(reader)?;
                all.get(usize::from(place)).copied().ok_or(FrameError::BadValue($what))
            }
        }
    };
}

/// Declares structs in camelCase with both forms; absent options are left out in JSON.
macro_rules! bodies {
    ($($(#[$meta:meta])* struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }
        crate::frame::wire::wire!($name { $($field: $type),* });
    )*};
}

pub(crate) use {bodies, schema, wire_choice};

bodies! {
    struct WireError {
        /// A name of the error catalogue.
        condition: String,
        retryable: bool,
        tracking_id: Guid,
        /// What was wrong; not stable.
        detail: String,
        entity: String,
        timestamp: Instant,
    }
}

/// First number and count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Run(pub(crate) u64, pub(crate) u32);

impl Wire for Run {
    const BYTES_MIN: usize = 12;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(u64::read(reader)?, u32::read(reader)?))
    }
}

impl<T: Wire> Wire for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        T::read(reader).map(Self::new)
    }

    fn skim(reader: &mut Reader<'_>, announced: &mut Announced) -> Result<(), FrameError> {
        T::skim(reader, announced)
    }
}

impl Run {
    /// Adds a number to a list of runs.
    pub(crate) fn push(runs: &mut Vec<Self>, number: u64) {
        if let Some(last) = runs.last_mut() {
            let next = if last.0 == 0 { 0 } else { last.0 + u64::from(last.1) };
            if next == number && last.1 < u32::MAX {
                last.1 += 1;
                return;
            }
        }
        runs.push(Self(number, 1));
    }

    /// The numbers of a list of runs, at most so many.
    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "the client reads"))]
    pub(crate) fn expand(runs: &[Self], count_max: usize) -> Vec<u64> {
        runs.iter()
            .flat_map(|run| {
                (0..u64::from(run.1)).map(|place| if run.0 == 0 { 0 } else { run.0 + place })
            })
            .take(count_max)
            .collect()
    }
}

impl Item {
    pub(crate) const fn push(notice: Notice) -> Self {
        Self { id: 0, notice }
    }
}

impl ClientFrame {
    /// Reads a frame. A request that cannot be read does not harm its neighbours.
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
    /// Writes a frame, which has about so many bytes: room for them is made once.
    ///
    /// # Errors
    /// When a message of it is no content.
    pub(crate) fn encode(&self, encoding: Encoding, about: usize) -> Result<Vec<u8>, FrameError> {
        match encoding {
            Encoding::Json => json::write_server_frame(self, about),
            Encoding::Binary => Ok(binary::write_server_frame(self, about)),
        }
    }
}

/// What the client does with frames.
#[cfg(any(test, feature = "client"))]
pub(crate) mod of_client {
    use super::{Bytes, Encoding, FrameError, Request, ServerFrame, binary, json};

    /// Writes a frame of a client.
    ///
    /// # Errors
    /// When a message of it is no content.
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
    /// When it cannot be read.
    pub(crate) fn decode(encoding: Encoding, bytes: &Bytes) -> Result<ServerFrame, FrameError> {
        match encoding {
            Encoding::Json => json::read_server_frame(bytes),
            Encoding::Binary => binary::read_server_frame(bytes),
        }
    }
}
