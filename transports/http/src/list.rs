//! A list of a request: bounds what an empty object of two bytes can cost.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Elements of one list.
pub(crate) const COUNT_MAX: usize = 4_096;

/// At most [`COUNT_MAX`] elements; a longer one is refused before the rest of it is read.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            if read.len() == COUNT_MAX {
                let text = format!("a list has at most {COUNT_MAX} elements");
                return Err(serde::de::Error::custom(text));
            }
            read.push(element);
        }
        Ok(List(read))
    }
}
