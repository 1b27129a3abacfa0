//! The JSON form of frames.
//!
//! ```text
//! client: {"seen": 0, "requests": [{"id": 1, "attach": {...}}, ...]}
//! server: {"seen": 0, "items": [{"id": 1, "done": {}}, {"deliveries": {...}}, ...]}
//! ```

use std::fmt;

use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::cost::{self, Allowance};
use super::{
    BadRequest, ClientFrame, Item, LIST_COUNT_MAX, Notice, Operation, Request, ServerFrame,
};
use crate::error::FrameError;

/// Maximum length of a parser error in characters; the rest is cut off.
const PARSER_TEXT_CHARS_MAX: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientObject<'a> {
    #[serde(default)]
    seen: u64,
    #[serde(borrow, default, deserialize_with = "bounded")]
    requests: Vec<&'a RawValue>,
}

#[derive(Serialize)]
struct ServerObject<'a> {
    seen: u64,
    items: &'a [Item],
}

/// An id, and the body under its key.
struct WithId<T> {
    id: u32,
    body: T,
}

/// A body that is found by its key.
trait Keyed: Sized {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Self>, A::Error>;
}

impl Keyed for Operation {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Self::deserialize_value(key, map)
    }
}

impl Keyed for Notice {
    fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Self::deserialize_value(key, map)
    }
}

struct NamedVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Keyed> Visitor<'de> for NamedVisitor<T> {
    type Value = WithId<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with an id and exactly one operation or answer")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut id, mut body) = (0, None);
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "id" {
                id = map.next_value()?;
                continue;
            }
            if body.is_some() {
                return Err(A::Error::custom("there is more than one operation or answer"));
            }
            let read = T::read(&key, &mut map)
                .map_err(|error| A::Error::custom(format!("{key}: {error}")))?;
            let Some(read) = read else {
                let key: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format!("`{key}` is unknown")));
            };
            body = Some(read);
        }
        let body = body.ok_or_else(|| A::Error::custom("there is no operation or answer"))?;
        Ok(WithId { id, body })
    }
}

impl<'de, T: Keyed> Deserialize<'de> for WithId<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(std::marker::PhantomData))
    }
}

/// The id of a request that cannot be read otherwise.
#[derive(Default)]
struct IdOnly(u32);

impl<'de> Deserialize<'de> for IdOnly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;

        impl<'de> Visitor<'de> for IdVisitor {
            type Value = IdOnly;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IdOnly, A::Error> {
                let mut id = 0;
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    if key == "id" {
                        id = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(IdOnly(id))
            }
        }

        deserializer.deserialize_map(IdVisitor)
    }
}

/// A value that must be an object with named properties. Serde would also accept an array of the
/// values in their order.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(ObjectVisitor(std::marker::PhantomData)).map(Self)
    }
}

/// Reads a list of at most `LIST_COUNT_MAX` elements.
pub(crate) fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct ListVisitor<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = list.next_element()? {
                if values.len() == LIST_COUNT_MAX {
                    return Err(A::Error::custom(format!(
                        "a list of more than {LIST_COUNT_MAX} elements"
                    )));
                }
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_seq(ListVisitor(std::marker::PhantomData))
}

/// Converts a parser error, which may quote the whole frame; the text is cut to
/// `PARSER_TEXT_CHARS_MAX`.
fn parser(error: &serde_json::Error) -> FrameError {
    struct Clipped {
        text: String,
        chars_left: usize,
    }

    impl fmt::Write for Clipped {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            for char in more.chars() {
                self.chars_left = self.chars_left.checked_sub(1).ok_or(fmt::Error)?;
                self.text.push(char);
            }
            Ok(())
        }
    }

    let mut clipped = Clipped { text: String::new(), chars_left: PARSER_TEXT_CHARS_MAX };
    // Formatting stops with an error at the limit, which is intended.
    fmt::write(&mut clipped, format_args!("{error}")).ok();
    FrameError::Json(clipped.text)
}

fn text(bytes: &Bytes) -> Result<&str, FrameError> {
    std::str::from_utf8(bytes).map_err(|_| FrameError::BadValue("text"))
}

pub(crate) fn read_client_frame(bytes: &Bytes) -> Result<ClientFrame, FrameError> {
    let Object(object): Object<ClientObject<'_>> =
        serde_json::from_str(text(bytes)?).map_err(|error| parser(&error))?;
    let mut allowance = Allowance::of_frame();
    let read = |raw: &&RawValue| {
        let bad = |error| {
            let IdOnly(id) = serde_json::from_str(raw.get()).unwrap_or_default();
            BadRequest { id, error }
        };
        if !allowance.take(cost::text_cost(raw)) {
            return Err(bad(FrameError::TooMuch));
        }
        // From bytes, as in the other transports, so that the program contains one reader of each form.
        match serde_json::from_slice::<WithId<Operation>>(raw.get().as_bytes()) {
            Ok(WithId { id, body }) => Ok(Request { id, operation: body }),
            Err(error) => Err(bad(parser(&error))),
        }
    };
    Ok(ClientFrame { seen: object.seen, requests: object.requests.iter().map(read).collect() })
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.id != 0 {
            map.serialize_entry("id", &self.id)?;
        }
        self.notice.serialize_entry(&mut map)?;
        map.end()
    }
}

/// One notice without an id.
pub(crate) struct NoticeBody<'a>(pub(crate) &'a Notice);

impl Serialize for NoticeBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.serialize_entry(&mut map)?;
        map.end()
    }
}

impl Serialize for Request {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.id != 0 {
            map.serialize_entry("id", &self.id)?;
        }
        self.operation.serialize_entry(&mut map)?;
        map.end()
    }
}

pub(crate) fn write_server_frame(frame: &ServerFrame, about: usize) -> Result<Vec<u8>, FrameError> {
    let object = ServerObject { seen: frame.seen, items: &frame.items };
    let mut written = Vec::with_capacity(about);
    serde_json::to_writer(&mut written, &object).map_err(|error| parser(&error))?;
    Ok(written)
}

#[cfg(any(test, feature = "client"))]
pub(crate) fn write_client_frame(seen: u64, requests: &[Request]) -> Result<Vec<u8>, FrameError> {
    #[derive(Serialize)]
    struct Whole<'a> {
        seen: u64,
        requests: &'a [Request],
    }
    serde_json::to_vec(&Whole { seen, requests }).map_err(|error| parser(&error))
}

#[cfg(any(test, feature = "client"))]
pub(crate) fn read_server_frame(bytes: &Bytes) -> Result<ServerFrame, FrameError> {
    #[derive(Deserialize)]
    struct Whole {
        #[serde(default)]
        seen: u64,
        items: Vec<WithId<Notice>>,
    }
    let Object(object): Object<Whole> =
        serde_json::from_slice(bytes).map_err(|error| parser(&error))?;
    let items =
        object.items.into_iter().map(|named| Item { id: named.id, notice: named.body }).collect();
    Ok(ServerFrame { seen: object.seen, items })
}
